"""taut: one model, many loosely coupled machines.

    join                    the worker for PyTorch: see taut/worker
    join_vector             the worker for an array, whatever framework computes its changes
    by_name                 what a grown model takes over of the one before
    launch                  a run of a function, from a notebook or a program
    device                  the device that this worker is to train on
    Worker, Topology, run   the framework-free level: fill in one iteration, connect workers by channels
    codecs, optim, errors   how updates become bytes; LARS, LAMB, warm-up; every exception
    data                    public data sets; splits over clients; growing resolutions
    parallel                one model cut into parts, which several processes hold together
    tiers                   a model over devices, an edge and the cloud
    testing                 conformance checks and fakes
    comparison, simulator   many runs; runs in virtual time
    Run                     a run that was made: its tables as data frames, its figure, its model

Names are loaded when they are first used, so that `import taut` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut import codecs as codecs
    from taut import comparison as comparison
    from taut import data as data
    from taut import errors as errors
    from taut import optim as optim
    from taut import parallel as parallel
    from taut import simulator as simulator
    from taut import testing as testing
    from taut import tiers as tiers
    from taut.analysis.run import Run
    from taut.cli.function_launch import launch
    from taut.engines.devices import device
    from taut.topologies.user_topology import Topology
    from taut.worker.join import join
    from taut.worker.model.growth import by_name
    from taut.worker.standalone.run import run
    from taut.worker.standalone.worker import Worker
    from taut.worker.torch_worker import TorchWorker
    from taut.worker.vector.join import join_vector
    from taut.worker.vector.vector_worker import VectorWorker

__version__ = "0.1.0"

_HOMES = {
    "by_name": "taut.worker.model.growth",
    "device": "taut.engines.devices",
    "join": "taut.worker.join",
    "launch": "taut.cli.function_launch",
    "join_vector": "taut.worker.vector.join",
    "Worker": "taut.worker.standalone.worker",
    "TorchWorker": "taut.worker.torch_worker",
    "Run": "taut.analysis.run",
    "VectorWorker": "taut.worker.vector.vector_worker",
    "Topology": "taut.topologies.user_topology",
    "run": "taut.worker.standalone.run",
}

_PARTS = ("codecs", "comparison", "data", "errors", "optim", "parallel", "simulator", "testing", "tiers")

__all__ = [
    "Run",
    "Topology",
    "TorchWorker",
    "VectorWorker",
    "Worker",
    "__version__",
    "by_name",
    "codecs",
    "comparison",
    "data",
    "device",
    "errors",
    "join",
    "join_vector",
    "launch",
    "optim",
    "parallel",
    "run",
    "simulator",
    "testing",
    "tiers",
]


def __dir__() -> list[str]:
    """List the public names, also those that are not loaded yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PARTS:
        return import_module(f"taut.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
