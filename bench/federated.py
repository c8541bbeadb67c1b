"""How many rounds does federated averaging take? MNIST split over 100 clients, beside the tables of McMahan et al. 2017.

A cell is a model, a split (iid; or shards:2: two labels per client), the fraction C of the clients in a round, and the E
passes that each makes over its own data, in batches of 10. Measured are the rounds until the test accuracy first is 97%
(2NN; CNN also 99%), in real runs of ``taut run --clients 100``. The paper chose the best of about ten learning rates for
each cell; here it is the best of ``--rates``, with one seed.

    python bench/federated.py [--only 2nn,iid,0.1,1 ...] [--rates 0.1 0.05] [--resume FILE] [--for-s S] [--quick] [--json]

``--resume FILE`` keeps each run (JSON lines), and takes from there what was run before. With ``--for-s`` a run stops
after so long, and the next call goes on with it (one worker; a run in pieces has other seeds in each). A cell without a
run that came to its end keeps the rows that it had in results/federated.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from processes import taut_run
from report import RESULTS, Row, arguments, report, row

SHARED = Path(__file__).resolve().parents[2] / "shared"
ALIKE, UNLIKE = "iid", "shards:2"
TARGETS = {"2nn": (0.97,), "cnn": (0.97, 0.99)}
# Rounds to 97% (2NN: table 1) and 99% (CNN: table 2, and of table 1 those with C = 1), batches of 10. Compared with a
# transcription of both tables in a public review of the paper (J. A. Lorencio Abril, 2023), not with the paper itself.
# That review's table 1 has 18 and 206 for the CNN with C = 0.1, E = 5, where table 2 has 20 and 229.
PAPER = {
    ("2nn", ALIKE, 0.1, 1): 87,
    ("2nn", UNLIKE, 0.1, 1): 664,
    ("2nn", ALIKE, 1.0, 1): 70,
    ("2nn", UNLIKE, 1.0, 1): 380,
    ("cnn", ALIKE, 0.1, 1): 34,
    ("cnn", UNLIKE, 0.1, 1): 350,
    ("cnn", ALIKE, 0.1, 5): 20,
    ("cnn", UNLIKE, 0.1, 5): 229,
    ("cnn", ALIKE, 0.1, 20): 18,
    ("cnn", UNLIKE, 0.1, 20): 173,
    ("cnn", ALIKE, 1.0, 5): 16,
    ("cnn", UNLIKE, 1.0, 5): 97,
}
ABOUT = """Each row is one run with one seed: no spread is known. The rate is the best of those that were run for that
cell: 0.1 alone, or 0.05 and 0.1. Rows are of several calls, on a machine that others used; its load moves times, not
rounds. Cells without a row were not run to their end. The paper's figures are from a transcription of its tables 1 and
2 in a public review of it."""
WORSE = 1.5  # as many rounds as the paper's, times this: one seed, and few learning rates
LIMIT_S = 3600.0


@dataclass(frozen=True)
class Cell:
    model: str
    split: str
    fraction: float
    epochs: int

    @property
    def paper(self) -> int | None:
        return PAPER.get((self.model, self.split, self.fraction, self.epochs))

    def __str__(self) -> str:
        return f"{self.model}, {self.split}, C = {self.fraction:g}, E = {self.epochs}"


CELLS = [Cell(m, s, c, e) for m in TARGETS for s in (ALIKE, UNLIKE) for c in (0.1, 1.0) for e in (1, 5, 20)]


def run(cell: Cell, rate: float, args: argparse.Namespace, folder: Path) -> dict[str, Any] | None:
    """One run, as a record: the accuracy after each round. None if it stopped early, to go on in the next call."""
    rounds = args.rounds or 2 * (cell.paper or 100)
    target = args.target or max(TARGETS[cell.model])
    given = ["--data", str(args.data / "mnist"), "--model", cell.model, "--split", cell.split, "--rate", f"{rate:g}"]
    given += [
        "--epochs",
        str(cell.epochs),
        "--rounds",
        str(rounds),
        "--target",
        f"{target}",
    ]
    given += ["--samples", str(args.samples)] if args.samples else []
    begun = 0
    if args.for_s:
        state = args.resume.resolve().with_name(f"{args.resume.stem}-{cell}-{rate:g}.pt".replace(" ", ""))
        begun = len(torch.load(state, weights_only=True)["accuracies"]) if state.exists() else 0
        given += ["--state", str(state), "--for-s", f"{args.for_s:g}"]
    options = ["--clients", "100", "--strategy", f"fedavg:fraction={cell.fraction:g},seed={begun}", "--seed", f"{begun}"]
    record = taut_run("federated.py", given, folder, workers=args.workers, options=options, limit_s=LIMIT_S).records[0]
    over = record["accuracies"][-1] >= target or len(record["accuracies"]) >= rounds
    return record if over or not args.for_s else None


def reached(accuracies: Sequence[float], target: float) -> int | None:
    """The number of the first round after which the accuracy is at least ``target``, from 1.

    >>> reached([0.5, 0.98, 0.96], 0.97), reached([0.5], 0.97)
    (2, None)
    """
    return next((number for number, one in enumerate(accuracies, 1) if one >= target), None)


def rows_of(cell: Cell, runs: dict[float, dict[str, Any]], targets: Sequence[float]) -> list[Row]:
    """The rounds at the best rate for each target, beside the paper's."""
    rows = []
    for target in targets:
        found = {rate: reached(made["accuracies"], target) for rate, made in runs.items()}
        best = min((rounds, rate) for rate, rounds in found.items() if rounds) if any(found.values()) else None
        name = f"{cell}: rounds to {100 * target:g}%"
        if best is None:
            least = max(max(made["accuracies"]) for made in runs.values())
            most = max(len(made["accuracies"]) for made in runs.values())
            rates = ", ".join(f"{rate:g}" for rate in runs)
            rows.append(
                row(f"{cell}: not {100 * target:g}% in {most} rounds (rate {rates}, seed 0), but", 100 * least, "%")
            )
            continue
        paper = cell.paper if target == max(TARGETS[cell.model]) else None
        rows.append(
            row(f"{name} (rate {best[1]:g}, seed 0)", best[0], "rounds", at_most=paper * WORSE if paper else None)
        )
        if paper:
            rows.append(row(f"{name}, in the paper", paper, "rounds"))
    return rows


def measure(cells: Sequence[Cell], args: argparse.Namespace, scratch: Path) -> list[Row]:
    kept: dict[str, dict[str, Any]] = {}
    if args.resume and args.resume.exists():
        kept = {one["key"]: one for one in map(json.loads, args.resume.read_text().splitlines())}
    rows = []
    for cell in cells:
        runs = {}
        for rate in args.rates:
            key = f"{cell}, rate {rate:g}"
            if key not in kept:
                if args.resume and args.kept_only:
                    continue
                print(key, file=sys.stderr, flush=True)
                made = run(cell, rate, args, scratch / cell.model)
                if made is None:
                    print(f"{key}: stopped, to go on in the next call", file=sys.stderr, flush=True)
                    continue
                kept[key] = {"key": key, **made}
                if args.resume:
                    with args.resume.open("a") as file:
                        file.write(json.dumps(kept[key]) + "\n")
            runs[rate] = kept[key]
        if runs:
            rows += rows_of(cell, runs, (args.target,) if args.target else TARGETS[cell.model])
    return rows


def merged(rows: Sequence[Row]) -> list[Row]:
    """The rows of all cells: those of results/federated.json stay, but for the cells that ``rows`` has."""
    page = RESULTS / "federated.json"
    before = [Row(**one) for one in json.loads(page.read_text())["rows"]] if page.exists() else []
    anew = {_cell(one) for one in rows}
    kept = [*(one for one in before if _cell(one) not in anew), *rows]
    order = [str(cell) for cell in CELLS]
    return sorted(kept, key=lambda one: order.index(_cell(one)))


def _cell(one: Row) -> str:
    return next(str(cell) for cell in CELLS if one.name.startswith(f"{cell}:"))


def chosen(only: Sequence[str] | None) -> list[Cell]:
    """The cells that are meant: ``2nn,iid`` are all of that model and split."""
    wanted = [each.split(",") for each in only or [""]]
    return [cell for cell in CELLS if any(_fits(cell, words) for words in wanted)]


def _fits(cell: Cell, words: Sequence[str]) -> bool:
    given = (cell.model, cell.split, f"{cell.fraction:g}", str(cell.epochs))
    return all(not word or word == is_ for word, is_ in zip(words, given, strict=False))


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/")
    parser.add_argument("--only", nargs="+", metavar="CELL", help="MODEL,SPLIT,C,E or the first of these")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.1])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=0, help="at most; by default twice the paper's")
    parser.add_argument("--resume", type=Path, help="a file of the runs made so far (JSON lines): go on from there")
    parser.add_argument("--for-s", type=float, default=0.0, help="stop each run after so long, to go on in the next call")
    parser.add_argument("--kept-only", action="store_true", help="of that file alone, without more runs")
    args = parser.parse_args()
    args.target = args.samples = None
    if not (args.data / "mnist" / "train-images-idx3-ubyte.gz").exists():
        parser.error(f"no MNIST in {args.data / 'mnist'}: --data must name a folder with mnist/*-ubyte.gz (IDX files)")
    cells = chosen(args.only)
    if args.for_s and (args.workers > 1 or not args.resume):
        parser.error("--for-s needs --workers 1, since workers may not stop after different rounds, and --resume FILE")
    if args.quick:
        cells, args.rounds, args.target, args.samples = [Cell("2nn", ALIKE, 0.1, 5)], 40, 0.9, 10_000
    with tempfile.TemporaryDirectory() as scratch:
        rows = measure(cells, args, Path(scratch))
        if not rows and not args.kept_only:
            sys.exit("no cell came to its end: nothing is written")
        report("federated", rows if args.quick else merged(rows), args, page=ABOUT)


if __name__ == "__main__":
    main()
