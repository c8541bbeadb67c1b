"""A scenario: everything that decides the outcome of a simulation. Equal scenarios have the same trace, to the byte."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from taut.config.checks import early_stop, evaluation_interval
from taut.errors import Misuse
from taut.simulator.faults import KINDS, Fault, check_fault, kind_of, mentioned, newcomers
from taut.simulator.json_tables import by_ranks, read_record, table
from taut.simulator.models.costs import Costs
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.specs import did_you_mean
from taut.strategies.compatibility import check_rate_scaling

MOST_WORKERS = 65_536


@dataclass(frozen=True)
class Scenario:
    """``parameters`` (how many the model has) and ``batch`` (samples per step, 0: unknown) are for timing alone; if
    workers really train, the script decides them. ``steps``: per worker; None: until the data is used up (script) or 100
    (timing). ``args`` are the script's.

    >>> Scenario.from_record(Scenario(workers=8, seed=7).to_record()) == Scenario(workers=8, seed=7)
    True
    """

    workers: int = 4
    strategy: str = "async"
    topology: str = ""  # empty: the strategy's default
    codec: str = ""
    finish: str = ""
    scale_lr: str = ""
    validate_every: str = ""
    stop_early: str = ""
    seed: int = 0
    steps: int | None = None
    epochs: int | None = None  # passed to the script as --epochs, if given
    script: str = ""
    args: tuple[str, ...] = ()
    parameters: int = 1_000_000
    batch: int = 64
    links: Links = field(default_factory=Links)
    speeds: Speeds = field(default_factory=Speeds)
    faults: tuple[Fault, ...] = ()
    costs: Costs = field(default_factory=Costs)

    def _check_backend(self) -> None:
        """Refuse an all-reduce by torch.distributed, which needs real sockets."""
        from taut.strategies.phases import parse_schedule

        for phase in parse_schedule(self.strategy).phases:
            schedule = phase.choice.settings.get("schedule")
            if schedule in ("gloo", "nccl"):
                raise Misuse(f"strategy {self.strategy!r} in a simulation", "a schedule of taut's own", "schedule=ring")

    def check(self) -> None:
        """Raise ``Misuse`` if a number is out of its range, or if a worker is named that does not exist."""
        for name, least in (("workers", 1), ("parameters", 1), ("batch", 0), ("steps", 1), ("epochs", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise Misuse(f"--{name} {value}", f"a whole number from {least} up")
        if self.workers > MOST_WORKERS:
            raise Misuse(f"--workers {self.workers}", f"at most {MOST_WORKERS}")
        for fault in self.faults:
            check_fault(fault)
        ranks = self.workers + sum(newcomers(fault) for fault in self.faults)
        for what, rank in self._mentioned():
            if not 0 <= rank < ranks:
                raise Misuse(f"{what} of worker {rank}", f"a worker from 0 to {ranks - 1}", f"there are {ranks}")
        self._check_backend()
        if self.validate_every:
            evaluation_interval(self.validate_every, "--validate-every")
        if self.stop_early:
            early_stop(self.stop_early, "--stop-early")
            if not self.validate_every:
                given, remedy = f"--stop-early {self.stop_early} without --validate-every", "such as --validate-every 30s"
                raise Misuse(given, "how often to evaluate", remedy)
        if self.scale_lr:
            check_rate_scaling(self.scale_lr, self.strategy, self.workers)

    def to_record(self) -> dict[str, Any]:
        """Return plain JSON, which ``from_record`` reads back to an equal scenario."""
        record = {each.name: getattr(self, each.name) for each in fields(self)}
        record["args"] = list(self.args)
        record["links"] = _links_record(self.links)
        record["speeds"] = asdict(self.speeds) | {"stragglers": _by_text(self.speeds.stragglers)}
        record["faults"] = [{"kind": kind_of(fault), **asdict(fault)} for fault in self.faults]
        record["costs"] = asdict(self.costs)
        return record

    @classmethod
    def from_record(cls, record: object) -> Scenario:
        """Return the scenario that ``to_record`` wrote; fields left out have their default. Raises ``Misuse``."""
        readers = {"links": _links, "speeds": _speeds, "faults": _faults, "costs": Costs.from_record}
        return read_record(cls, record, "scenario", **readers)

    def _mentioned(self) -> Iterator[tuple[str, int]]:
        yield from (("a straggler's speed", rank) for rank in self.speeds.stragglers)
        yield from (("the link", rank) for rank in self.links.of_worker)
        yield from (("the link", rank) for pair in self.links.of_pair for rank in pair)
        yield from (("the shared link", rank) for shared in self.links.shared for rank in sorted(shared.members))
        yield from ((f"the {kind_of(fault)}", rank) for fault in self.faults for rank in mentioned(fault))


def _by_text(of_rank: Any) -> dict[str, Any]:
    return {str(rank): of_rank[rank] for rank in sorted(of_rank)}


def _link_record(link: Link) -> dict[str, Any]:
    return asdict(link) | {"bits_per_s": None if math.isinf(link.bits_per_s) else link.bits_per_s}  # JSON has no infinity


def _links_record(links: Links) -> dict[str, Any]:
    return {
        "default": _link_record(links.default),
        "of_worker": _by_text({rank: _link_record(link) for rank, link in links.of_worker.items()}),
        "of_pair": {f"{one}-{other}": _link_record(link) for (one, other), link in sorted(links.of_pair.items())},
        "shared": [{"members": sorted(each.members), "bits_per_s": each.bits_per_s} for each in links.shared],
        "per_host": links.per_host,
    }


def _rate(value: Any) -> float:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise Misuse(f"a link with bits_per_s = {value!r}", "a number, or null for no limit")
    return math.inf if value is None else float(value)


def _links(record: object) -> Links:
    def link(given: object) -> Link:
        return read_record(Link, given, "link", bits_per_s=_rate)

    def links(given: object, ranks: int) -> dict[Any, Any]:
        return {key: link(each) for key, each in by_ranks(given, "the link", ranks).items()}

    of_ranks = {"of_worker": lambda given: links(given, 1), "of_pair": lambda given: links(given, 2)}
    return read_record(Links, record, "links", default=link, **of_ranks)


def _speeds(record: object) -> Speeds:
    return read_record(Speeds, record, "speeds", stragglers=_stragglers)


def _stragglers(record: object) -> dict[int, float]:
    found = by_ranks(record, "a straggler's speed")
    for rank, times in found.items():
        if isinstance(times, bool) or not isinstance(times, int | float):
            raise Misuse(f"a straggler's speed of {rank}: {times!r}", "how many times slower")
    return found


def _faults(record: object) -> tuple[Fault, ...]:
    if not isinstance(record, list | tuple):
        raise Misuse(f"faults {record!r}", "a list")
    found: list[Fault] = []
    for each in record:
        given = dict(table(each, "fault"))
        name = given.pop("kind", None)
        if name not in KINDS:
            raise Misuse(f"a fault of kind {name!r}", f"one of {', '.join(KINDS)}", did_you_mean(str(name), KINDS))
        found.append(read_record(KINDS[name], given, f"a {name}"))
    return tuple(found)
