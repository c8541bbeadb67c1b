"""SPARSE: ``count`` rising uint32 indices, then a float32 each."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.layouts.base import F32, Body, SparseLayout, check_finite, check_length, largest, part
from taut.codecs.wire.payload import Header, Kind
from taut.errors import MalformedMessage


class IndexedLayout(SparseLayout):
    kind: ClassVar[Kind] = Kind.SPARSE

    def check(self, head: Header, body: Body) -> None:
        check_length(head, body, 8 * head.count)
        indices, values = self.entries(head, body)
        if indices.size and int(indices[-1]) >= head.length:
            raise MalformedMessage(f"an entry for element {int(indices[-1])} of a range of {head.length}")
        if not (indices[1:] > indices[:-1]).all():
            raise MalformedMessage("entries whose indices do not rise")
        check_finite(values, "a sparse payload")

    def reach(self, head: Header, body: Body) -> float:
        return largest(self.entries(head, body)[1])

    def entries(self, head: Header, body: Body) -> tuple[npt.NDArray[Any], F32]:
        return part(body, np.uint32, 0, head.count), part(body, np.float32, 4 * head.count, head.count)
