"""Bodies that compressors write: how long they must be, whether they are right, and what they stand for.

    form.py       the contract: dense forms give values piece by piece, sparse ones give entries
    levels.py     whole numbers of a few bits, times a scale per block          int8, qsgd, terngrad
    halves.py     16-bit floats                                                 fp16, bf16
    eighths.py    8-bit floats, times a scale per block                         fp8
    votes.py      one bit per element, times one number                         sign
    columns.py    one bit per element, two numbers per column                   onebit
    sparse.py     rising indices and their values                               topk, dgc
    seeded.py     values at places that follow from a seed                      randomk
    lowrank.py    two thin matrices per matrix                                  powersgd
    cosines.py    the largest cosine coefficients per chunk                     demo

``FORMS`` maps the kind on the wire to its form.
"""

from taut.codecs.wire.layouts.base import DenseForm, Form, SparseForm
from taut.codecs.wire.layouts.dct import Cosines
from taut.codecs.wire.layouts.fp8 import Eighths
from taut.codecs.wire.layouts.fp16_bf16 import Brains, Halves
from taut.codecs.wire.layouts.int_levels import Levels
from taut.codecs.wire.layouts.low_rank import LowRank
from taut.codecs.wire.layouts.onebit import Columns
from taut.codecs.wire.layouts.seeded_sparse import Seeded
from taut.codecs.wire.layouts.sign_bits import Votes
from taut.codecs.wire.layouts.sparse import Sparse
from taut.codecs.wire.payload import Kind

FORMS: dict[Kind, Form] = {
    form.kind: form
    for form in (Halves(), Brains(), Eighths(), Levels(), Sparse(), Seeded(), Votes(), Columns(), LowRank(), Cosines())
}

__all__ = ["FORMS", "DenseForm", "Form", "SparseForm"]
