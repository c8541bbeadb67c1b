"""The types of arrays in the signatures of kernels: one-dimensional and contiguous. ``..._IN``: a kernel only reads them,
so that arrays in a message, which are read-only, can be given, too.

Scalars need no conversion before a call: a kernel converts all arguments to its signature.
"""

from __future__ import annotations

from typing import Any

from numba import types


def array(kind: Any, readonly: bool = False) -> Any:
    return types.Array(kind, 1, "C", readonly=readonly)


def tuple_of(*kinds: Any) -> Any:
    """Return the type of a kernel's result that has several parts."""
    return types.Tuple(kinds)  # type: ignore[no-untyped-call]


F32, F32_IN = array(types.float32), array(types.float32, readonly=True)
F64 = array(types.float64)
I8, I8_IN = array(types.int8), array(types.int8, readonly=True)
I32, I32_IN = array(types.int32), array(types.int32, readonly=True)
I64 = array(types.int64)
U8, U8_IN = array(types.uint8), array(types.uint8, readonly=True)
U16, U16_IN = array(types.uint16), array(types.uint16, readonly=True)
U32, U32_IN = array(types.uint32), array(types.uint32, readonly=True)
