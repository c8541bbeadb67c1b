"""Triton kernels that find elements over a limit: one pass over memory, and the results in rising order.

``find`` streams the vectors. Every program takes a tile, describes four elements by one byte (2 bits each, as in a
bitmap: 0, 1 for +, 2 for -) and keeps the bytes that are not zero in slots of its own, ``cap`` to a tile: without an
atomic operation, which cost 10% of the whole. ``tally`` adds up the results of groups of tiles, and ``order`` turns the
bytes into words in rising order and moves the elements they name; these touch only what was found. If a tile had too few
slots, or there was too little room for the words, nothing is moved, and the host calls again: with more, or with ``BITS``
for the bytes of all elements, which is a bitmap. For top-k, ``order`` returns candidates only; ``send`` moves those that
were chosen.

Full tiles are read without a mask, because one whose end is not a multiple of 16 would break up wide loads; the rest of
the vector is a second launch of one program. Nearly all of an element's cost is in ``find``, so it does not scatter
elements itself: stores that hardly ever happen cost an instruction per element all the same (in sm_90 code for tiles of
4096 by 4 warps, tether had 70 instructions an element that way and has 21 now; threshold 58 and 24).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]

jit: Callable[..., Any] = triton.jit  # triton has no types

STRAY, RESIDUAL, UPDATED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # what is compared with the limit
TETHER, THRESHOLD, TOPK = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # how an element over the limit moves


def kernel(*changing: str) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for launching, once for all values of the arguments named."""
    made: Callable[[Callable[..., Any]], Any] = triton.jit(do_not_specialize=list(changing))
    return made


@jit
def load(vector, indices, left, FULL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a tile that is read once: zero beyond ``left`` elements."""
    return tl.load(vector + indices) if FULL else tl.load(vector + indices, mask=indices < left, other=0.0)


@jit
def store(vector, indices, values, left, FULL: tl.constexpr):  # type: ignore[no-untyped-def]
    if FULL:
        tl.store(vector + indices, values)
    else:
        tl.store(vector + indices, values, mask=indices < left)


@jit
def _hits(byte):  # type: ignore[no-untyped-def]
    """Count how many of the four elements of a byte are over the limit."""
    flags = (byte | (byte >> 1)) & 0x55
    pairs = (flags & 0x11) + ((flags >> 2) & 0x11)
    return (pairs + (pairs >> 4)) & 7


@jit
def _differences(w, b, r, indices, left, share, SOURCE: tl.constexpr, FULL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return what is compared with the limit. STRAY: w - b. RESIDUAL: r + (w - b) share, which becomes r, and w becomes
    b. UPDATED: r, where that was done before."""
    if SOURCE == UPDATED:
        x = load(r, indices, left, FULL)
    elif SOURCE == STRAY:
        x = load(w, indices, left, FULL) - load(b, indices, left, FULL)
    else:
        shared = load(b, indices, left, FULL)
        x = load(r, indices, left, FULL) + (load(w, indices, left, FULL) - shared) * share
        store(r, indices, x, left, FULL)
        store(w, indices, shared, left, FULL)
    return x


@jit
def _codes(x, limit, edge, EDGE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return 1 where x >= limit, 2 where x <= -limit. ``EDGE``: 1 where the bits of |x| come to ``edge`` or more, which
    the device has found itself; a NaN is over every edge."""
    if EDGE:
        code = ((x.to(tl.int32, bitcast=True) & 0x7FFFFFFF) >= tl.load(edge)).to(tl.int32)
    else:
        code = tl.where(x >= limit, 1, tl.where(x <= -limit, 2, 0))
    return code


@kernel("n", "first", "cap")
def find(  # type: ignore[no-untyped-def]
    w, b, r, n, first, limit, edge, share,
    slots, cap, counts, total, bits,
    SOURCE: tl.constexpr, EDGE: tl.constexpr, FULL: tl.constexpr, BITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write bytes that are not zero tile by tile into ``slots`` (group of four in the tile << 8 | byte), or all into
    ``bits``.

    ``counts``: elements over the limit, and bytes << 16, of each tile; ``total``: of a bitmap, elements over the limit.
    """
    tile = tl.program_id(0) + first
    start = tile.to(tl.int64) * BLOCK
    indices = tl.arange(0, BLOCK)
    left = n - start
    x = _differences(w + start, b + start, r + start, indices, left, share, SOURCE, FULL)
    code = _codes(x, limit, edge, EDGE)
    if not FULL:
        code = tl.where(indices < left, code, 0)
    byte = tl.sum(tl.reshape(code, (BLOCK // 4, 4)) << (2 * tl.arange(0, 4))[None, :], axis=1)
    fours = tl.arange(0, BLOCK // 4)
    some = (byte != 0).to(tl.int32)
    both = tl.sum(_hits(byte) + (some << 16), axis=0)
    if BITS:
        tl.atomic_add(total, (both & 0xFFFF).to(tl.int64), sem="relaxed")
        tl.store(bits + tile.to(tl.int64) * (BLOCK // 4) + fours, byte.to(tl.uint8))
    else:
        tl.store(counts + tile, both)
        if both > 0:
            at = tl.cumsum(some, axis=0) - 1
            own = slots + tile.to(tl.int64) * cap
            tl.store(own + at, (fours << 8) | byte, mask=(byte != 0) & (at < cap))


@kernel("tiles")
def tally(counts, tiles, totals, fullest, GROUP: tl.constexpr):  # type: ignore[no-untyped-def]
    """Count, for each ``GROUP`` of tiles, the elements over the limit, and the most bytes that a tile has."""
    group = tl.program_id(0)
    tile = group * GROUP + tl.arange(0, GROUP)
    both = tl.load(counts + tile, mask=tile < tiles, other=0)
    tl.store(totals + group, tl.sum((both & 0xFFFF).to(tl.int64), axis=0))
    tl.store(fullest + group, tl.max(both >> 16, axis=0))


@jit
def _move(w, b, r, index, negative, live, x, y, METHOD: tl.constexpr):  # type: ignore[no-untyped-def]
    """Move an element and return the value that b moved by. TETHER, s the sign: b += s x, w -= s y. THRESHOLD: r -= s x,
    b += s x, w = b. TOPK: b += r, w = b, r = 0."""
    shared = tl.load(b + index, mask=live, other=0.0)
    if METHOD == TETHER:
        change = tl.where(negative, -x, x)
        own = tl.load(w + index, mask=live, other=0.0) - tl.where(negative, -y, y)
    else:
        grown = tl.load(r + index, mask=live, other=0.0)
        change = grown
        if METHOD == THRESHOLD:
            change = tl.where(negative, -x, x)
        tl.store(r + index, grown - change, mask=live)
        own = shared + change
    tl.store(b + index, shared + change, mask=live)
    tl.store(w + index, own, mask=live)
    return change


@kernel("cap", "room", "tiles", "groups")
def order(  # type: ignore[no-untyped-def]
    w, b, r, x, y,
    slots, cap, counts, totals, fullest, groups, room, tiles, words, heading,
    METHOD: tl.constexpr, GROUPS: tl.constexpr, GROUP: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turn the bytes in the slots into words, index << 1 | sign, and move the elements at once, unless TOPK will do that.
    ``heading``: how many, and the most bytes that a tile has."""
    group = tl.program_id(0)
    every = tl.arange(0, GROUPS)
    of_group = tl.load(totals + every, mask=every < groups, other=0)
    total = tl.sum(of_group, axis=0)
    most = tl.max(tl.load(fullest + every, mask=every < groups, other=0), axis=0)
    if group == 0:
        tl.store(heading, total)
        tl.store(heading + 1, most.to(tl.int64))
    if (total <= room) & (most <= cap):
        before = tl.sum(tl.where(every < group, of_group, 0), axis=0)
        tile = group * GROUP + tl.arange(0, GROUP)
        both = tl.load(counts + tile, mask=tile < tiles, other=0)
        source = tile.to(tl.int64) * cap
        hits, found = both & 0xFFFF, both >> 16
        target = before + tl.cumsum(hits, axis=0) - hits
        for done in range(0, tl.max(found, axis=0), STEP):
            each = (done + tl.arange(0, STEP))[None, :]
            record = tl.load(slots + source[:, None] + each, mask=each < found[:, None], other=0)
            byte = record & 0xFF
            over = _hits(byte)
            at = target[:, None] + tl.cumsum(over, axis=1) - over
            element = tile[:, None] * BLOCK + (record >> 8) * 4
            for part in tl.static_range(4):
                code = (byte >> (2 * part)) & 3
                tl.store(words + at, ((element + part) << 1) | (code >> 1), mask=code != 0)
                if METHOD != TOPK:
                    _move(w, b, r, (element + part).to(tl.int64), code == 2, code != 0, x, y, METHOD)
                at += (code != 0).to(tl.int64)
            target += tl.sum(over, axis=1)


@kernel("most")
def send(w, b, r, words, heading, most, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Send, for TOPK, the elements that the words name. The words become indices, and the values follow ``most`` words
    behind."""
    count = tl.load(heading)
    for start in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        live = at < count
        word = tl.load(words + at, mask=live, other=0).to(tl.uint32, bitcast=True)
        index = (word >> 1).to(tl.int64)
        change = _move(w, b, r, index, live, live, 0.0, 0.0, TOPK)
        tl.store(words + at, index.to(tl.int32), mask=live)
        tl.store(words + most + at, change.to(tl.int32, bitcast=True), mask=live)


@kernel("n")
def apply_bits(w, b, r, bits, n, x, y, METHOD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Move the elements that a bitmap names."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(bits + index // 4, mask=index < n, other=0).to(tl.int32)
    code = (byte >> (2 * (index % 4).to(tl.int32))) & 3
    _move(w, b, r, index, code == 2, code != 0, x, y, METHOD)
