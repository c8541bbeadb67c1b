"""Which strategy, topology, codec and finish go together. Checked before anything is started; what was not set is chosen.

The four are independent, but for what a method cannot do: a dense average has no use for a codec that sends signs, and a
method with symmetric weights none for a directed graph. Whoever asks for such a pair is told what to use instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.strategies.phases import Phase, Schedule, parse_schedule
from taut.strategies.registry import METHODS, Choice, on_topology

if TYPE_CHECKING:
    from taut.topologies.shape import Shape

FINISHES = ("average", "best", "any", "ensemble")
STREAM_CODEC = "tether"
PREFERRED_FINISH = {"codistillation": "best"}  # models of their own, which agree in what they say, not in their weights
FEW = 16  # workers are enough to see whether a shape has directions


@dataclass(frozen=True)
class Combination:
    """The four choices, resolved. ``strategy`` is as it runs on this topology: the last one, where there are phases."""

    strategy: Choice
    topology: str
    codec: str
    finish: str
    phases: int = 1
    majority: bool = False  # a phase is in lock-step: it goes on only with a majority of the workers
    admits_late: bool = True  # workers may join in mid-run, in whichever phase that is

    @property
    def agrees(self) -> bool:
        """At the end all replicas are equal, within rounding at least."""
        return agrees(self.strategy)

    @property
    def streams(self) -> bool:
        """They are, because every update reaches everybody as its origin sent it.

        >>> [combine(name).streams for name in ("async", "averaging", "independent")]
        [True, False, False]
        """
        return not self.strategy.is_method and self.agrees

    @property
    def returns(self) -> str:
        """What a worker that was given up does with what it did meanwhile, when it comes back (``Method.returns``);
        ``no``: it cannot."""
        return str(self.strategy.kind.returns) if self.admits_late else "no"


def combine(
    strategy: str | Choice | Schedule,
    topology: str | None = None,
    codec: str | None = None,
    finish: str | None = None,
    workers: int | None = None,
) -> Combination:
    """What was set (None: it was not) with the strategy's own choice of the rest, or ``Misuse`` where that cannot work.
    ``workers``: how many start, to check the topology with.

    >>> chosen = combine("dpsgd", "ring", workers=4)
    >>> chosen.codec, chosen.finish, combine("async").codec, combine("async").finish
    ('dense', 'average', 'tether', 'any')
    >>> combine("dpsgd", codec="tether")
    Traceback (most recent call last):
    taut.errors.Misuse: codec 'tether' with strategy 'dpsgd': expected dense; leave the codec out, or use it with async
    """
    if isinstance(strategy, Choice):
        strategy = Schedule((Phase(strategy),))
    schedule = parse_schedule(strategy) if isinstance(strategy, str) else strategy
    wired = topology if topology is not None else default_topology(schedule.last)
    choices = [on_topology(choice, wired) for choice in schedule.choices]
    if codec is not None and not any(takes_codec(choice, codec) for choice in choices):
        _refuse_codec(choices[-1], codec)
    if finish is not None and finish not in FINISHES:
        raise Misuse(f"finish {finish!r}", "one of " + ", ".join(FINISHES))
    for choice in choices:
        check_topology(choice, wired, workers)
    last = choices[-1]
    suits = [codec_for(choice, [codec]) for choice in choices if codec is None or takes_codec(choice, codec)]
    majority = any(choice.is_method and bool(choice.kind.majority) for choice in choices)
    late = all(not choice.is_method or choice.method().takes_newcomers for choice in choices)
    return Combination(last, wired, suits[-1], finish or default_finish(last), len(choices), majority, late)


def agrees(choice: Choice) -> bool:
    """Replicas are equal after the drain: the method ends in consensus, or every update reaches everybody."""
    return bool(choice.kind.consensus if choice.is_method else choice.kind.complete)


def default_finish(choice: Choice) -> str:
    """Any replica where all are equal; where they differ, their average.

    >>> from taut.strategies import parse
    >>> default_finish(parse("async")), default_finish(parse("dpsgd"))
    ('any', 'average')
    """
    return PREFERRED_FINISH.get(choice.name, "any" if agrees(choice) else "average")


def takes_codec(choice: Choice, codec: str) -> bool:
    """Streams carry whatever a codec says; methods name those that they can use, some settings aside.

    >>> from taut.strategies import parse
    >>> [takes_codec(parse(strategy), "topk:density=0.01") for strategy in ("async", "sync", "sync:backup=1", "dpsgd")]
    [True, True, False, False]
    """
    if not choice.is_method:
        return True
    name = codec_name(codec)
    if name in choice.kind.codecs:
        with suppress(Misuse):
            choice.method().check_codec(name)
            return True
    return False


def codec_name(codec: str) -> str:
    return codec.partition(":")[0].strip()


def _refuse_codec(choice: Choice, codec: str) -> None:
    name, taken = codec_name(codec), choice.kind.codecs
    if name in taken:
        choice.method().check_codec(name)
    remedy = "leave the codec out, or use it with async"
    raise Misuse(f"codec {codec!r} with strategy {choice.name!r}", " or ".join(taken), remedy)


def codec_for(choice: Choice, wishes: Sequence[str | None]) -> str:
    """The first wish that this strategy can use (None is no wish), or else its own codec.

    >>> from taut.strategies import parse
    >>> codec_for(parse("dpsgd"), ["tether", None]), codec_for(parse("async"), [None, "threshold:tau=2^-8"])
    ('dense', 'threshold:tau=2^-8')
    """
    for wish in wishes:
        if wish is not None and takes_codec(choice, wish):
            return wish
    return str(choice.kind.codecs[0]) if choice.is_method else STREAM_CODEC


def codecs_in_use(schedule: Schedule, topology: str, wishes: Sequence[str | None]) -> list[str]:
    """Return the codecs that workers of this run encode with, one for each phase that does.

    >>> [codecs_in_use(parse_schedule(each), "complete", [None]) for each in ("sync", "sync for 9 steps, then async")]
    [[], ['tether']]
    """
    used = []
    for choice in (on_topology(each, topology) for each in schedule.choices):
        codec = codec_for(choice, wishes)
        if choice.method().streams or codec_name(codec) != "dense" if choice.is_method else choice.kind.complete:
            used.append(codec)
    return used


def default_topology(choice: Choice) -> str:
    """Complete, unless the method is meant for others."""
    meant: Sequence[str] = choice.kind.topologies if choice.is_method else ()
    return "complete" if not meant or "complete" in meant else meant[0]


def check_topology(choice: Choice, topology: str, workers: int | None = None) -> None:
    """``Misuse`` where the shape is not for this strategy, or not for so many workers.

    >>> from taut.strategies import parse
    >>> check_topology(parse("independent"), "ring")
    Traceback (most recent call last):
    taut.errors.Misuse: topology 'ring' with strategy 'independent': expected complete; async takes any connected one
    """
    from taut.topologies.registry import parse as parse_topology

    shape = parse_topology(topology)
    given = f"topology {topology!r} with strategy {choice.name!r}"
    if not choice.is_method:
        if shape.name != "complete":
            raise Misuse(given, "complete", "async takes any connected one")
    elif choice.kind.topologies and shape.name not in choice.kind.topologies:
        raise Misuse(given, " or ".join(choice.kind.topologies))
    if workers is not None:
        shape.check(workers)
        if choice.is_method:
            choice.method().check_shape(shape, workers)
    directed = shape.wire(range(min(workers or FEW, FEW))).directed
    if directed and not (choice.is_method and choice.method().directed):
        raise Misuse(given, "one without directions", _undirected(shape))


def check_limited(strategy: str) -> None:
    """Refuse to limit the links of a strategy whose bytes do not pass through taut's own transport.

    >>> check_limited("sync:schedule=gloo")
    Traceback (most recent call last):
    taut.errors.Misuse: --link with sync:schedule=gloo: expected a schedule of taut's own; take --strategy sync
    """
    for choice in parse_schedule(strategy).choices:
        if choice.is_method and getattr(choice.method(), "backend", None):
            raise Misuse(f"--link with {choice}", "a schedule of taut's own", "take --strategy sync")


def _undirected(shape: Shape) -> str:
    both_ways = {"exponential": "try exponential:directed=no", "edges": "write the edges as a-b"}
    said = both_ways.get(shape.name, "try ring, torus or exponential:directed=no")
    return said + (", or --strategy sgp" if "sgp" in METHODS else "")
