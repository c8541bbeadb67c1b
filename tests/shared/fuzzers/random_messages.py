"""Random messages of workers, made from their types: with values of the run (its ranks, its leases, its versions), or at
the bounds of the type.
"""

from __future__ import annotations

import functools
import random
import re
from typing import Any, get_args

import msgspec
from msgspec import inspect

from taut.core.messages import PROTOCOL_VERSION, Done, Failed, Lease, TensorSpec, View, WorkerMessage, own_lease
from taut.supervisor.run.cluster import Cluster

MODEL = [TensorSpec("w", [3, 4], "float32", "trained"), TensorSpec("mean", [2], "float32", "buffer")]
KINDS: tuple[Any, ...] = get_args(WorkerMessage)
WEIGHTS = [
    0.1 if kind in (Done, Failed) else 1.0 for kind in KINDS
]  # rarer, since a worker that is gone sends nothing more
TEXTS = ("", "done", "ready", "training", "drained", "float32", "a" * 40, "a reason\nin two lines", "é\u4e2d")
LIKELY = 0.8  # how often a value is one that a worker might give here


class RandomMessages:
    """Random messages for a run with data of ``length`` samples."""

    def __init__(self, rng: random.Random, length: int) -> None:
        self.rng, self.length = rng, length
        self._likely: dict[str, list[Any]] = {}

    def any(self, cluster: Cluster, rank: int) -> Any:
        """Return a message as worker ``rank`` of this run might send it."""
        self._likely = self._values(cluster, rank)
        return self._made(self.rng.choices(KINDS, WEIGHTS)[0], cluster, rank)

    def _made(self, kind: type[msgspec.Struct], cluster: Cluster, rank: int) -> Any:
        return kind(**{each.name: self._value(each.name, each.type, cluster, rank) for each in _fields(kind)})

    def _value(self, name: str, kind: inspect.Type, cluster: Cluster, rank: int) -> Any:  # noqa: PLR0911  # one per type
        rng, likely = self.rng, self._likely.get(name)
        if likely and rng.random() < LIKELY:
            return rng.choice(likely)
        match kind:
            case inspect.UnionType():
                return self._value(name, rng.choice(kind.types), cluster, rank)
            case inspect.StructType(cls=cls):
                return (
                    self.lease(cluster, rank) if cls is Lease and rng.random() < 0.7 else self._made(cls, cluster, rank)
                )
            case inspect.ListType(item_type=item):
                return [self._value(f"{name} item", item, cluster, rank) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
            case inspect.VarTupleType(item_type=item):
                return tuple(self._value(f"{name} item", item, cluster, rank) for _ in range(rng.choice((0, 0, 1, 5))))
            case inspect.DictType():
                return {rng.choice((0, 1, 2, 7)): rng.choice((0, 9, 2**62)) for _ in range(rng.randrange(3))}
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.FloatType() | inspect.IntType():
                return self._number(kind)
            case inspect.StrType(pattern=pattern):
                return rng.choice([text for text in TEXTS if pattern is None or re.search(pattern, text)])
            case _:
                raise AssertionError(f"{name}: {kind}")

    def _number(self, kind: inspect.FloatType | inspect.IntType) -> float:
        numbers: list[float] = [kind.ge or 0, kind.le or 0, 0, 1, 2, 3, 8, 100, 2**31, 2**53, self.rng.randrange(64)]
        if isinstance(kind, inspect.FloatType):
            numbers += [5e-324, 1e-300, 0.5, 1e17, -0.0]
        return self.rng.choice([number for number in numbers if (kind.ge or 0) <= number <= (kind.le or 0)])

    def _values(self, cluster: Cluster, rank: int) -> dict[str, list[Any]]:
        """Return values that a worker of this run might give, by the names of fields."""
        worker = cluster.members.workers.get(rank)
        heard = 0 if worker is None else min(worker.heard, 2**62)
        gone = [one.rank for one in cluster.members.workers.values() if not one.live]
        return {
            "said": [heard],
            "rank": [rank, rank, rank + 1, *gone[:1]],
            "was": [-1, -1, *gone],
            "epoch": [0, 1, 2, 3],
            "length": [self.length] * 7 + [7],
            "batch": [8],
            "until": [0, 3, 3, 2**62],
            "version": [PROTOCOL_VERSION, cluster.members.version, cluster.lease_server.reserves._versions],
            "model": [MODEL, MODEL, []],
            "public_key": ["k" * 40],
            "pid": [100, 101, 200],
            "host": ["host"],
            "leases item": list(cluster.leases.open)[:6],
            "begun item": list(cluster.leases.open)[:6],
            "number": [cluster.checkpointing.number, cluster.checkpointing.number + 1],
            "issued": [min(cluster.leases.issued, 2**62), 0],
            "state": ["joining", "ready", "done", "drained"],
            "elected": [
                None,
                None,
                *(View(1, cluster.members.version, ranks, own=True) for ranks in ([0, 1], [0, 1, 2])),
            ],
            "leaving": [False, False, False, True],
            "phase": [0, 0, 1],
        }

    def lease(self, cluster: Cluster, rank: int) -> Lease:
        """Return an open lease, or one from this worker's reserve."""
        held = [lease for _, lease in cluster.leases.open.values()]
        for epoch, lo, hi in cluster.leases.reserved.get(rank, []):
            held.append(Lease(own_lease(rank, self.rng.randrange(2**30)), epoch, lo, self.rng.choice((hi, lo + 8))))
        return self.rng.choice(held) if held else Lease(0, 0, 0, 8)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields
