"""topk in Triton: exactly the k largest of |v|, v = r + (w - b) share, of equal ones the first, with one wait.

The host decides nothing on the way. A histogram of a sample says which magnitude somewhat more than k elements will have;
``find`` collects those in rising order, while r and w are brought up to date; they are sorted by magnitude, and the first
k are moved: b += v, r = 0, w = b. If the sample was wrong (too few, or more than there is room for), nothing is moved,
and the host, which learns of it from the message, uses ``topk_select.py`` on r. The result is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from taut.codecs.kernels.torch_ops import take
from taut.codecs.kernels.triton import scan
from taut.codecs.kernels.triton.buffers import Scratch, scratch
from taut.codecs.kernels.triton.launch import EXACT, HEADING_NBYTES, TILES, Scan, launch_words
from taut.codecs.kernels.triton.scan import kernel
from taut.codecs.math.topk_select import largest

SAMPLE = 1 << 20  # elements of the histogram, about
BINS = 1 << 15  # by the upper 16 bits of a magnitude: 128 bins to a power of two
SAMPLES = 1024  # to a program of the histogram
REPORT_NBYTES = 24  # three int64: elements sent, the most bytes of a tile, whether it went well
SEND_BLOCK, SEND_PROGRAMS = 256, 1024
MAGNITUDE, INFINITE = 0x7FFFFFFF, 0x7F800000  # bits of a float32

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class SearchPlan:
    """Every ``step``-th element is sampled; ``rank`` of those reach the edge; there is ``room`` for candidates, and
    ``slots`` for those of a tile."""

    step: int
    rank: int
    room: int
    slots: int


def plan(n: int, k: int) -> SearchPlan:
    """Plan the search for the ``k`` largest of ``n``: a fifth more than k, and four standard deviations of the sample's
    error, so that there are hardly ever too few. Steps are odd, because rows of matrices seldom are.

    >>> plan(1 << 28, 268436)
    SearchPlan(step=257, rank=1384, room=479386, slots=41)
    >>> plan(4096, 40).rank  # all are sampled
    40
    """
    step = max(1, n // SAMPLE)
    if step == 1:
        rank = k
    else:
        step |= 1
        expected = k / step
        rank = math.ceil(1.2 * expected + 4.0 * math.sqrt(expected)) + 1
    wanted = rank * step
    in_tile = wanted / n * TILES["residual"].elements
    slots = math.ceil(in_tile + 8.0 * math.sqrt(in_tile)) + 16
    return SearchPlan(step, rank, max(k, min(n, wanted + wanted // 3 + 16 * step + 1024)), slots)


@kernel("n", "step")
def _histogram(w, b, r, n, step, share, counts, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Count |r + (w - b) share| of every step-th element by its top 16 bits."""
    index = (tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)) * step
    live = index < n
    change = tl.load(w + index, mask=live, other=0.0) - tl.load(b + index, mask=live, other=0.0)
    v = tl.load(r + index, mask=live, other=0.0) + change * share
    bits = v.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_add(counts + (bits >> 16), 1, mask=live, sem="relaxed")


def _edge(w: Tensor, b: Tensor, r: Tensor, share: float, to: SearchPlan, kept: Scratch) -> Tensor:
    """Return the least magnitude of a candidate, as bits, on the device: the lower end of its bin, but never zero."""
    counts = kept.take("bins", BINS, torch.int32).zero_()
    programs = triton.cdiv(triton.cdiv(len(w), to.step), SAMPLES)
    _histogram[(programs,)](w, b, r, len(w), to.step, float(share), counts, BLOCK=SAMPLES, **EXACT)
    above = (counts.flip(0).cumsum(0) < to.rank).sum()  # bins, from the top, that are not enough
    return ((BINS - 1 - above).clamp_(min=0) << 16).clamp_(min=1).to(torch.int32).view(1)


def _choose(found: Tensor, r: Tensor, edge: Tensor, k: int, room: int, kept: Scratch) -> Tensor:
    """Choose the first k of the candidates by magnitude, in rising order; return a report and their words, with room for
    the values."""
    heading, words = found[:HEADING_NBYTES].view(torch.int64), found[HEADING_NBYTES:].view(torch.int32)
    count, most = heading[0], heading[1]
    fits = (count <= room) & (most <= kept.cap)
    void = (torch.arange(room, device=r.device) >= count) | ~fits  # words of earlier updates
    indices = ((words >> 1) & MAGNITUDE).masked_fill_(void, 0).long()  # torch.where would copy its zero to the device
    magnitudes = (r[indices].view(torch.int32) & MAGNITUDE).masked_fill_(void, 0)
    ranked = magnitudes.sort(descending=True, stable=True)  # of equal ones the first stays the first
    first = ranked.indices[:k].sort().values  # void entries come last here too
    good = fits & ((count >= k) | (edge[0] == 1)) & (ranked.values[0] < INFINITE)
    sent = count.clamp(max=k) * good
    message = kept.take("chosen", REPORT_NBYTES + 8 * k, torch.uint8)
    message[:REPORT_NBYTES].view(torch.int64).copy_(torch.stack((sent, most, good.long())))
    message[REPORT_NBYTES : REPORT_NBYTES + 4 * k].view(torch.int32).copy_(words[first])
    return message


@torch.no_grad()
def launch_topk(w: Tensor, b: Tensor, r: Tensor, share: float, k: int, kept: Scratch) -> Tensor:
    """Return the device's buffer of the report, the indices and the values, without waiting for the device."""
    to = plan(len(w), k)
    kept.widen(to.slots)
    edge = _edge(w, b, r, share, to, kept)
    job = Scan(int(scan.TOPK.value), w, b, r, 0.0, float(share), 0.0, 0.0, edge)
    message = _choose(launch_words(job, kept, to.room), r, edge, k, to.room, kept)
    heading, words = message[:8].view(torch.int64), message[REPORT_NBYTES:].view(torch.int32)
    scan.send[(min(SEND_PROGRAMS, triton.cdiv(k, SEND_BLOCK)),)](w, b, r, words, heading, k, BLOCK=SEND_BLOCK, **EXACT)
    return message


@torch.no_grad()
def topk(w: Tensor, b: Tensor, r: Tensor, share: float, k: int) -> tuple[U32, F32]:
    """Return the rising indices and values of the ``k`` largest |v|, without zeros, already moved; valid until the next
    scan on this device. If v is not finite nothing is moved, and the values are not finite."""
    kept = scratch(w.device)
    with kept.current():
        found = kept.fetch(launch_topk(w, b, r, share, k, kept))
        sent, most, good = (int(number) for number in found[:REPORT_NBYTES].view(np.int64))
        kept.widen(most)
        if not good:
            return _plain(w, b, r, k)
    words = found[REPORT_NBYTES:].view(np.uint32)
    return words[:sent], words[k : k + sent].view(np.float32)


def _plain(w: Tensor, b: Tensor, r: Tensor, k: int) -> tuple[U32, F32]:
    """Return the same without a sample, where r is v and w is b already."""
    indices, values = largest(r, k)
    here: F32 = values.cpu().numpy()
    if np.isfinite(here).all():
        take(w, b, r, values, indices)
    return indices.cpu().numpy().astype(np.uint32), here
