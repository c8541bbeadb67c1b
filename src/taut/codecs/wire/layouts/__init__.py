"""Layouts of the bodies that compressors write: how long they must be, whether they are right, and their values.

    base.py            the contract: dense layouts give values piece by piece, sparse ones give entries
    int_levels.py      whole numbers of a few bits, times a scale per block     int8, qsgd, terngrad
    fp16_bf16.py       16-bit floats                                            fp16, bf16
    fp8.py             8-bit floats, times a scale per block                    fp8
    sign_bits.py       one bit per element, times one number                    sign
    onebit.py          one bit per element, two numbers per column              onebit
    sparse.py          rising indices and their values                          topk, dgc
    seeded_sparse.py   values at indices that follow from a seed                randomk
    low_rank.py        two thin matrices per matrix                             powersgd
    dct.py             the largest cosine coefficients per chunk                demo

``LAYOUTS`` maps the kind on the wire to its layout.
"""

from taut.codecs.wire.layouts.base import DenseLayout, Layout, SparseLayout
from taut.codecs.wire.layouts.dct import DctLayout
from taut.codecs.wire.layouts.fp8 import Fp8Layout
from taut.codecs.wire.layouts.fp16_bf16 import Bf16Layout, Fp16Layout
from taut.codecs.wire.layouts.int_levels import IntLevelsLayout
from taut.codecs.wire.layouts.low_rank import LowRankLayout
from taut.codecs.wire.layouts.onebit import OneBitLayout
from taut.codecs.wire.layouts.seeded_sparse import SeededLayout
from taut.codecs.wire.layouts.sign_bits import SignBitsLayout
from taut.codecs.wire.layouts.sparse import IndexedLayout
from taut.codecs.wire.payload import Kind

LAYOUTS: dict[Kind, Layout] = {
    layout.kind: layout
    for layout in (
        Fp16Layout(),
        Bf16Layout(),
        Fp8Layout(),
        IntLevelsLayout(),
        IndexedLayout(),
        SeededLayout(),
        SignBitsLayout(),
        OneBitLayout(),
        LowRankLayout(),
        DctLayout(),
    )
}

__all__ = ["FORMS", "DenseLayout", "Layout", "SparseLayout"]
