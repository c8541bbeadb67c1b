"""The kernels in torch operations, for vectors on a GPU (or any torch device). Same operations, same order, same bits as
``kernels.cpu.kernels`` and ``kernels.cpu.feedback``; a test holds that on CPU tensors.

They go through the vector in pieces, so that temporaries stay small whatever the model. Signs come to the host as words.
Of error feedback, ``take`` or ``rest`` sets w = b, which the numba kernels do in ``grow`` and ``take_change``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from taut.codecs.math.density_control import SAMPLE
from taut.codecs.wire.payload import U32, bit_values
from taut.codecs.wire.sign_list import Signs, collect

MERGES = False  # payloads are added one after the other
FUSES = False  # no compressor has a pass of its own over w, b and r
Found = tuple[Tensor, Tensor]  # indices, and the signs there as ±1
PIECE = 1 << 22  # elements in flight: 16 MB per temporary
Entries = tuple[int, npt.NDArray[Any], npt.NDArray[np.float32]]  # the element from which they count, indices, values
Levels = tuple[Tensor, Tensor]  # a scale for each block, and a whole number for each element


def like(w: Tensor, number: int, filled: bool) -> Tensor:
    return w.detach().clone() if filled else torch.zeros_like(w)


def _scalar(w: Tensor, number: float) -> Tensor:
    """Return a float32 on the device: some operations would apply a Python number in double precision."""
    return torch.tensor(number, dtype=torch.float32, device=w.device)


def _signs(x: Tensor, limit: Tensor) -> Found:
    """Return what is found where |x| >= limit."""
    indices = (x.abs() >= limit).nonzero().squeeze(1)
    return indices, torch.sign(x[indices])


def _scan(move: Callable[[int, int, int], Found | None], lo: int, hi: int, out: U32) -> Signs:
    """Let ``move(start, stop, room)`` send the signs of one piece after the other; it returns None, having moved nothing,
    where they are more than ``room``."""

    def scan(start: int) -> tuple[int, int]:
        found = 0
        while start < hi:
            # An empty buffer must be able to take all of a piece, so that every call makes progress.
            stop = min(start + (PIECE if found else min(PIECE, out.size // 64 * 64)), hi)
            sent = move(start, stop, out.size - found)
            if sent is None:
                break
            words = (sent[0] + (start - lo)) * 2 + (sent[1] < 0)
            out[found : found + len(words)] = words.cpu().numpy().astype(np.uint32)
            found, start = found + len(words), stop
        return found, start

    return collect(scan, lo, hi, out)


@torch.no_grad()
def tether(w: Tensor, b: Tensor, lo: int, hi: int, limit: float, up: float, out: U32) -> Signs:
    top, rise = _scalar(w, limit), _scalar(w, up)
    give = top - rise

    def move(start: int, stop: int, room: int) -> Found | None:
        ww, bb = w[start:stop], b[start:stop]
        indices, signs = _signs(ww - bb, top)
        if len(indices) > room:
            return None
        bb[indices] += signs * rise
        ww[indices] -= signs * give
        return indices, signs

    return _scan(move, lo, hi, out)


@torch.no_grad()
def threshold(w: Tensor, b: Tensor, r: Tensor, lo: int, hi: int, tau: float, share: float, out: U32) -> Signs:
    top, part = _scalar(w, tau), _scalar(w, share)

    def move(start: int, stop: int, room: int) -> Found | None:
        ww, bb, rr = w[start:stop], b[start:stop], r[start:stop]
        grown = rr + (ww - bb) * part  # two operations: a fused one would round once less
        indices, signs = _signs(grown, top)
        if len(indices) > room:
            return None
        change = signs * top
        rr.copy_(grown)
        rr[indices] -= change
        bb[indices] += change
        ww.copy_(bb)
        return indices, signs

    return _scan(move, lo, hi, out)


@torch.no_grad()
def mean(w: Tensor, b: Tensor, lo: int, hi: int, share: float) -> npt.NDArray[np.float32]:
    change = (w[lo:hi] - b[lo:hi]) * _scalar(w, share)
    b[lo:hi] += change
    w[lo:hi] = b[lo:hi]
    return change.cpu().numpy()


@torch.no_grad()
def sample(x: Tensor, y: Tensor | None, lo: int, hi: int) -> npt.NDArray[np.float32]:
    step = (hi - lo - 1) // SAMPLE + 1
    found = x[lo:hi:step] if y is None else x[lo:hi:step] - y[lo:hi:step]
    return found.abs().cpu().numpy()


def _tensor(w: Tensor, array: npt.NDArray[Any]) -> Tensor:
    """Return a copy on the device; arrays from a message are read-only, which torch would warn of."""
    return torch.from_numpy(array.copy()).to(w.device)


@torch.no_grad()
def add_words(w: Tensor, b: Tensor, base: int, words: U32, quantum: float) -> None:
    indices = _tensor(w, (words >> 1).astype(np.int64)) + base
    change = _tensor(w, np.where(words & 1, -np.float32(quantum), np.float32(quantum)))
    b.index_add_(0, indices, change)  # adds at every repeat, which b[indices] += would not
    w.index_add_(0, indices, change)


@torch.no_grad()
def add_bits(w: Tensor, b: Tensor, base: int, length: int, bits: npt.NDArray[np.uint8], quantum: float) -> None:
    for start in range(0, length, PIECE):
        stop = min(start + PIECE, length)
        signs = bit_values()[bits[start // 4 : (stop + 3) // 4]].reshape(-1)[: stop - start]
        add_values(w, b, base + start, signs * np.float32(quantum))


@torch.no_grad()
def add_values(w: Tensor, b: Tensor, base: int, values: npt.NDArray[np.float32]) -> None:
    change = _tensor(w, values)
    b[base : base + len(change)] += change
    w[base : base + len(change)] += change


@torch.no_grad()
def add_at(w: Tensor, b: Tensor, base: int, given: npt.NDArray[Any], values: npt.NDArray[np.float32]) -> None:
    indices, change = _tensor(w, given.astype(np.int64)) + base, _tensor(w, values)
    b[indices] += change
    w[indices] += change


@torch.no_grad()
def add_all_entries(targets: Sequence[Tensor], given: Sequence[Entries]) -> None:
    """Add the values of all payloads to each of the targets, in this order; no index comes twice in a payload."""
    for base, indices, values in given:
        for target in targets:
            where, change = _tensor(target, indices.astype(np.int64)) + base, _tensor(target, values)
            target.index_add_(0, where, change)


@torch.no_grad()
def sum_levels(out: Tensor, given: Sequence[Levels | Tensor], block: int) -> None:
    """Set ``out`` to the sum of all, in this order: of number x scale of its ``block``, or of what is decoded already."""
    out.zero_()
    for one in given:
        if isinstance(one, Tensor):
            out += one
        else:
            for start, values in level_pieces(*one, block):
                out[start : start + len(values)] += values


def level_pieces(scales: Tensor, numbers: Tensor, block: int) -> Iterator[tuple[int, Tensor]]:
    """Yield number x scale piece by piece, with the first element of each piece."""
    for start in range(0, len(numbers), PIECE):
        some = numbers[start : start + PIECE]
        whole = len(some) // block * block
        of_blocks = scales[start // block : (start + whole) // block]
        if whole:
            yield start, (some[:whole].view(-1, block) * of_blocks[:, None]).view(-1)
        if whole < len(some):
            yield start + whole, some[whole:] * scales[-1]


@torch.no_grad()
def load(target: Tensor, source: Any) -> None:
    target.copy_(_tensor(target, source) if isinstance(source, np.ndarray) else source)


def host(vector: Tensor) -> npt.NDArray[np.float32]:
    """Return ``vector`` in host memory."""
    found: npt.NDArray[np.float32] = vector.detach().cpu().numpy()
    return found


# ------------------------------------------------------------------------------------------ error feedback


@torch.no_grad()
def finite(r: Tensor) -> bool:
    """Return whether all of r is finite; True on a GPU, where the host would have to wait for the answer, and the body is
    checked instead."""
    return r.is_cuda or bool(torch.isfinite(r).all())


@torch.no_grad()
def take_change(w: Tensor, b: Tensor, share: float) -> Tensor:
    return (w - b) * _scalar(w, share)


@torch.no_grad()
def grow(r: Tensor, w: Tensor, b: Tensor, share: float) -> bool:
    r += (w - b) * _scalar(w, share)
    return finite(r)


@torch.no_grad()
def take(w: Tensor, b: Tensor, r: Tensor, q: Tensor, indices: Tensor | None) -> None:
    if indices is None:
        r -= q
        b += q
    else:
        r[indices] -= q
        b[indices] += q
    w.copy_(b)


@torch.no_grad()
def rest(w: Tensor, b: Tensor) -> None:
    w.copy_(b)
