"""Operations that numba lacks: eight bytes at any offset of an array, and the bits of a number.

For bit streams in kernels. Nothing is checked: callers of ``load`` and ``store`` make sure that there are eight bytes.
They are little-endian, as is every machine that taut runs on (``payload`` checks that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

_intrinsic: Callable[[Callable[..., Any]], Callable[..., Any]] = numba.extending.intrinsic


@_intrinsic
def load(typing: Any, data: Any, offset: Any) -> Any:
    """Load eight bytes from ``offset`` on, as a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        address = _address(context, builder, signature, arguments)
        return builder.load(address, align=1)

    return types.uint64(data, types.uint64), generate


@_intrinsic
def store(typing: Any, data: Any, offset: Any, value: Any) -> Any:
    """Store a number as eight bytes from ``offset`` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _address(context, builder, signature, arguments), align=1)
        return context.get_dummy_value()

    return types.void(data, types.uint64, types.uint64), generate


def _address(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())


@_intrinsic
def ones(typing: Any, value: Any) -> Any:
    """Count the bits that are set."""
    return types.uint64(types.uint64), lambda context, builder, signature, arguments: builder.ctpop(arguments[0])


@_intrinsic
def lowest(typing: Any, value: Any) -> Any:
    """Return the position of the lowest bit that is set; 64 if none is."""
    no = ir.Constant(ir.IntType(1), 0)
    return types.uint64(types.uint64), lambda context, builder, signature, arguments: builder.cttz(arguments[0], no)
