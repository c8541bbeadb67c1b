"""Layouts of the bodies that compressors write: how long a body must be, whether it is valid, which values it stands for.

base.py is the contract: a dense layout gives values piece by piece, a sparse one gives entries. ``LAYOUTS`` maps the kind
on the wire to its layout.
"""

from taut.codecs.wire.layouts.base import DenseLayout, Layout, SparseLayout
from taut.codecs.wire.layouts.chunked import ChunkedLayout
from taut.codecs.wire.layouts.dct import DctLayout
from taut.codecs.wire.layouts.fp8 import Fp8Layout
from taut.codecs.wire.layouts.fp16_bf16 import Bf16Layout, Fp16Layout
from taut.codecs.wire.layouts.int_levels import IntLevelsLayout
from taut.codecs.wire.layouts.low_rank import LowRankLayout
from taut.codecs.wire.layouts.onebit import OneBitLayout
from taut.codecs.wire.layouts.sign_bits import SignBitsLayout
from taut.codecs.wire.layouts.sparse import IndexedLayout, SeededLayout
from taut.codecs.wire.payload import Kind

DENSE = (Fp16Layout, Bf16Layout, Fp8Layout, IntLevelsLayout, SignBitsLayout, OneBitLayout, LowRankLayout, DctLayout)
SPARSE = (IndexedLayout, SeededLayout, ChunkedLayout)
LAYOUTS: dict[Kind, Layout] = {layout.kind: layout() for layout in (*DENSE, *SPARSE)}

__all__ = ["LAYOUTS", "DenseLayout", "Layout", "SparseLayout"]
