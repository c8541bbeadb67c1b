"""DGC, deep gradient compression: top-k of a momentum that is kept beside the residual.

    u = momentum * u + g;    r += u;    send the largest of |r|;    u = 0, r = 0 where sent

g is the change that this worker made, divided by the number of workers. Four parts:

- momentum correction: a change that waits in the residual gains the momentum that it would have gained at once;
- factor masking: an element that is sent also loses its momentum, which would only carry it along a stale direction;
- local clipping: |g| <= clip / sqrt(workers), before it is accumulated. The norm is that of the scanned elements: of the
    fragment, where a large model is scanned in fragments;
- warm-up: the density falls geometrically from 25% to ``density`` over the first ``warmup`` updates (the paper's 25,
    6.25, 1.56, 0.4 and 0.1% in its first epochs).

The codec has the momentum, so that the optimizer should have none: SGD(momentum=0).

Lin et al. 2018, "Deep gradient compression: reducing the communication bandwidth for distributed training".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.algorithms.topk import sparse_piece
from taut.codecs.compressor import CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.arrays import empty
from taut.codecs.math.ordered_sums import square_sum
from taut.codecs.math.topk_select import SELECTION_KERNELS, largest
from taut.codecs.params import check_density
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse
from taut.specs import check_whole

FIRST_DENSITY = 0.25


@dataclass(frozen=True)
class DGC(Compressor):
    """``density``: the share of the elements that is sent, at least one of them. ``momentum``: 0 for none. ``clip``: the
    norm at which g is clipped, times sqrt(workers); 0: no clipping. ``warmup``: updates until the density is reached; 0:
    the density holds from the start.

    >>> codec = DGC(0.001, warmup=4)
    >>> [round(codec.density_at(update), 4) for update in range(6)]
    [0.25, 0.0629, 0.0158, 0.004, 0.001, 0.001]
    """

    name: ClassVar[str] = "dgc"
    not_for_differences: ClassVar[str] = "it adds momentum to what it is given, and would send more than the difference"
    kernels = ("feedback._change", "feedback._infinite", *SELECTION_KERNELS, "selection._gather_momentum")
    kind: ClassVar[Kind] = Kind.SPARSE

    density: float = 0.001
    momentum: float = 0.9
    clip: float = 0.0
    warmup: int = 256

    def __post_init__(self) -> None:
        check_density(self)
        check_whole(self, "warmup", 0, "try warmup=0")
        if not 0.0 <= self.momentum < 1.0:
            raise Misuse(f"dgc: momentum={self.momentum:g}", "a number from 0 to below 1", "try momentum=0.9")
        if not (self.clip >= 0.0 and math.isfinite(self.clip)):
            raise Misuse(f"dgc: clip={self.clip:g}", "a positive norm, or 0 for no clipping", "try clip=1")

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the largest elements, with momentum, clipping and a warm-up",
            bits=64.0 * self.density,
            error=1.0 - self.density,
            bound="|Q(v) - v|^2 <= (1 - density) |v|^2",
            paper="Lin et al. 2018",
            cost=CodecCost(2.23e-9, 10.2e-9, 0.064, 79.3e-6),
        )

    def density_at(self, update: float) -> float:
        """Return the share of the elements that is sent in an update; the first update is 0."""
        if update >= self.warmup or self.density >= FIRST_DENSITY:
            return self.density
        fall = (self.density / FIRST_DENSITY) ** (update / self.warmup)
        return max(self.density, float(FIRST_DENSITY * fall))

    def grow(self, r: Vector, change: Vector, lo: int, memory: CompressorState) -> None:
        share = self._clipping(change, memory.workers)
        if "u" not in memory.kept:
            memory.kept["u"] = empty(memory.size, r)
            memory.kept["u"][:] = 0.0
        u = memory.kept["u"][lo : lo + len(r)]
        if isinstance(r, np.ndarray):
            cpu.selection.gather_momentum(r, u, change, self.momentum, share)
            return
        import torch

        g = change * torch.tensor(share, dtype=torch.float32, device=r.device)
        u *= torch.tensor(self.momentum, dtype=torch.float32, device=r.device)
        u += g
        r += u

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        update = memory.turns * len(v) / memory.size  # turns count scans, of which an update in fragments has several
        indices, values = largest(v, max(1, math.ceil(self.density_at(update) * len(v))))
        return sparse_piece(indices, values) if len(indices) else None

    def sent(self, piece: CompressedPiece, lo: int, memory: CompressorState) -> None:
        assert piece.indices is not None
        if "u" in memory.kept:
            memory.kept["u"][piece.indices + lo] = 0.0

    def _clipping(self, change: Vector, workers: int) -> float:
        """Return the factor that clips ``change``."""
        if not self.clip:
            return 1.0
        norm, limit = math.sqrt(square_sum(change)), self.clip / math.sqrt(workers)
        return limit / norm if norm > limit else 1.0
