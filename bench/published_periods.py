"""How rarely may workers talk? EASGD against Downpour over communication periods: a part of ``published.py``.

Zhang et al. compare the two on CIFAR-10 with the learning rate chosen for each; here a small perceptron learns the digits
(``jobs/periods.py``), 900 steps per worker, each method at each period with the best of its rates. Downpour is the
published one: what workers push is added as it is. Where p workers push at once what tau steps at rate r made of a
direction of curvature h, the error there is multiplied by

    1 - p (1 - (1 - r h)^tau)         stable only if (1 - r h)^tau > 1 - 2 / p,  for 4 workers: tau r h < 0.69

while EASGD's springs, 0.9 / p each, never add up to more than 1. That is a reason, not a sharp limit: pushes do not all
come at once. h is up to 7 in this network (on a path of plain SGD), so the rate of 0.0015, which only Downpour gets, is
stable at period 64. The accuracy is of the model that comes out: the centre, or the server's weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from processes import JOBS
from report import Row, row
from spectrum import WORKERS
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

ETHERNET = Links(Link(1e9, 100e-6))


@dataclass(frozen=True)
class Contestant:
    """How it is written for a period, and the learning rates to choose from."""

    label: str
    strategy: str
    rates: tuple[float, ...]


RATES = (0.4, 0.1, 0.025, 0.00625)
MIDDLE_RATE = RATES[1]
EASGD = Contestant("EASGD", "easgd:every={0}", RATES)
DOWNPOUR = Contestant("Downpour", "server:push={0},pull={0},staleness=none,scale=1", (*RATES, 0.0015))
SERVER = Contestant("server as it is by default", "server:push={0},pull={0}", (MIDDLE_RATE,))
PERIODS = (1, 4, 16, 64)
NEVER = 1_000_000  # only what the end of a run takes is exchanged


class Trained:
    """Accuracy in percent and megabytes of runs; those in ``--resume FILE`` are not made again."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.path: Path | None = args.resume
        self.epochs = 5 if args.quick else 20
        self.seeds = 1 if args.quick else args.seeds
        lines = self.path.read_text().splitlines() if self.path and self.path.exists() else []
        self.made: dict[tuple[str, float, int, int], list[float]] = {
            tuple(key): out for key, out in map(json.loads, lines)
        }

    def run(self, one: Contestant, period: int, rate: float, seed: int) -> list[float]:
        key = (one.strategy.format(period), rate, seed, self.epochs)
        if key not in self.made:
            job = ("--rate", str(rate), "--seed", str(seed), "--epochs", str(self.epochs))
            scenario = Scenario(WORKERS, key[0], seed=seed, links=ETHERNET, speeds=Speeds(0.01, "lognormal:0.2"))
            with np.errstate(all="ignore"):  # what diverges scores what it deserves
                done = simulate_script(replace(scenario, script=str(JOBS / "periods.py"), args=job))
            assert done.validation is not None and not done.error, done.error
            sent = sum(each.bytes_sent for each in done.workers.values())
            self.made[key] = [float(done.validation.chosen or 0.0), sent / 1e6]
            print(f"periods: {key}: {self.made[key][0]:.2f}%, {self.made[key][1]:.1f} MB", file=sys.stderr, flush=True)
            if self.path:
                with self.path.open("a") as file:
                    file.write(json.dumps([key, self.made[key]]) + "\n")
        return self.made[key]

    def mean(self, one: Contestant, period: int, rate: float) -> list[float]:
        """Accuracy, megabytes: over seeds. And the accuracy's spread."""
        runs = [self.run(one, period, rate, seed) for seed in range(self.seeds)]
        accuracy, sent = zip(*runs, strict=True)
        return [statistics.mean(accuracy), statistics.mean(sent), max(accuracy) - min(accuracy)]


def periods(args: argparse.Namespace) -> list[Row]:
    """Each method at each period with the best of its rates."""
    trained, rows = Trained(args), []
    chosen = PERIODS[::2] if args.quick else PERIODS
    best: dict[tuple[str, int], float] = {}
    for one in (EASGD, DOWNPOUR) if args.quick else (EASGD, DOWNPOUR, SERVER):
        rates = (MIDDLE_RATE,) if args.quick else one.rates
        for period in chosen:
            found = {rate: trained.mean(one, period, rate) for rate in rates}
            rate = max(found, key=lambda each: found[each][0])
            best[one.label, period] = found[rate][0]
            rows.append(row(f"{one.label}, every {period}: accuracy (rate {rate:g})", found[rate][0], "%"))
            rows.append(row(f"{one.label}, every {period}: spread between seeds", found[rate][2], "points"))
            rows += [row(f"{one.label}, every {period}: rate {each:g}", found[each][0], "%") for each in rates]
        rows += _traffic(trained, one, chosen)
    rows.append(row("EASGD that never exchanges until the end", trained.mean(EASGD, NEVER, EASGD.rates[0])[0], "%"))
    falls = {label: best[label, chosen[0]] - min(best[label, each] for each in chosen) for label, _ in best}
    rows.append(row("EASGD: falls from period 1 to its worst", falls["EASGD"], "points", at_most=1.0))
    rows.append(row("Downpour: falls from period 1 to its worst", falls["Downpour"], "points", at_least=5.0))
    return rows


def _traffic(trained: Trained, one: Contestant, chosen: Sequence[int]) -> list[Row]:
    """Bytes times period, over those of period 1, without what the start and the end of any run take."""
    ends = trained.run(one, NEVER, MIDDLE_RATE, 0)[1]
    sent = {period: trained.run(one, period, MIDDLE_RATE, 0)[1] - ends for period in chosen}
    rows = [row(f"{one.label}, every {period}: exchanged", value, "MB") for period, value in sent.items()]
    off = max(abs(period * value / sent[1] - 1) for period, value in sent.items())
    return [*rows, row(f"{one.label}: exchanged bytes, off from 1 / period", off, "", at_most=0.1)]
