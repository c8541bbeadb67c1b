"""Codecs: how an update is written as bytes. docs/codecs.md explains them.

    codec.py, compressor.py   the contracts; error_feedback.py makes a codec of a compressor and keeps the residual
    algorithms/               the codecs and compressors, one file each; registry.py knows them by name
    wire/                     payloads: written, validated, merged, applied
    math/                     arithmetic that several codecs share
    kernels/                  the inner loops: numba, torch, Triton
    exact_grid.py             weights on a grid, so that sums are exact
    sketch.py                 distances between replicas, from 256 numbers each

Importing this package imports NumPy only. numba or torch is imported when a codec's state is made.
"""

from taut.codecs.algorithms.bf16 import Bf16
from taut.codecs.algorithms.chunked import Chunked
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
from taut.codecs.compressor import Compressor, CompressorState
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
    "Chunked",
    "Codec",
    "CodecInfo",
    "Compressor",
    "CompressorState",
    "DeMo",
    "Dense",
    "Feedback",
    "Fp8",
    "Fp16",
    "Grid",
    "Header",
    "Int8",
    "Kind",
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
