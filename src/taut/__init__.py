"""taut: one model, many loosely coupled machines.

    join                    the worker for PyTorch: see taut/worker
    device                  the device that this worker is to train on
    Worker, Topology, run   the framework-free level: fill in one iteration, connect workers by channels
    codecs, optim, errors   how updates become bytes; LARS, LAMB, warm-up; every exception
    parallel                one model cut into parts, which several processes hold together
    testing                 conformance checks and fakes
    comparison, simulator   many runs; runs in virtual time

Names are loaded when they are first used, so that `import taut` and the command line start quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut import codecs as codecs
    from taut import comparison as comparison
    from taut import errors as errors
    from taut import optim as optim
    from taut import parallel as parallel
    from taut import simulator as simulator
    from taut import testing as testing
    from taut.engines.devices import device
    from taut.topologies.user_topology import Topology
    from taut.worker.join import join
    from taut.worker.standalone.run import run
    from taut.worker.standalone.worker import Worker
    from taut.worker.torch_worker import TorchWorker

__version__ = "0.1.0"

_HOMES = {
    "device": "taut.engines.devices",
    "join": "taut.worker.join",
    "Worker": "taut.worker.standalone.worker",
    "TorchWorker": "taut.worker.torch_worker",
    "Topology": "taut.topologies.user_topology",
    "run": "taut.worker.standalone.run",
}

_PARTS = ("codecs", "comparison", "errors", "optim", "parallel", "simulator", "testing")

__all__ = [
    "Topology",
    "TorchWorker",
    "Worker",
    "__version__",
    "codecs",
    "comparison",
    "device",
    "errors",
    "join",
    "optim",
    "parallel",
    "run",
    "simulator",
    "testing",
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
