"""A sparse update on the GPU, from the host's side: which kernels run, and what they return.

The usual update is ``find``, ``tally``, ``order``, one copy and one wait. The copy is as long as the last update, with a
margin; a second one follows if the first was too short. After a bitmap the next update begins as a bitmap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from taut.codecs.kernels.triton import scan
from taut.codecs.kernels.triton.buffers import Scratch
from taut.codecs.wire.sign_list import WORDS_PER_BITMAP

EXACT = {"enable_fp_fusion": False}  # a fused multiply-add would round once less than kernels.torch_ops
HEADING_NBYTES = 16  # two int64: how many, and the most bytes of a tile
GROUP, STEP = 64, 8  # tiles to a program of order, and bytes of each tile it takes in one go


@dataclass(frozen=True)
class Tile:
    """The split of a kernel: ``elements`` to a program (a power of two), ``warps`` of 32 threads with four elements or
    more to each; up to 32768 elements, as counts have 16 bits."""

    elements: int
    warps: int


TILES = {"tether": Tile(8192, 8), "residual": Tile(4096, 4)}  # bench/codec_gpu.py --tune looks for better ones


@dataclass(frozen=True)
class Scan:
    """One update over w and b (and r): elements at or over ``limit``. ``x``, ``y``: see ``kernels.triton.scan._move``.
    ``edge``: on the device, the bits of the limit on |r|, in place of ``limit``."""

    method: int
    w: Tensor
    b: Tensor
    r: Tensor | None
    limit: float
    share: float
    x: float
    y: float
    edge: Tensor | None = None

    @property
    def n(self) -> int:
        return len(self.w)

    @property
    def tile(self) -> Tile:
        return TILES["tether" if self.r is None else "residual"]

    @property
    def vectors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.w, self.b, self.w if self.r is None else self.r

    def source(self, updated: bool) -> int:
        """Return what ``find`` compares with the limit; ``updated``: an earlier attempt has brought r up to date."""
        if self.r is None:
            return int(scan.STRAY.value)
        return int((scan.UPDATED if updated else scan.RESIDUAL).value)


def _find(job: Scan, kept: Scratch, total: Tensor, bits: Tensor | None, updated: bool) -> None:
    tile, n = job.tile, job.n
    tiles = triton.cdiv(n, tile.elements)
    counts = kept.take("counts", tiles, torch.int32)
    slots = kept.take("slots", 4 if bits is not None else tiles * kept.cap, torch.int32)
    whole = n // tile.elements
    for full, first, programs in ((True, 0, whole), (False, whole, tiles - whole)):
        if programs:
            scan.find[(programs,)](
                *job.vectors, n, first, job.limit, counts if job.edge is None else job.edge, job.share,
                slots, kept.cap, counts, total, slots.view(torch.uint8) if bits is None else bits,
                SOURCE=job.source(updated), EDGE=job.edge is not None, FULL=full, BITS=bits is not None,
                BLOCK=tile.elements, num_warps=tile.warps, **EXACT,
            )  # fmt: skip


def launch_words(job: Scan, kept: Scratch, room: int, updated: bool = False) -> Tensor:
    """Find, order and (unless it is top-k) move up to ``room`` elements; return the device's buffer of a heading and the
    words, without waiting. If the heading counts more than ``room``, or more bytes of a tile than ``kept.cap``, the words
    are void and nothing was moved."""
    block = job.tile.elements
    tiles = triton.cdiv(job.n, block)
    groups = triton.cdiv(tiles, GROUP)
    totals = kept.take("totals", groups, torch.int64)
    fullest = kept.take("fullest", groups, torch.int32)
    message = kept.take("message", HEADING_NBYTES + 4 * room, torch.uint8)
    heading, words = message[:HEADING_NBYTES].view(torch.int64), message[HEADING_NBYTES:].view(torch.int32)
    words = words if room else kept.take("message", 4, torch.int32)  # nothing is written there, but it must be an address
    _find(job, kept, totals, None, updated)
    counts, slots = kept.take("counts", tiles, torch.int32), kept.take("slots", tiles * kept.cap, torch.int32)
    scan.tally[(groups,)](counts, tiles, totals, fullest, GROUP=GROUP)
    scan.order[(groups,)](
        *job.vectors, job.x, job.y,
        slots, kept.cap, counts, totals, fullest, groups, room, tiles, words, heading,
        METHOD=job.method, GROUPS=triton.next_power_of_2(groups), GROUP=GROUP, STEP=STEP, BLOCK=block, **EXACT,
    )  # fmt: skip
    return message


def launch_bits(job: Scan, kept: Scratch, updated: bool = False) -> Tensor:
    """Find and apply a bitmap; return the device's buffer of a heading and the bitmap, without waiting for the device."""
    block = job.tile.elements
    tiles = triton.cdiv(job.n, block)
    message = kept.take("message", HEADING_NBYTES + tiles * block // 4, torch.uint8)
    heading, bits = message[:8].view(torch.int64).zero_(), message[HEADING_NBYTES:]
    _find(job, kept, heading, bits, updated)
    scan.apply_bits[(triton.cdiv(job.n, 1024),)](
        *job.vectors, bits, job.n, job.x, job.y, METHOD=job.method, BLOCK=1024, **EXACT
    )
    return message


def fetch_words(message: Tensor, kept: Scratch, room: int) -> tuple[int, npt.NDArray[np.uint32]]:
    """Return the count and the words of a message; no words if it is void: ``kept.void`` says so, and tiles have slots
    enough from now on."""
    guess = min(room, kept.expected + kept.expected // 4 + 1024)
    found = kept.fetch(message[: HEADING_NBYTES + 4 * guess])
    count, most = (int(number) for number in found[:HEADING_NBYTES].view(np.int64))
    kept.void = count > room or most > kept.cap
    kept.widen(most)
    if kept.void:
        return count, found[:0].view(np.uint32)
    if guess < count:
        found = kept.fetch(message[: HEADING_NBYTES + 4 * count])
    kept.expected = count
    return count, found[HEADING_NBYTES:].view(np.uint32)[:count]


def fetch_bits(message: Tensor, kept: Scratch, n: int) -> tuple[int, npt.NDArray[np.uint8]]:
    """Return the count and a copy of the bitmap."""
    found = kept.fetch(message[: HEADING_NBYTES + (n + 3) // 4])
    return int(found[:8].view(np.int64)[0]), found[HEADING_NBYTES:].copy()


def room_for(kept: Scratch, n: int, most: int) -> int:
    """Return the number of entries to make room for: what was needed before, at least one element in 32, and ``most`` at
    the most."""
    return min(most, max(kept.room, n // (2 * WORDS_PER_BITMAP)))
