"""The two scans that every step pays for, as Python that ``kernels.cpu.kernels`` compiles: one pass at the memory's
speed.

A block of 64 elements is tested in vector operations that leave one bit per element, set where something is to be sent.
Most blocks have none and cost their reads alone; in the others only the set bits are visited. (LLVM does not find this
form by itself, so the block test is written in its terms: eight vectors of eight elements, which every processor has or
can make. Software prefetch, 512-bit vectors and non-temporal stores were tried and lost.)

All of it is float32, one rounding per operation and in a fixed order, so that ``kernels.torch_ops`` gives the same bits.
Kernels and the functions that they inline are in one file because numba's cache looks at a kernel's own file only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from taut.codecs.kernels.cpu.bits import lowest
from taut.codecs.kernels.cpu.compilation import part

LANES = 8
_operation: Any = intrinsic  # such a function is called as in Python, without the first argument
_array: Any = make_array
_function: Any = cgutils.get_or_insert_function
_zero = np.float32(0.0)
# a plain 64 and a uint64 together would make a float
_0, _1, _4, _15, _16, _64 = (np.uint64(number) for number in (0, 1, 4, 15, 16, 64))

_Lanes = ir.VectorType(ir.FloatType(), LANES)
_Bits = ir.IntType(64)


def _splat(builder: Any, scalar: Any) -> Any:
    """Return a vector with ``scalar`` in every lane."""
    empty = ir.Constant(_Lanes, ir.Undefined)
    first = builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


class _Block:
    """64 elements of an array, from ``start`` on, as eight vectors."""

    def __init__(self, context: Any, builder: Any, kind: Any, array: Any, start: Any) -> None:
        self.builder = builder
        self.first = builder.gep(_array(kind)(context, builder, array).data, [start])

    def _pointer(self, j: int) -> Any:
        pointer = self.builder.gep(self.first, [ir.Constant(_Bits, j * LANES)])
        return self.builder.bitcast(pointer, _Lanes.as_pointer())

    def load(self, j: int) -> Any:
        return self.builder.load(self._pointer(j), align=4)

    def store(self, j: int, vector: Any) -> None:
        self.builder.store(vector, self._pointer(j), align=4)


def _at_least(builder: Any, x: Any, limit: Any) -> Any:
    """Return |x| >= limit as one bit per lane, in the low end of a word."""
    kind = ir.FunctionType(_Lanes, [_Lanes])
    size = builder.call(_function(builder.module, kind, f"llvm.fabs.v{LANES}f32"), [x])
    over = builder.fcmp_ordered(">=", size, limit)
    return builder.zext(builder.bitcast(over, ir.IntType(LANES)), _Bits)


@_operation  # type: ignore[untyped-decorator]
def _strayed(typing: Any, w: Any, b: Any, start: Any, limit: Any) -> Any:
    """Return a word whose bit i says: |w - b| >= limit at element start + i."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        ws, bs = (_Block(context, builder, signature.args[k], given[k], given[2]) for k in (0, 1))
        limits, found = _splat(builder, given[3]), ir.Constant(_Bits, 0)
        for j in range(64 // LANES):
            over = _at_least(builder, builder.fsub(ws.load(j), bs.load(j)), limits)
            found = builder.or_(found, builder.shl(over, ir.Constant(_Bits, j * LANES)))
        return found

    return types.uint64(w, b, start, limit), write


@_operation  # type: ignore[untyped-decorator]
def _accumulated(typing: Any, w: Any, b: Any, r: Any, start: Any, tau: Any, share: Any) -> Any:
    """Compute r += (w - b) * share; w = b; return a word whose bit i says: |r| >= tau at element start + i."""

    def write(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        ws, bs, rs = (_Block(context, builder, signature.args[k], given[k], given[3]) for k in (0, 1, 2))
        limits, shares, found = _splat(builder, given[4]), _splat(builder, given[5]), ir.Constant(_Bits, 0)
        for j in range(64 // LANES):
            shared = bs.load(j)
            change = builder.fmul(builder.fsub(ws.load(j), shared), shares)
            left = builder.fadd(rs.load(j), change)
            rs.store(j, left)
            ws.store(j, shared)
            found = builder.or_(found, builder.shl(_at_least(builder, left, limits), ir.Constant(_Bits, j * LANES)))
        return found

    return types.uint64(w, b, r, start, tau, share), write


@part
def _to_cache_line(w, lo, hi):  # type: ignore[no-untyped-def]
    """Return where the next cache line of w begins, since loads that straddle two lines cost 5%; or ``lo``, if that would
    be in the middle of a bitmap's byte. The codec's own vectors are set against w by whole lines."""
    elements = (_16 - (np.uint64(w.ctypes.data) // _4 + lo)) & _15
    return min(lo + elements, hi) if elements % _4 == _0 else lo


@part
def _send_tether(w, b, i, base, up, give, out, k):  # type: ignore[no-untyped-def]
    """Send one sign for element i, which is over the limit."""
    minus = w[i] < b[i]
    out[k] = np.uint32(((i - base) << _1) | np.uint64(minus))
    b[i] += -up if minus else up
    w[i] -= -give if minus else give


@part
def _tether_ends(w, b, start, stop, base, limit, up, give, out, k):  # type: ignore[no-untyped-def]
    """Scan the elements before the first block or after the last."""
    for i in range(start, stop):
        if abs(w[i] - b[i]) >= limit:
            _send_tether(w, b, i, base, up, give, out, k)
            k += _1
    return k


def scan_tether(w, b, lo, hi, base, limit, up, give, out):  # type: ignore[no-untyped-def]
    """Send one sign where |w - b| >= limit, from ``lo`` on. Return (words written, where the scan stopped): at ``hi``, or
    earlier by a multiple of 4 from ``lo``, before a block that might not fit into ``out``."""
    room = np.uint64(out.size) - _64
    start = _to_cache_line(w, lo, hi)
    k = _tether_ends(w, b, lo, start, base, limit, up, give, out, _0)
    while start + _64 <= hi:
        if k > room:
            return k, start
        bits = _strayed(w, b, start, limit)
        while bits:
            _send_tether(w, b, start + lowest(bits), base, up, give, out, k)
            k += _1
            bits &= bits - _1
        start += _64
    if k > room:
        return k, start
    return _tether_ends(w, b, start, hi, base, limit, up, give, out, k), hi


@part
def _send_threshold(w, b, r, i, base, tau, out, k):  # type: ignore[no-untyped-def]
    """Send one sign for element i, whose residual is over tau."""
    minus = r[i] < _zero
    change = -tau if minus else tau
    out[k] = np.uint32(((i - base) << _1) | np.uint64(minus))
    r[i] -= change
    b[i] += change
    w[i] = b[i]


@part
def _threshold_ends(w, b, r, start, stop, base, tau, share, out, k):  # type: ignore[no-untyped-def]
    """Scan the elements before the first block or after the last."""
    for i in range(start, stop):
        r[i] += (w[i] - b[i]) * share
        w[i] = b[i]
        if abs(r[i]) >= tau:
            _send_threshold(w, b, r, i, base, tau, out, k)
            k += _1
    return k


def scan_threshold(w, b, r, lo, hi, base, tau, share, out):  # type: ignore[no-untyped-def]
    """Compute r += (w - b) * share; w = b from ``lo`` on, and send one sign where |r| >= tau. Return as
    ``scan_tether``."""
    room = np.uint64(out.size) - _64
    start = _to_cache_line(w, lo, hi)
    k = _threshold_ends(w, b, r, lo, start, base, tau, share, out, _0)
    while start + _64 <= hi:
        if k > room:
            return k, start
        bits = _accumulated(w, b, r, start, tau, share)
        while bits:
            _send_threshold(w, b, r, start + lowest(bits), base, tau, out, k)
            k += _1
            bits &= bits - _1
        start += _64
    if k > room:
        return k, start
    return _threshold_ends(w, b, r, start, hi, base, tau, share, out, k), hi
