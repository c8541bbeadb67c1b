"""Do methods that train alone for many steps keep their papers' order? Loss and bytes of each, at equal samples.

A character transformer of 0.8 million parameters on tiny Shakespeare (``bench/jobs/loco.py``), four workers with batches
of 4 windows of 64 characters, 160 steps each, exchanges every 5 steps; validation loss of the model that comes out, in
nats per character. Runs are made by the simulator: real training with the runtime's own code, in virtual time, with
exact bytes (what all workers handed to the transport, the first weights included). The rate of AdamW and Muon (4e-3,
warm-up and cosine) is the same for all, and untuned; outer settings are the papers'. A loss is compared with diloco's of
the same seeds. The bars are the papers' order:

    sparseloco  Sarfi et al. 2025: at most diloco's loss, at far fewer bytes
    noloco      Kolehmainen et al. 2025: at most diloco's loss, without an all-reduce
    decoupled   Douillard et al. 2026: as good as diloco, within 1%
    eager       Kale et al. 2025: as good as diloco, within 1%
    muloco      Thérien et al. 2025: diloco with Muon in the workers, at most diloco's loss

    python bench/quality/loco.py [--seeds 3] [--only sync,diloco] [--resume FILE [--made]] [--quick] [--json]

With ``--resume`` every finished run is a line in FILE, and what is there is not made again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from processes import JOBS
from report import Grid, Row, arguments, report, row
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

TEXT = Path(__file__).resolve().parents[3] / "shared" / "data" / "tinyshakespeare" / "input.txt"
WORKERS, BATCH, STEPS, EVERY = 4, 4, 160, 5
RATE = 4e-3
NEAR = 0.01  # of diloco's loss: as good as


@dataclass(frozen=True)
class Method:
    """One that is compared. ``bar``: how much more than diloco's its loss may be, in shares of that; None: no bar."""

    strategy: str
    optimizer: str = "adamw"
    codec: str = ""
    bar: float | None = None


METHODS = {
    "sync": Method("sync"),
    "sync with Muon": Method("sync", "muon"),
    "averaging": Method(f"averaging:every={EVERY}"),
    "diloco": Method(f"diloco:every={EVERY}"),
    "sparseloco": Method(f"sparseloco:every={EVERY}", bar=0.0),
    "sparseloco at 3%": Method(f"sparseloco:every={EVERY}", codec="chunked:density=0.03", bar=0.0),
    "noloco": Method(f"noloco:every={EVERY}", bar=0.0),
    "decoupled of 3": Method(f"diloco:every={EVERY},quorum=3", bar=NEAR),
    "decoupled": Method(f"diloco:every={EVERY},overlap=1,quorum=2", bar=NEAR),
    "eager": Method(f"diloco:every={EVERY},eager=true", bar=NEAR),
    "eager at momentum 0.5": Method(f"diloco:every={EVERY},eager=true,outer_momentum=0.5"),
    "muloco": Method(f"diloco:every={EVERY}", "muon", bar=0.0),
}


def run(name: str, seed: int, steps: int, data: Path) -> dict[str, Any]:
    """Return the record of one run: its loss, and the megabytes that all workers sent."""
    method = METHODS[name]
    job = {"--data": data, "--samples": WORKERS * BATCH * steps, "--workers": WORKERS, "--batch": BATCH, "--seed": seed}
    job |= {"--optimizer": method.optimizer, "--rate": RATE}
    made = Scenario(
        WORKERS,
        method.strategy,
        codec=method.codec,
        seed=seed,
        script=str(JOBS / "loco.py"),
        args=tuple(str(part) for pair in job.items() for part in pair),
        links=Links(Link(10e9, 50e-6)),
        speeds=Speeds(0.1, "lognormal:0.1"),
    )
    done = simulate_script(made)
    if done.error or done.validation is None:
        raise SystemExit(f"{name}, seed {seed}: {done.error or 'no validation score'}")
    sent = sum(worker.bytes_sent for worker in done.workers.values()) / 1e6
    return {"name": name, "seed": seed, "steps": steps, "loss": done.validation.chosen, "mb": sent}


def runs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the records of all runs that are wanted, those in the file of ``--resume`` first."""
    steps = 8 if args.quick else STEPS
    lines = args.resume.read_text().splitlines() if args.resume and args.resume.exists() else []
    known = {(one["name"], one["seed"]): one for one in map(json.loads, lines) if one["steps"] == steps}
    for seed in range(1 if args.quick else args.seeds):
        for name in args.only.split(",") if args.only else METHODS:
            if args.made and (name, seed) not in known:
                continue
            found = known.get((name, seed)) or run(name, seed, steps, args.data)
            print(f"{name}, seed {seed}: loss {found['loss']:.4f}, {found['mb']:.4g} MB", file=sys.stderr, flush=True)
            if args.resume and (name, seed) not in known:
                with args.resume.open("a") as file:
                    file.write(json.dumps(found) + "\n")
            yield found


def rows_of(found: list[dict[str, Any]], quick: bool) -> tuple[list[Row], Grid]:
    """Return the rows and their bars (none of a quick run, which has not trained), and all losses side by side."""
    losses: dict[str, dict[int, float]] = {}
    sent: dict[str, float] = {}
    for one in found:
        losses.setdefault(one["name"], {})[one["seed"]] = one["loss"]
        sent[one["name"]] = one["mb"]
    rows = []
    for name, each in losses.items():
        rows.append(row(f"{name}: loss, {len(each)} seed(s)", statistics.fmean(each.values()), "nats"))
    if "sync" in sent:
        rows += [row(f"{name}: bytes, times fewer than sync", sent["sync"] / sent[name], "x") for name in sent]
    base = losses.get("diloco", {})
    for name, each in losses.items():
        bar, common = METHODS[name].bar, sorted(base.keys() & each.keys())
        if bar is not None and common:
            more = statistics.fmean(each[seed] / base[seed] for seed in common) - 1.0
            at_most = None if quick else 100.0 * bar
            rows.append(row(f"{name}: loss above diloco's, {len(common)} seed(s)", 100.0 * more, "%", at_most=at_most))
    if {"sparseloco", "diloco"} <= sent.keys():
        times = sent["diloco"] / sent["sparseloco"]
        rows.append(row("sparseloco: bytes, times fewer than diloco", times, "x", at_least=10.0))
    seeds = sorted({seed for each in losses.values() for seed in each})
    lines = {name: [*(each.get(seed) for seed in seeds), sent[name]] for name, each in losses.items()}
    return rows, Grid("method", [*(f"loss, seed {seed}" for seed in seeds), "MB sent"], lines)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="methods, separated by commas")
    parser.add_argument("--resume", type=Path, default=None, help="a file of runs that are made")
    parser.add_argument("--made", action="store_true", help="report what is in the file of --resume, and make no run")
    parser.add_argument("--data", type=Path, default=TEXT, help="tiny Shakespeare's input.txt")
    args = parser.parse_args()
    rows, grid = rows_of(list(runs(args)), args.quick)
    report("quality-loco", rows, args, grid)


if __name__ == "__main__":
    main()
