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

from taut.codecs.algorithms.bf16 import Bf16
from taut.codecs.algorithms.demo import DeMo
from taut.codecs.algorithms.dense import Dense
from taut.codecs.algorithms.dgc import DGC
from taut.codecs.algorithms.fp8 import Fp8
from taut.codecs.algorithms.fp16 import Fp16
from taut.codecs.algorithms.int8 import Int8
from taut.codecs.algorithms.onebit import OneBit
from taut.codecs.algorithms.powersgd import PowerSGD
from taut.codecs.algorithms.qsgd import QSGD
from taut.codecs.algorithms.randomk import RandomK
from taut.codecs.algorithms.sign import Sign
from taut.codecs.algorithms.terngrad import TernGrad
from taut.codecs.algorithms.tether import Tether
from taut.codecs.algorithms.threshold import Threshold
from taut.codecs.algorithms.topk import TopK
from taut.codecs.codec import Codec, State
from taut.codecs.compressor import Compressor, Memory
from taut.codecs.error_feedback import Feedback
from taut.codecs.exact_grid import Grid, snap
from taut.codecs.info import CodecInfo
from taut.codecs.registry import REGISTRY, parse, spec
from taut.codecs.sketch import sketch, squared_distance
from taut.codecs.wire.merge import expand, merge
from taut.codecs.wire.payload import Header, Kind
from taut.codecs.wire.validate import validate

__all__ = [
    "DGC",
    "QSGD",
    "REGISTRY",
    "Bf16",
    "Codec",
    "CodecInfo",
    "Compressor",
    "DeMo",
    "Dense",
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
