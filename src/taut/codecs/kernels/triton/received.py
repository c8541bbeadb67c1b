"""Adding what others sent to w and b: the words of several payloads, or a bitmap, in one copy and one launch.

The words of all payloads go through one piece of pinned memory, behind a table that says where each payload's words end,
from which element they count, and what one of them is worth. The host does not wait: two pieces take turns, and one is
written again only when its copy is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from taut.codecs.kernels.triton.buffers import scratch
from taut.codecs.kernels.triton.launch import EXACT
from taut.codecs.kernels.triton.scan import kernel
from taut.codecs.wire.payload import U32

BLOCK, WARPS = 1024, 4
ROW = 3  # int64 numbers of the table: one after the last word, the first element, the bits of the quantum

U8 = npt.NDArray[np.uint8]
Words = tuple[int, U32, float]  # the element from which they count, the words, the quantum


@kernel("n", "payloads")
def _add_words(w, b, table, words, n, payloads, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add ±quantum at each word's element, at every repeat."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    which = tl.zeros((BLOCK,), tl.int32)
    for payload in range(payloads - 1):
        which += (at >= tl.load(table + payload)).to(tl.int32)
    base = tl.load(table + payloads + which)
    quantum = tl.load(table + 2 * payloads + which).to(tl.int32).to(tl.float32, bitcast=True)
    word = tl.load(words + at, mask=live, other=0).to(tl.uint32, bitcast=True)
    index = base + (word >> 1).to(tl.int64)
    change = tl.where((word & 1) != 0, -quantum, quantum)
    tl.atomic_add(b + index, change, mask=live, sem="relaxed")
    tl.atomic_add(w + index, change, mask=live, sem="relaxed")


@kernel("n")
def _add_bits(w, b, bits, n, quantum, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add the signs of a bitmap: four elements to a byte, 1 for +quantum and 2 for -quantum."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    code = (tl.load(bits + at // 4, mask=live, other=0).to(tl.int32) >> (2 * (at % 4)).to(tl.int32)) & 3
    change = ((code == 1).to(tl.float32) - (code == 2).to(tl.float32)) * quantum
    tl.store(b + at, tl.load(b + at, mask=live) + change, mask=live)
    tl.store(w + at, tl.load(w + at, mask=live) + change, mask=live)


class _Staging:
    """Two pieces of pinned memory that take turns, each with the end of its last copy to the device."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_gpu = device, device.type == "cuda"
        self._pieces: list[tuple[Tensor, Any]] = [(torch.empty(0, dtype=torch.uint8), None)] * 2

    def copied(self, nbytes: int, write: Callable[[U8], None]) -> Tensor:
        """Return on the device what ``write`` writes to that many bytes. The copy is under way."""
        pinned, over = self._pieces.pop(0)
        if over is not None:
            over.synchronize()
        if len(pinned) < nbytes:
            pinned = torch.empty(nbytes * 5 // 4, dtype=torch.uint8, pin_memory=self.on_gpu)
        write(pinned[:nbytes].numpy())
        there = pinned[:nbytes].to(self.device, non_blocking=True, copy=True)
        self._pieces.append((pinned, torch.cuda.current_stream(self.device).record_event() if self.on_gpu else None))
        return there


@cache
def staging(device: torch.device) -> _Staging:
    return _Staging(device)


@torch.no_grad()
def add_all_words(w: Tensor, b: Tensor, given: Sequence[Words]) -> None:
    """Add the words of all payloads to w and b, ±quantum at every repeat."""
    given = [one for one in given if len(one[1])]
    if not given:
        return
    ends, heading = np.cumsum([len(words) for _, words, _ in given]), 8 * ROW * len(given)

    def write(pinned: U8) -> None:
        quanta = np.array([quantum for _, _, quantum in given], np.float32)
        pinned[:heading].view(np.int64)[:] = np.concatenate([ends, [base for base, _, _ in given], quanta.view(np.int32)])
        np.concatenate([words for _, words, _ in given], out=pinned[heading:].view(np.uint32))

    n = int(ends[-1])
    with scratch(w.device).current():
        there = staging(w.device).copied(heading + 4 * n, write)
        _add_words[(triton.cdiv(n, BLOCK),)](
            w, b, there[:heading].view(torch.int64), there[heading:].view(torch.int32), n, len(given),
            BLOCK=BLOCK, num_warps=WARPS, **EXACT,
        )  # fmt: skip


@torch.no_grad()
def add_bits(w: Tensor, b: Tensor, base: int, length: int, bits: npt.NDArray[np.uint8], quantum: float) -> None:
    """Add a bitmap of ``length`` elements, from element ``base`` on."""
    if not length:
        return
    with scratch(w.device).current():
        there = staging(w.device).copied(len(bits), lambda pinned: np.copyto(pinned, bits))
        _add_bits[(triton.cdiv(length, BLOCK),)](
            w[base:], b[base:], there, length, float(np.float32(quantum)), BLOCK=BLOCK, num_warps=WARPS, **EXACT
        )
