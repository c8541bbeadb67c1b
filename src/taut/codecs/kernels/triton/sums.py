"""Adding the payloads of several workers in one launch: whole numbers with a scale per block, and sparse values.

The bits are those of adding one payload after the other. Of sparse payloads, the first one that has an element adds up
all of that element's values, which a binary search finds in the others. So one thread writes an element, and no operation
is atomic: those would add in any order, and workers would differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from taut.codecs.kernels.torch_ops import Entries, Levels
from taut.codecs.kernels.triton.buffers import scratch
from taut.codecs.kernels.triton.launch import EXACT
from taut.codecs.kernels.triton.received import U8, staging
from taut.codecs.kernels.triton.scan import jit, kernel

LEVELS_TILE, LEVELS_WARPS = 2048, 4  # elements to a program, or one block if that is longer
ENTRIES_BLOCK, ENTRIES_WARPS = 256, 4
ROW = 2  # int64 numbers of a table: of levels, two addresses; of entries, one after the last entry and the first element


@kernel("n", "payloads", "own")
def _sum_levels(  # type: ignore[no-untyped-def]
    out, decoded, table, n, payloads, own, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Set ``out`` to the sum of number x scale over all payloads, whose scales and numbers the table gives the addresses
    of; payload ``own`` is ``decoded``."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    at = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    live = at < n
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for payload in range(payloads):
        if payload == own:
            total += tl.load(decoded + at, mask=live, other=0.0)
        else:
            scales = tl.load(table + 2 * payload).to(tl.pointer_type(tl.float32))
            numbers = tl.load(table + 2 * payload + 1).to(tl.pointer_type(tl.int8))
            scale = tl.load(scales + row, mask=row * BLOCK < n, other=0.0)
            total += tl.load(numbers + at, mask=live, other=0).to(tl.float32) * scale[:, None]
    tl.store(out + at, total, mask=live)


@jit
def _index(indices, at, mask):  # type: ignore[no-untyped-def]
    """Load indices, which are uint32."""
    return tl.load(indices + at, mask=mask, other=0).to(tl.uint32, bitcast=True).to(tl.int64)


@kernel("n", "payloads", "halvings")
def _add_entries(  # type: ignore[no-untyped-def]
    x, y, table, indices, values, n, payloads, halvings, TWO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Add the values of all payloads to x, and to y if there are ``TWO`` targets. ``halvings``: of the longest payload,
    until nothing is left to search."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    which = tl.zeros((BLOCK,), tl.int32)
    for payload in range(payloads - 1):
        which += (at >= tl.load(table + payload)).to(tl.int32)
    element = tl.load(table + payloads + which) + _index(indices, at, live)
    first = live
    sum_x = tl.load(x + element, mask=live, other=0.0)
    sum_y = sum_x
    if TWO:
        sum_y = tl.load(y + element, mask=live, other=0.0)
    start = tl.zeros((), tl.int64)
    for payload in range(payloads):
        stop = tl.load(table + payload)
        wanted = element - tl.load(table + payloads + payload)
        low, high = tl.zeros((BLOCK,), tl.int64) + start, tl.zeros((BLOCK,), tl.int64) + stop
        for _ in range(halvings):
            searching = low < high
            middle = (low + high) // 2
            below = _index(indices, middle, searching) < wanted
            low = tl.where(searching & below, middle + 1, low)
            high = tl.where(searching & (below == 0), middle, high)
        inside = live & (low < stop)
        found = inside & (_index(indices, low, inside) == wanted)
        first = first & ((found == 0) | (which <= payload))  # an earlier payload adds up this element
        value = tl.load(values + low, mask=found, other=0.0)
        sum_x = tl.where(found, sum_x + value, sum_x)
        sum_y = tl.where(found, sum_y + value, sum_y)
        start = stop
    tl.store(x + element, sum_x, mask=first)
    if TWO:
        tl.store(y + element, sum_y, mask=first)


@torch.no_grad()
def sum_levels(out: Tensor, given: Sequence[Levels | Tensor], block: int) -> None:
    """Set ``out`` to the sum of all, in one launch; at most one of them may be decoded already."""
    own = next((number for number, one in enumerate(given) if isinstance(one, Tensor)), -1)
    pairs = [(0, 0) if isinstance(one, Tensor) else (one[0].data_ptr(), one[1].data_ptr()) for one in given]
    rows, n = max(1, LEVELS_TILE // block), len(out)

    def write(pinned: U8) -> None:
        pinned.view(np.int64)[:] = np.array(pairs, np.int64).reshape(-1)

    with scratch(out.device).current():
        table = staging(out.device).copied(8 * ROW * len(pairs), write).view(torch.int64)
        _sum_levels[(triton.cdiv(n, rows * block),)](
            out, given[own] if own >= 0 else out, table, n, len(pairs), own,
            ROWS=rows, BLOCK=block, num_warps=LEVELS_WARPS, **EXACT,
        )  # fmt: skip


@torch.no_grad()
def add_all_entries(targets: Sequence[Tensor], given: Sequence[Entries]) -> None:
    """Add the values of all payloads to each of the targets, one or two, in one launch. The indices of a payload rise."""
    given = [one for one in given if len(one[1])]
    if not given:
        return
    counts, heading = [len(indices) for _, indices, _ in given], 8 * ROW * len(given)
    n = sum(counts)

    def write(pinned: U8) -> None:
        pinned[:heading].view(np.int64)[:] = [*np.cumsum(counts), *(base for base, _, _ in given)]
        np.concatenate([indices for _, indices, _ in given], out=pinned[heading : heading + 4 * n].view(np.uint32))
        np.concatenate([values for _, _, values in given], out=pinned[heading + 4 * n :].view(np.float32))

    x, y = targets[0], targets[-1]
    with scratch(x.device).current():
        there = staging(x.device).copied(heading + 8 * n, write)
        numbers = there[heading:].view(torch.int32)
        _add_entries[(triton.cdiv(n, ENTRIES_BLOCK),)](
            x, y, there[:heading].view(torch.int64), numbers[:n], numbers[n:].view(torch.float32),
            n, len(given), max(counts).bit_length(),
            TWO=len(targets) > 1, BLOCK=ENTRIES_BLOCK, num_warps=ENTRIES_WARPS, **EXACT,
        )  # fmt: skip
