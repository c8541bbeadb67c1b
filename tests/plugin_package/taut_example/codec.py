"""Elements in turn, as in docs/codecs.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs import CodecInfo, Compressor, Kind
from taut.codecs.algorithms.topk import sparse_piece


@dataclass(frozen=True)
class InTurn(Compressor):
    """``--codec inturn:parts=4``: of every ``parts`` elements one, another at each update."""

    name: ClassVar[str] = "inturn"
    kind: ClassVar[Kind] = Kind.SPARSE

    parts: int = 8

    @property
    def facts(self) -> CodecInfo:
        bound = "every element is sent once in so many updates"
        return CodecInfo("elements in turn", 64.0 / self.parts, bound, "an example", error=1.0, advised=9)

    def compress(self, v: Any, lo: int, memory: Any) -> Any:
        chosen = np.arange((memory.turns - lo) % self.parts, len(v), self.parts)
        if not isinstance(v, np.ndarray):
            chosen = v.new_tensor(chosen, dtype=int)
        return sparse_piece(chosen, v[chosen]) if len(chosen) else None
