"""Every name that can be chosen, and where its class is: taut's own, and those of installed packages.

A package adds its own by an entry point, in its ``pyproject.toml``::

    [project.entry-points."taut.codecs"]
    mine = "package.module:Class"

The groups are ``taut.strategies``, ``taut.codecs``, ``taut.topologies``, ``taut.transports``, ``taut.engines`` and
``taut.launchers``. A class is imported when it is asked for. Installed packages are searched only for a name that is not
taut's own, or when all names are listed: the search takes longer than a command may take to start.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from taut.errors import Misuse
from taut.specs import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Registry(MutableMapping[str, T], Generic[T]):
    """The classes of one kind by name.

    Arguments:
        group: the group of entry points; its last word, in the singular, is how errors call the kind.
        own: taut's own, each as the class or as ``module:Class`` within the package ``taut``.
        bases: what a plugin's class must inherit from, one of these; each as ``module:Class``. Empty: anything.
        hidden: of ``own``, names that are found and not listed.

    >>> REGISTRY = Registry("taut.codecs", {"dense": "codecs.algorithms.dense:Dense"})
    >>> REGISTRY["dense"].__name__, "dense" in REGISTRY, REGISTRY.find("dense") is REGISTRY["dense"]
    ('Dense', True, True)
    """

    def __init__(
        self, group: str, own: Mapping[str, T | str], bases: tuple[str, ...] = (), hidden: Collection[str] = ()
    ) -> None:
        self.group, self._own, self._bases, self._hidden = group, dict(own), bases, hidden
        word = group.rpartition(".")[2]
        self.kind = word[:-3] + "y" if word.endswith("ies") else word[:-1]

    @property
    def own(self) -> list[str]:
        """Return the names that are known without a search of installed packages."""
        return [name for name in self._own if name not in self._hidden]

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        """Installed packages' names. ``Misuse`` for a name that is taut's own or another package's."""
        from importlib.metadata import entry_points

        found: dict[str, EntryPoint] = {}
        for entry in sorted(entry_points(group=self.group)):
            if entry.name in self._own:
                raise Misuse(_blame(self.kind, entry), "a name that taut does not use itself", _remedy(entry))
            if entry.name in found and entry.value != found[entry.name].value:
                other = _package(found[entry.name])
                raise Misuse(_blame(self.kind, entry), f"a name that {other} does not use too", _remedy(entry))
            found[entry.name] = entry
        return found

    def find(self, name: str, remedy: str = "") -> T:
        """Return the class called ``name``; ``Misuse`` with the known names, and ``remedy``, where there is none."""
        if name not in self:
            raise Misuse(f"{self.kind} {name!r}", f"one of {', '.join(self)}", did_you_mean(name, self, remedy))
        return self[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._own:
            loaded = self._load(self._plugins[name])
            del self._plugins[name]
            self._own[name] = loaded
        found = self._own[name]
        if isinstance(found, str):
            found = self._own[name] = _attribute(found)
        return found

    def _load(self, entry: EntryPoint) -> T:
        try:
            found: Any = entry.load()
        except Exception as error:
            expected = f"{entry.value} to be importable ({type(error).__name__}: {error})"
            raise Misuse(_blame(self.kind, entry), expected, _remedy(entry)) from error
        bases = tuple(_attribute(base) for base in self._bases)
        if bases and not (isinstance(found, type) and issubclass(found, bases)):
            names = " or ".join(base.__name__ for base in bases)
            raise Misuse(_blame(self.kind, entry), f"{entry.value} to be a class made from {names}", _remedy(entry))
        if bases and getattr(found, "name", entry.name) != entry.name:
            raise Misuse(_blame(self.kind, entry), f"the class's own name, {found.name!r}", _remedy(entry))
        loaded: T = found
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._plugins

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in (*self._own, *self._plugins) if name not in self._hidden])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, value: T) -> None:
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        del self._own[name]


def _attribute(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"taut.{module}"), name)


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name} {entry.dist.version}" if entry.dist else "an installed package"


def _blame(kind: str, entry: EntryPoint) -> str:
    return f"{kind} {entry.name!r} of {_package(entry)}"


def _remedy(entry: EntryPoint) -> str:
    return f"mend it, or pip uninstall {entry.dist.name}" if entry.dist else ""


STRATEGIES: Registry[Any] = Registry(  # from the most complete communication to the least, and by preference
    "taut.strategies",
    {
        "sync": "strategies.allreduce.sync:Sync",
        "ssp": "strategies.broadcast.ssp:StaleSynchronous",
        "async": "strategies.broadcast.asynchronous:Asynchronous",
        "relay": "strategies.tree.relay:Relay",
        "server": "strategies.server.server:Server",
        "gossip": "strategies.gossip.gossip:Gossip",
        "dpsgd": "strategies.gossip.dpsgd:DPSGD",
        "sgp": "strategies.gossip.sgp:SGP",
        "relaysgd": "strategies.gossip.relaysgd:RelaySGD",
        "gossipgrad": "strategies.gossip.gossipgrad:GossipGraD",
        "choco": "strategies.gossip.choco:Choco",
        "adpsgd": "strategies.gossip.adpsgd:ADPSGD",
        "noloco": "strategies.gossip.noloco:NoLoCo",
        "averaging": "strategies.periodic.averaging:Averaging",
        "easgd": "strategies.server.easgd:EASGD",
        "diloco": "strategies.periodic.diloco:DiLoCo",
        "sparseloco": "strategies.periodic.sparseloco:SparseLoCo",
        "fedavg": "strategies.periodic.fedavg:FedAvg",
        "dynamic": "strategies.periodic.dynamic:Dynamic",
        "admm": "strategies.periodic.admm:ADMM",
        "codistillation": "strategies.gossip.codistillation:Codistillation",
        "independent": "strategies.broadcast.independent:Independent",
        "probe": "strategies.probing.probe_method:Probing",
    },
    bases=("strategies.api:Method", "strategies.broadcast.broadcast:Broadcast"),
    hidden=("probe",),  # `taut probe` chooses it: it trains nothing together
)
CODECS: Registry[Any] = Registry(
    "taut.codecs",
    {
        "tether": "codecs.algorithms.tether:Tether",
        "threshold": "codecs.algorithms.threshold:Threshold",
        "dense": "codecs.algorithms.dense:Dense",
        "fp16": "codecs.algorithms.fp16:Fp16",
        "bf16": "codecs.algorithms.bf16:Bf16",
        "int8": "codecs.algorithms.int8:Int8",
        "fp8": "codecs.algorithms.fp8:Fp8",
        "qsgd": "codecs.algorithms.qsgd:QSGD",
        "terngrad": "codecs.algorithms.terngrad:TernGrad",
        "topk": "codecs.algorithms.topk:TopK",
        "chunked": "codecs.algorithms.chunked:Chunked",
        "dgc": "codecs.algorithms.dgc:DGC",
        "randomk": "codecs.algorithms.randomk:RandomK",
        "sign": "codecs.algorithms.sign:Sign",
        "onebit": "codecs.algorithms.onebit:OneBit",
        "powersgd": "codecs.algorithms.powersgd:PowerSGD",
        "demo": "codecs.algorithms.demo:DeMo",
    },
    bases=("codecs.codec:Codec", "codecs.compressor:Compressor"),
)
TOPOLOGIES: Registry[Any] = Registry(
    "taut.topologies",
    {
        "complete": "topologies.shapes.basic:Complete",
        "ring": "topologies.shapes.basic:Ring",
        "torus": "topologies.shapes.torus:Torus",
        "star": "topologies.shapes.basic:Star",
        "line": "topologies.shapes.basic:Line",
        "tree": "topologies.shapes.basic:Tree",
        "hypercube": "topologies.shapes.basic:Hypercube",
        "exponential": "topologies.shapes.exponential:Exponential",
        "one-peer": "topologies.shapes.exponential:OnePeer",
        "random": "topologies.shapes.random_regular:RandomRegular",
        "matcha": "topologies.shapes.matcha:Matcha",
        "edges": "topologies.shapes.edge_list:Edges",
    },
    bases=("topologies.shape:Shape",),
)
TRANSPORTS: Registry[Any] = Registry(
    "taut.transports",
    {"zmq": "transport.zmq.factory:Zmq", "memory": "transport.memory:Memory"},
    bases=("transport.transport:TransportFactory",),
)
ENGINES: Registry[Any] = Registry(
    "taut.engines",
    {
        "local": "engines.local:LocalEngine",
        "ssh": "engines.ssh.engine:SshEngine",
        "ray": "engines.ray.engine:RayEngine",
    },
    bases=("engines.base:Engine",),
)
LAUNCHERS: Registry[Any] = Registry(  # the innermost first: srun may start torchrun or mpirun, and these the script
    "taut.launchers",
    {
        "torchrun": "engines.launchers.torchrun:Torchrun",
        "mpi": "engines.launchers.mpi:Mpi",
        "slurm": "engines.launchers.slurm:Slurm",
        "kubernetes": "engines.launchers.kubernetes:Kubernetes",
    },
    bases=("engines.launchers.base:Launcher",),
)
