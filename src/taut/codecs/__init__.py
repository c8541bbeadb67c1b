"""How an update is written down. One file per codec; kernels in numba and torch; see docs/codecs.md.

    codec.py        the contract (Codec) and what a replica keeps (State)
    tether.py       the default; threshold.py, dense.py: the others; registry.py: by name
    adaptive.py     steering a limit by density
    grid.py         weights on a grid, so that sums are exact
    payload.py      the wire format, validated; packing.py: merging; signs.py: words or a bitmap
    kernels_cpu.py  the inner loops; kernels_torch.py: the same for GPUs
    sketch.py       distances between replicas, from 256 numbers each

Importing this package imports NumPy only; numba or torch come when a state is started.
"""

from taut.codecs.codec import Codec, State
from taut.codecs.dense import Dense
from taut.codecs.grid import Grid, snap
from taut.codecs.packing import merge
from taut.codecs.payload import Header, Kind, validate
from taut.codecs.registry import REGISTRY, parse, spec
from taut.codecs.sketch import sketch, squared_distance
from taut.codecs.tether import Tether
from taut.codecs.threshold import Threshold

__all__ = [
    "REGISTRY",
    "Codec",
    "Dense",
    "Grid",
    "Header",
    "Kind",
    "State",
    "Tether",
    "Threshold",
    "merge",
    "parse",
    "sketch",
    "snap",
    "spec",
    "squared_distance",
    "validate",
]
