"""Workers of a ``MethodWorld`` that write their updates down with a real codec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from taut.codecs import Codec, Grid, merge, parse, snap, validate
from taut.codecs.vector_codec import VectorCodec
from taut.codecs.wire.residual import read_residual, residual_parts
from taut.strategies.delivery.channels import ChannelsState
from taut.testing.worlds.method_actor import Actor, Vector


class CodecActor(Actor):
    """``x`` is what the local step moves (w); ``shared`` is b, on which all agree after a drain. On a grid."""

    def __init__(self, rank: int, x: Vector, channels: ChannelsState, codec: Codec, workers: int, grid: Grid) -> None:
        super().__init__(rank, x, channels)
        self.codec = codec
        self.codec_state: Any = self.codec.start(self.x, workers, grid)

    def emit(self) -> bytes | None:
        return self.codec.emit(self.codec_state, 0, len(self.x))

    def absorb(self, payload: bytes) -> None:
        self.codec.absorb(self.codec_state, payload)

    def check(self, payload: bytes) -> None:
        validate(payload, len(self.x))

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        return merge(payloads, len(self.x))

    def flush(self) -> list[bytes]:
        return self.codec.flush(self.codec_state)

    def retune(self, workers: int, staleness: float) -> None:
        self.codec.retune(self.codec_state, workers, staleness)

    @property
    def shared(self) -> Vector:
        return np.asarray(self.codec.shared(self.codec_state))

    def shift(self, change: Vector) -> None:
        self.codec_state.kernels.add_values(self.codec_state.w, self.codec_state.b, 0, change)

    def adopt(self, shared: Vector) -> None:
        self.codec.adopt(self.codec_state, shared)

    def snapshot(self) -> Vector:
        return self.shared.copy()

    def residual_parts(self) -> Iterator[bytes]:
        return residual_parts(self.codec, self.codec_state)

    def inherit(self, part: bytes) -> None:
        self.codec.inherit(self.codec_state, *read_residual(part, len(self.x)))


class CoderActor(Actor):
    """For methods that exchange vectors, compressed: ``coder`` is the codec."""

    coder: VectorCodec

    def __init__(self, rank: int, x: Vector, channels: ChannelsState, codec: Codec, workers: int) -> None:
        super().__init__(rank, x, channels)
        self.coder = VectorCodec(codec, len(x), seed=rank, workers=workers)

    def residual_parts(self) -> Iterator[bytes]:
        return self.coder.residual_parts()

    def inherit(self, part: bytes) -> None:
        self.coder.inherit(part)


def with_coder(codec: str, workers: int) -> Callable[[int, Vector, ChannelsState], CoderActor]:
    """Return a maker of such actors, for ``MethodWorld(..., actor=with_coder("topk:density=0.1", 4))``."""
    return lambda rank, x, channels: CoderActor(rank, x, channels, parse(codec), workers)


def with_codec(codec: str, workers: int) -> Callable[[int, Vector, ChannelsState], CodecActor]:
    """Return a maker of such actors, for ``MethodWorld(..., actor=with_codec("tether", 4))``. The first one's grid is the
    run's."""
    grids: list[Grid] = []

    def make(rank: int, x: Vector, channels: ChannelsState) -> CodecActor:
        fitting = snap(x, [len(x)], ["x"]) if len(grids) == 0 or channels.rank < workers else grids[0]
        grids.append(fitting)
        return CodecActor(rank, x, channels, parse(codec), workers, grids[0])

    return make
