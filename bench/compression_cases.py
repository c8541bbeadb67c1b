"""What ``compression.py`` runs: every codec, at its default and at two or three points of its dial."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from taut.codecs import REGISTRY, parse, spec
from taut.errors import Misuse
from taut.simulator.models.costs import CodecCost, Costs
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.strategies.compatibility import combine

WORKERS = 4
PASSES = 2  # over MNIST: 470 steps a worker
TASKS = ("mnist", "text")
DGC = "dgc:density=0.001,warmup=20"  # 20 of 470 steps: the paper's share of the run (4 of 90 epochs)
COMPRESSORS = (
    "fp16",
    "int8",
    "fp8",
    "onebit",
    "sign",
    "qsgd",
    "terngrad",
    "topk:density=0.01",
    "topk:density=0.001",
    "topk:density=0.001,feedback=no",
    DGC,
    "randomk:density=0.01",
    "powersgd:rank=2",
    "demo:sign=no",
)
DIALS = (
    "bf16",
    "sign:feedback=no",
    "qsgd:levels=1",
    "dgc:density=0.001",
    "powersgd:rank=1",
    "powersgd:rank=4",
    "powersgd:rank=2,feedback=no",
)
DENSITIES = ("threshold", "threshold:density=0.001")
TAUS = tuple(f"threshold:tau=2^{power}" for power in (-8, -7, -6))
LED = "threshold:tau=2^-6,gain=2,lead=4"  # a gain of sqrt(p) and a lead: chosen on a part of the training set
HALVES = ("threshold:tau=2^-6,gain=2", "threshold:tau=2^-7,lead=4")  # either alone, at about as many bytes
TETHERS = ("tether", "tether:density=0.001", "tether:slack=2^-5")
SOME = ("int8", "onebit", "sign", "terngrad", "topk:density=0.001", DGC, "powersgd:rank=2")
PLAN: dict[tuple[str, str], tuple[str, ...]] = {
    ("mnist", "sync"): ("dense", *COMPRESSORS, *DIALS, *DENSITIES),
    ("mnist", "async"): ("dense", *SOME, *DENSITIES, *TAUS, LED, *TETHERS),
    ("mnist", "ssp:0"): ("dense", *TAUS, LED, *HALVES, "tether:density=0.001"),  # changes, as in async, but in lock-step
    ("text", "sync"): ("dense", *COMPRESSORS, "threshold"),
    ("text", "async"): ("threshold", "threshold:gain=2,lead=4", "tether", "tether:density=0.001"),
}
QUICK: dict[tuple[str, str], tuple[str, ...]] = {
    ("mnist", "sync"): ("dense", "int8", "topk:density=0.01", "powersgd:rank=2"),
    ("mnist", "async"): ("threshold:density=0.002", "tether"),
}
# Momentum that is part of a codec must not be in the optimizer too.
MOMENTUM = {"dgc": 0.0}

# Alike for all, so that a codec is judged by what it leaves of the updates, not by how long it or its bytes take: a dense
# update to three peers is 6.4 ms of a step's 100. (With steps of 10 ms workers exchange after every few of them only.)
SPEEDS = Speeds(0.1, "lognormal:0.1")
LINKS = Links(Link(10e9, 50e-6))
COST = CodecCost(encode_s_per_element=1e-9, absorb_s_per_byte=1e-10, bits_per_element=1.0)


@dataclass(frozen=True, order=True)
class Case:
    """One codec, as it is set, for one task under one strategy.

    >>> Case("mnist", "sync", "dgc:density=0.001").momentum, Case("text", "sync", "topk:density=0.01").name
    (0.0, 'topk')
    """

    task: str
    strategy: str
    codec: str

    @property
    def name(self) -> str:
        return self.codec.partition(":")[0]

    @property
    def dial(self) -> str:
        return self.codec.partition(":")[2]

    @property
    def momentum(self) -> float:
        return MOMENTUM.get(self.name, 0.9)

    def __str__(self) -> str:
        return f"{self.task}, {self.strategy}, {self.codec}"


def chosen(tasks: Collection[str], only: Collection[str], quick: bool) -> list[Case]:
    """All cases of these tasks, those of the named codecs alone if there are names."""
    plan = QUICK if quick else PLAN
    return [
        case
        for (task, strategy), codecs in plan.items()
        for case in (Case(task, strategy, codec) for codec in codecs)
        if task in tasks and (not only or case.name in only)
    ]


def refused(cases: Sequence[Case]) -> Iterator[tuple[Case, str]]:
    """Those that this version of taut does not take, and what it says."""
    for case in cases:
        try:
            combine(case.strategy, None, spec(parse(case.codec)), None, WORKERS)
        except Misuse as error:
            yield case, str(error)


def scenario(case: Case, seed: int, script: str, data: str, samples: int | None) -> Scenario:
    """Two passes over MNIST, or 400 steps of four times 16 windows of text."""
    args = [case.task, "--data", data, "--seed", str(seed), "--momentum", str(case.momentum)]
    args += ["--epochs", str(PASSES)] if case.task == "mnist" and not samples else []
    args += ["--samples", str(samples)] if samples else []
    return Scenario(
        WORKERS,
        case.strategy,
        codec=case.codec,
        seed=seed,
        script=script,
        args=tuple(args),
        links=LINKS,
        speeds=SPEEDS,
        costs=Costs(codecs=dict.fromkeys(REGISTRY, COST)),
    )
