"""The kernels in Triton, for vectors on a GPU: drop-ins for ``kernels.torch_ops``, with the same bits; and the whole
update of ``levels8`` (int8), ``onebit`` and ``topk``, error feedback included.

An update makes one pass over the vectors and waits for the device once; only the payload crosses to the host, through
pinned memory. Operations that are not hot come from ``kernels.torch_ops``. Without a GPU the same kernels run in Triton's
interpreter, which is how they are tested; ``TRITON_INTERPRET=1`` must be set before this module is imported.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from taut.codecs.kernels.torch_ops import *  # noqa: F403  # all but the two scans
from taut.codecs.kernels.triton import scan
from taut.codecs.kernels.triton.buffers import Scratch, scratch
from taut.codecs.kernels.triton.launch import Scan, fetch_bits, fetch_words, launch_bits, launch_words, room_for
from taut.codecs.kernels.triton.received import add_all_words, add_bits  # noqa: F401  # a kernel of this module
from taut.codecs.kernels.triton.sums import add_all_entries, sum_levels  # noqa: F401  # kernels of this module
from taut.codecs.wire.payload import U32, bit_values
from taut.codecs.wire.sign_list import WORDS_PER_BITMAP, Signs


@torch.no_grad()  # type: ignore[no-redef]
def add_words(w: Tensor, b: Tensor, base: int, words: U32, quantum: float) -> None:
    """Add ±quantum at each word's element, at every repeat."""
    add_all_words(w, b, [(base, words, quantum)])


MERGES = True  # ``add_all_words`` and ``add_all_entries`` add several payloads in one launch
FUSES = True  # error feedback asks compressors for ``fused`` where a state has these kernels


@torch.no_grad()  # type: ignore[no-redef]
def tether(w: Tensor, b: Tensor, lo: int, hi: int, limit: float, up: float, out: U32) -> Signs:
    """Send the sign s where |w - b| >= limit: b += s up, w -= s (limit - up)."""
    return _signs(tether_scan(w, b, lo, hi, limit, up), out)


@torch.no_grad()  # type: ignore[no-redef]
def threshold(w: Tensor, b: Tensor, r: Tensor, lo: int, hi: int, tau: float, share: float, out: U32) -> Signs:
    """Compute r += (w - b) share; send the sign s where |r| >= tau: b += s tau, r -= s tau; then w = b."""
    return _signs(threshold_scan(w, b, r, lo, hi, tau, share), out)


def tether_scan(w: Tensor, b: Tensor, lo: int, hi: int, limit: float, up: float) -> Scan:
    give = np.float32(limit) - np.float32(up)
    return Scan(int(scan.TETHER.value), w[lo:hi], b[lo:hi], None, float(limit), 0.0, float(up), float(give))


def threshold_scan(w: Tensor, b: Tensor, r: Tensor, lo: int, hi: int, tau: float, share: float) -> Scan:
    return Scan(int(scan.THRESHOLD.value), w[lo:hi], b[lo:hi], r[lo:hi], float(tau), float(share), float(tau), 0.0)


def _signs(job: Scan, out: U32) -> Signs:
    """Return words in ``out``, or a bitmap beyond one element in 16, as ``sign_list.collect`` decides."""
    if job.n == 0:
        return Signs(0, out[:0], None)
    kept, most = scratch(job.w.device), job.n // WORDS_PER_BITMAP
    with kept.current():
        if kept.dense:
            count, bits = fetch_bits(launch_bits(job, kept), kept, job.n)
            kept.dense = count > most
            return Signs(count, None, bits) if kept.dense else _sparse(count, bits, out)
        room, updated = room_for(kept, job.n, most), False
        while True:
            count, words = fetch_words(launch_words(job, kept, room, updated=updated), kept, room)
            if not kept.void:
                out[:count] = words
                return Signs(count, out[:count], None)
            if count > most:
                return _dense(job, kept)
            kept.room = room = min(most, max(room, count + count // 4))  # enough, the second time
            updated = True


def _dense(job: Scan, kept: Scratch) -> Signs:
    kept.dense = True
    count, bits = fetch_bits(launch_bits(job, kept, updated=True), kept, job.n)
    return Signs(count, None, bits)


def _sparse(count: int, bits: npt.NDArray[np.uint8], out: U32) -> Signs:
    """Return the words of a bitmap that turned out to be nearly empty: the one update between a dense period and a sparse
    one."""
    signs = bit_values()[bits].reshape(-1)
    indices = np.flatnonzero(signs)
    out[:count] = indices.astype(np.uint32) << np.uint32(1) | (signs[indices] < 0)
    return Signs(count, out[:count], None)
