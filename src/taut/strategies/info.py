"""What a strategy's class says of itself, for the adviser, the simulator and the tests: one record, asked by all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

ANY_CODEC = "*"  # in a strategy's ``codecs``: all that there are
ANY_COMPRESSOR = "*compressor"  # all compressors
ANY_FAITHFUL = "*faithful"  # all compressors that send no more than they are given: no momentum of their own
ANY_FINE = "*fine"  # all compressors that leave hardly anything out
ADVISED = "*advised"  # in a variant: the strategy's own, and all codecs (or topologies) that say they are ``advised``


class Completeness(IntEnum):
    """How much of the others' work reaches a worker, and how late."""

    SYNCHRONOUS = 1
    BOUNDED = 2
    UNBOUNDED = 3
    NEIGHBOURS = 4
    SELDOM = 5
    NOTHING = 6

    @property
    def meaning(self) -> str:
        """Return the class in words.

        >>> Completeness.BOUNDED.meaning
        'all, bounded delay'
        """
        words = "all, at once/all, bounded delay/all, any delay/neighbours/now and then/nothing"
        return words.split("/")[self - 1]


@dataclass(frozen=True)
class Variant:
    """One form in which `taut advise` tries a strategy. ``settings``: those after its name; in ``topologies`` and
    ``codecs`` an empty text is the strategy's own."""

    settings: str = ""
    topologies: tuple[str, ...] = ("",)
    codecs: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class StrategyInfo:
    """The record of a class.

    Arguments:
        completeness: how much reaches the others. A class that does not say is taken for one that exchanges seldom.
        variants: what `taut advise` tries, in order of preference; none: it serves another end than speed.
        finish: the finish that suits it; empty: any replica where all are equal, else their average.
        one_model: the workers train one model together; False: each has its own.
        on_sparse: the strategy that stands in for it where workers have no channel to each other.
        short: settings with which it exchanges often enough for a run of a few steps.
        floods: it sends after every step, whether its links carry that or not.
        limited: why it takes no codecs but dense, or but fine ones, where it takes no others.
        coded_kinds: the kinds of messages that carry a compressed vector, where the method compresses vectors.
    """

    completeness: Completeness = Completeness.SELDOM
    variants: tuple[Variant, ...] = (Variant(),)
    finish: str = ""
    one_model: bool = True
    on_sparse: str = ""
    short: str = ""
    coded_kinds: tuple[str, ...] = ()
    limited: str = "it sends its vectors whole"
    floods: bool = False
