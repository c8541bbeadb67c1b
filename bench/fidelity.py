"""How far can the simulator be trusted? The same runs really made, on hosts of the network lab, and predicted.

Sixteen configurations: 2 and 4 workers, cables of 100 Mbit/s and 1 Gbit/s, sync, dpsgd and async, dense and tether. Steps
are paced by sleeping (``jobs/paced.py``), as if on devices of their own, since the machine has fewer cores than hosts.
What the prediction is told: the step's time (from one run that never talks), the cables' rate, and the default costs of
codecs and messages (``bench/costs.py``); nothing of the runs that it predicts. Step times are means over the steps in
which all workers had data, without the first few.

The ranking is judged over the pairs of configurations whose real step times differ by more than 3%: of the others nobody
can say which is faster.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from processes import JOBS, hosts, hosts_run, why_no_hosts
from report import Row, arguments, report, row
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.simulator.timing.simulation import simulate_timing

SHARED = Path(__file__).resolve().parents[2] / "shared"
WARM_UP = 4  # steps
LATENCY_S = 60e-6  # one way between two hosts of the lab, by ping
RATES = {"100mbit": 1e8, "1gbit": 1e9}
BURSTS = {"100mbit": 64_000, "1gbit": 512_000}  # of the lab's cables: so much goes at once after a rest
METHODS = (("sync", "dense"), ("dpsgd", "dense"), ("async", "tether"), ("async", "dense"))
TOPOLOGY = {"sync": "complete", "dpsgd": "ring", "async": "complete", "independent": "complete"}
ALIKE = 0.03


@dataclass(frozen=True)
class Configuration:
    workers: int
    rate: str
    strategy: str
    codec: str

    def __str__(self) -> str:
        return f"{self.strategy}, {self.codec}, {self.workers} at {self.rate}"

    @property
    def options(self) -> list[str]:
        return ["--strategy", self.strategy, "--topology", TOPOLOGY[self.strategy], "--codec", self.codec]


def step_s(ends: Mapping[int, Sequence[float]]) -> float:
    """Seconds per step while all workers had data, by when the steps of each ended."""
    until = min(one[-1] for one in ends.values())
    paces = []
    for one in ends.values():
        within = [end for end in one[WARM_UP:] if end <= until]
        paces.append((within[-1] - within[0]) / (len(within) - 1))
    return statistics.mean(paces)


def really(configuration: Configuration, args: argparse.Namespace, folder: Path) -> float:
    job = ["--step", str(args.step), "--steps", str(args.steps), "--width", str(args.width)]
    made = hosts_run(args.netlab, "paced.py", job, folder, workers=configuration.workers, options=configuration.options)
    return step_s({rank: record["ends"] for rank, record in enumerate(made.records)})


def scenario(configuration: Configuration, compute_s: float, args: argparse.Namespace) -> Scenario:
    return Scenario(
        workers=configuration.workers,
        strategy=configuration.strategy,
        topology=TOPOLOGY[configuration.strategy],
        codec=configuration.codec,
        script=str(JOBS / "paced.py"),
        args=("--width", str(args.width), "--steps", str(args.steps)),
        parameters=4 * (args.width + 1) * args.width,
        batch=8,
        links=Links(Link(RATES[configuration.rate], LATENCY_S / 2, burst_nbytes=BURSTS[configuration.rate])),
        speeds=Speeds(step_s=compute_s),
    )


def predicted(configuration: Configuration, compute_s: float, args: argparse.Namespace) -> tuple[float, float]:
    """With real training, and by sizes and durations alone."""
    given = scenario(configuration, compute_s, args)
    found = simulate_script(given)
    ends: dict[int, list[float]] = {}
    for point in found.history:
        ends.setdefault(point.rank, []).append(point.time_s)
    return step_s(ends), timed(given)


def timed(given: Scenario) -> float:
    """Seconds per step by sizes and durations alone, in the middle half of the run."""
    return given.workers / simulate_timing(given).counted["steps_per_s"]


def kendall(real: Sequence[float], told: Sequence[float]) -> float:
    """Kendall's tau over the pairs that really differ.

    >>> kendall([1.0, 2.0, 3.0], [1.0, 5.0, 4.0])
    0.3333333333333333
    """
    signs = []
    for one, other in itertools.combinations(range(len(real)), 2):
        if abs(real[one] - real[other]) > ALIKE * min(real[one], real[other]):
            signs.append(1 if (real[one] - real[other]) * (told[one] - told[other]) > 0 else -1)
    return sum(signs) / len(signs)


def judged(name: str, real: Sequence[float], told: Sequence[float], bars: bool) -> list[Row]:
    errors = [abs(t - r) / r for r, t in zip(real, told, strict=True)]
    limits = ({"at_most": 0.10}, {"at_most": 0.25}, {"at_least": 0.9}) if bars else ({}, {}, {})
    return [
        row(f"{name}: median error", statistics.median(errors), "", **limits[0]),
        row(f"{name}: worst error", max(errors), "", **limits[1]),
        row(f"{name}: Kendall's tau", kendall(real, told), "", **limits[2]),
    ]


def measure(args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    real, trained, by_time = [], [], []
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        for workers, rate in itertools.product(args.workers, ["1gbit"] if args.quick else RATES):
            with hosts(args.netlab, workers, rate):
                quiet = Configuration(workers, rate, "independent", "dense")
                compute_s = really(quiet, args, Path(folder) / "quiet")
                rows.append(row(f"a step that never talks, {workers} at {rate}", 1e3 * compute_s, "ms"))
                for strategy, codec in METHODS:
                    one = Configuration(workers, rate, strategy, codec)
                    real.append(really(one, args, Path(folder) / "real"))
                    both = predicted(one, compute_s, args)
                    trained.append(both[0])
                    by_time.append(both[1])
                    text = f"{one}: {1e3 * real[-1]:.1f} ms, predicted {1e3 * both[0]:.1f} and {1e3 * both[1]:.1f}"
                    print(text, file=sys.stderr, flush=True)
                    rows.append(row(f"{one}: really", 1e3 * real[-1], "ms"))
                    rows.append(row(f"{one}: simulated", 1e3 * both[0], "ms"))
                    rows.append(row(f"{one}: timing only", 1e3 * both[1], "ms"))
    return [*rows, *judged("simulated", real, trained, True), *judged("timing only", real, by_time, True)]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--netlab", type=Path, default=SHARED / "netlab" / "netlab.sh")
    parser.add_argument("--width", type=int, default=512, help="4 layers of width x width: a million parameters")
    parser.add_argument("--step", type=float, default=0.1, help="seconds of computing per step")
    parser.add_argument("--steps", type=int, default=60, help="of four workers, each")
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    args = parser.parse_args()
    if args.quick:
        args.workers, args.steps = [2], 12
    reason = why_no_hosts(args.netlab)
    if reason:
        parser.error(f"no network lab: {reason}")
    report("fidelity", measure(args), args)


if __name__ == "__main__":
    main()
