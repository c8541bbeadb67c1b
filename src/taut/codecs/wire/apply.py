"""Applying a payload, which was validated before, to b and w.

Dense payloads are applied piece by piece, each while it is in the processor's cache; to a vector in host memory on
several threads where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.codecs.parallel import HEAVY, run_parts
from taut.codecs.wire.layouts import LAYOUTS, DenseLayout, SparseLayout
from taut.codecs.wire.merge import dense_numbers
from taut.codecs.wire.payload import CHUNK, PAIRS, Bytes, Header, Kind, body_of, read, read_pairs

if TYPE_CHECKING:
    from taut.codecs.codec import State


def apply(state: State, payload: Bytes, head: Header) -> None:
    """Add the payload, which was validated, to b and w."""
    w, b, kernels = state.w, state.b, state.kernels
    if head.kind is Kind.WORDS:
        kernels.add_words(w, b, head.base, read(payload, np.uint32, head.count), head.quantum)
    elif head.kind is Kind.BITMAP:
        kernels.add_bits(w, b, head.base, head.length, read(payload, np.uint8, head.body_nbytes), head.quantum)
    elif head.kind in PAIRS:
        indices, numbers = read_pairs(payload, head)
        kernels.add_at(w, b, head.base, indices, numbers.astype(np.float32) * np.float32(head.quantum))
    elif head.kind in LAYOUTS:
        layout, body = LAYOUTS[head.kind], body_of(payload)
        if isinstance(layout, SparseLayout):
            indices, values = layout.entries(head, body)
            kernels.add_at(w, b, head.base, indices, values)
        elif isinstance(layout, DenseLayout):
            _add(state, head, lambda lo, hi: layout.pieces(head, body, lo, hi))
    else:
        _add(state, head, lambda lo, hi: _numbers(payload, head, lo, hi))


def _add(state: State, head: Header, pieces: Callable[[int, int], Iterator[tuple[int, Any]]]) -> None:
    """Add all pieces of a dense payload; to a vector in host memory on several threads where there are many."""

    def some(lo: int, hi: int) -> None:
        for start, values in pieces(lo, hi):
            state.kernels.add_values(state.w, state.b, head.base + start, values)

    if isinstance(state.w, np.ndarray):
        run_parts(some, 0, head.length, CHUNK, HEAVY)
    else:
        some(0, head.length)


def _numbers(payload: Bytes, head: Header, lo: int, hi: int) -> Iterator[tuple[int, Any]]:
    for start in range(lo, hi, CHUNK):
        numbers = dense_numbers(payload, head, start, min(start + CHUNK, hi))
        yield start, numbers if head.kind is Kind.DENSE else numbers.astype(np.float32) * np.float32(head.quantum)
