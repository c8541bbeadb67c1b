"""How an update is written down. One file per codec; kernels in numba, torch and Triton; see docs/codecs.md.

    codec.py        the contract of a codec (Codec) and what a replica keeps (State)
    tether.py, threshold.py, dense.py     codecs of their own
    compressor.py   the contract of a compressor, from which ``feedback.py`` makes a codec: the residual lives there
    fp16.py ... demo.py                   compressors, one file each; registry.py: all of them by name
    payload.py      the wire format; validation.py: what is looked at before anything is applied; packing.py: merging
    rice.py         words, entropy-coded; forms/: what compressors write
    grid.py         weights on a grid, so that sums are exact; adaptive.py: steering a limit by density
    kernels_*.py    the inner loops: numba, torch, Triton
    sketch.py       distances between replicas, from 256 numbers each

Importing this package imports NumPy only; numba or torch come when a state is started.
"""

from taut.codecs.bf16 import Bf16
from taut.codecs.codec import Codec, State
from taut.codecs.compressor import Compressor, Memory
from taut.codecs.demo import DeMo
from taut.codecs.dense import Dense
from taut.codecs.dgc import DGC
from taut.codecs.facts import Facts
from taut.codecs.feedback import Feedback
from taut.codecs.fp8 import Fp8
from taut.codecs.fp16 import Fp16
from taut.codecs.grid import Grid, snap
from taut.codecs.int8 import Int8
from taut.codecs.onebit import OneBit
from taut.codecs.packing import expand, merge
from taut.codecs.payload import Header, Kind
from taut.codecs.powersgd import PowerSGD
from taut.codecs.qsgd import QSGD
from taut.codecs.randomk import RandomK
from taut.codecs.registry import REGISTRY, parse, spec
from taut.codecs.sign import Sign
from taut.codecs.sketch import sketch, squared_distance
from taut.codecs.terngrad import TernGrad
from taut.codecs.tether import Tether
from taut.codecs.threshold import Threshold
from taut.codecs.topk import TopK
from taut.codecs.validation import validate

__all__ = [
    "DGC",
    "QSGD",
    "REGISTRY",
    "Bf16",
    "Codec",
    "Compressor",
    "DeMo",
    "Dense",
    "Facts",
    "Feedback",
    "Fp8",
    "Fp16",
    "Grid",
    "Header",
    "Int8",
    "Kind",
    "Memory",
    "OneBit",
    "PowerSGD",
    "RandomK",
    "Sign",
    "State",
    "TernGrad",
    "Tether",
    "Threshold",
    "TopK",
    "expand",
    "merge",
    "parse",
    "sketch",
    "snap",
    "spec",
    "squared_distance",
    "validate",
]
