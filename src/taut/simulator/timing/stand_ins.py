"""Small vectors that stand for large ones: what a method sees of its worker where only sizes and durations count.

A message of a method's is so long as its stand-in vector makes it; ``Sizes`` says how long it would be for the model:

    real = stand-in * parameters / elements of the stand-in        for vectors, and alike for parts of them

What an all-reduce sums has a few numbers after the vector, which do not grow with the model; what a codec writes has its
own ratio, by its cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from taut.collectives.halving_doubling import core
from taut.simulator.models.costs import CodecCost
from taut.simulator.timing.coder import CODED_NBYTES, StandInCoder, coder_for
from taut.strategies.allreduce.group import LEAST_SEGMENT_ELEMENTS, OWN_NUMBERS, PIPELINE
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import ELEMENTS_PER_MIB
from taut.strategies.local import Local
from taut.strategies.server.easgd import EASGD
from taut.strategies.server.server import Server
from taut.strategies.server.shard import ENTRY_NBYTES

if TYPE_CHECKING:
    from taut.strategies.api import Method, Vector

FRAME_NBYTES = 48  # of a message's record: its kind, its round, its numbers
PLAIN_ELEMENTS = 48  # of the stand-in where nothing is cut into as many parts as there are workers
MOST_BUCKETS = 16  # buckets of gradients; beyond, larger ones stand for several
SUMMED = ("piece", "result", "gradient", "mean", "share")  # kinds of messages that hold what is summed, and its numbers


class StandIn(Local):
    """A worker's vector, for ``parameters`` elements. ``emit`` is always the same payload: what the codec would say is
    not known, but how long it is on average. It is absorbed without effect."""

    __slots__ = ("_shared", "coded", "coder", "since", "sizes", "x")

    def __init__(
        self, x: Vector, coded: bytes = b"", sizes: Sequence[int] | None = None, coder: StandInCoder | None = None
    ) -> None:
        self.x, self.coded, self.coder = x, coded, coder
        self.since = 0  # the round after which its state is, where a method hands that over
        self._shared = x if x.strides[0] else np.zeros(1, np.float32)
        self.sizes = [len(x)] if sizes is None else list(sizes)

    def emit(self) -> bytes | None:
        return self.coded or None

    def absorb(self, payload: bytes) -> None:
        pass

    def check(self, payload: bytes) -> None:
        pass

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        """Return a stand-in for a sum. Sparse updates hardly overlap: their sum is as long as they are together, but
        never longer than a dense one."""
        return bytes(min(sum(map(len, payloads)), max(self.x.nbytes, *map(len, payloads))))

    def flush(self) -> list[bytes]:
        return [self.coded] if self.coded else []

    def retune(self, workers: int, staleness: float) -> None:
        pass

    @property
    def shared(self) -> Vector:
        return self._shared

    def shift(self, change: Vector) -> None:
        self._shared += change

    def adopt(self, shared: Vector) -> None:
        self._shared[:] = shared


@dataclass(frozen=True)
class Sizes:
    """``elements``: of the stand-in; ``tensors``: what it is cut into; ``ratios``: real bytes per stand-in byte, by the
    kind of a message, ``plain`` for all other kinds; ``segment``: elements of the stand-in per piece of an all-reduce."""

    parameters: int
    elements: int
    tensors: tuple[int, ...]
    plain: float
    ratios: dict[str, float] = field(default_factory=dict)
    coded_kinds: tuple[str, ...] = ()
    segment: int = 0
    broad: bool = False  # the vector is only asked for its length
    coder: StandInCoder | None = None  # of a method that compresses vectors

    def real(self, kind: str, nbytes: int) -> int:
        """Return how many bytes a message of this kind takes, whose stand-in payload has ``nbytes``.

        >>> Sizes(1_000_000, 10, (10,), 1e5).real("x", 40) - FRAME_NBYTES
        4000000
        """
        return FRAME_NBYTES + int(nbytes * self.ratios.get(kind, self.plain) + 0.5)

    def stand_in(self) -> StandIn:
        coded = bytes(CODED_NBYTES) if self.coded_kinds else b""
        x: Vector = np.zeros(1 if self.broad else self.elements, np.float32)
        return StandIn(np.broadcast_to(x, self.elements) if self.broad else x, coded, self.tensors, self.coder)


def sizes_for(
    method: Method, workers: int, parameters: int, codec: str, cost: CodecCost, together: bool = False
) -> Sizes:
    """Return the sizes of the stand-in for ``method``. ``together``: its all-reduces are executed for all at once, and
    their pieces are not cut out of it."""
    coder = coder_for(method, codec, workers)
    if coder is not None:
        return _compressed(method, workers, parameters, cost, coder)
    buckets = _buckets(method, parameters)
    numbers = _numbers(method)
    ratios: dict[str, float] = {}
    each, segment = PLAIN_ELEMENTS, 0
    per_bucket = max(1, parameters // (buckets * method.fragments))
    if numbers and not together:
        whole = PIPELINE * math.lcm(workers, core(workers))
        each = whole * (numbers // whole + 1) - numbers
        each *= method.fragments
    elements = each * buckets
    plain = parameters / elements
    if numbers:
        summed = each // method.fragments
        ratio = (per_bucket + numbers) / (summed + numbers)
        ratios = dict.fromkeys(SUMMED, ratio)
        segment = max(1, round(max(LEAST_SEGMENT_ELEMENTS, per_bucket // (PIPELINE * workers)) / ratio))
    if isinstance(method, Server):  # after a shard: whose pushes are in it
        own, table = 4 * elements / method.shards, ENTRY_NBYTES * workers
        ratios = dict.fromkeys(("weights", "hand"), (own * plain + table) / (own + table))
    if not method.streams:
        return Sizes(parameters, elements, (each,) * buckets, plain, ratios, segment=segment)
    coded = max(1, round(cost.bits_per_element * parameters / 8))
    ratios["update"] = coded / CODED_NBYTES
    if method.name == "relay":  # its limit on what waits is a share of x, in bytes of updates
        broad = max(1, round(parameters / ratios["update"]))
        ratios["state"] = float(parameters)  # its stand-in is a single element
        return Sizes(parameters, broad, (broad,), plain, ratios, ("update",), broad=True)
    return Sizes(parameters, elements, (each,) * buckets, plain, ratios, ("update",))


def in_stand_in_units(method: Method, sizes: Sizes) -> Method:
    """Return the same method, with as many buckets of gradients as the model has (up to ``MOST_BUCKETS``)."""
    import dataclasses

    if not isinstance(method, Sync) or not method.bucket_mib:
        return method
    return dataclasses.replace(method, bucket_mib=sizes.tensors[0] / ELEMENTS_PER_MIB)


def _buckets(method: Method, parameters: int) -> int:
    """Return the number of buckets. Tensors are not known: buckets are taken to be filled."""
    if not isinstance(method, Sync) or not method.launches or not method.bucket_mib:
        return 1
    return max(1, min(MOST_BUCKETS, math.ceil(parameters / (method.bucket_mib * ELEMENTS_PER_MIB))))


def _numbers(method: Method) -> int:
    """Return how many numbers follow a vector that is summed: those of the group, and the method's own."""
    return OWN_NUMBERS + method.summed_numbers if method.summed_numbers else 0


def _compressed(method: Method, workers: int, parameters: int, cost: CodecCost, coder: StandInCoder) -> Sizes:
    """Return the sizes for a method that compresses vectors: one payload, and after it the numbers that are summed."""
    kinds, numbers, elements = method.info.coded_kinds, _numbers(method), PLAIN_ELEMENTS
    coded = max(1, cost.nbytes(parameters))
    ratios = dict.fromkeys(kinds, (coded + 4 * numbers) / (CODED_NBYTES + 4 * numbers))
    if numbers:
        ratios["result"] = (parameters + numbers) / (elements + numbers)
    if isinstance(method, EASGD):
        ratios = dict.fromkeys(kinds, coded / min(method.shards, elements) / CODED_NBYTES)
    if isinstance(method, Server):
        coded, table = coded // method.shards, ENTRY_NBYTES * workers
        ratios = dict.fromkeys(kinds, coded / CODED_NBYTES) | {"moved": (coded + table) / (CODED_NBYTES + table)}
        own = 4 * elements / method.shards
        ratios |= dict.fromkeys(("weights", "hand"), (own * parameters / elements + table) / (own + table))
    return Sizes(parameters, elements, (elements,), parameters / elements, ratios, kinds, coder=coder)
