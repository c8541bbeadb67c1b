"""The race: taut beside DDP and its hooks, Horovod, DeepSpeed, torchft, hivemind and Flower, on real networks.

    python bench/peers/environments.py          # an environment for each peer
    python bench/race.py --quick                # the MLP at 100 Mbit/s: taut async and sync, DDP, the bound
    python bench/race.py --resume               # all cells that have fewer than --repeat runs; as long as it takes

Four hosts in network namespaces, a worker on each; model, data, optimizer and batch are the same for all
(peers/task.py). A cell is named ``MODEL/LINK/PEER``, with ``/slow`` where one worker is 4 times slower, and ``/killed``
where one is killed in the middle; ``--only`` takes such names with wildcards. taut runs with its default settings,
encrypted; the others are not encrypted. Every run is kept in results/race-runs.json with the machine's load; the tables
have medians.
Needs root, Debian's iproute2 and the network lab (``--netlab``).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("NETLAB", "race")

from peers.environments import installed
from peers.ways import ASYNC, BOUND, DDP, SYNC, WAYS
from processes import why_no_hosts
from race_lab import LINKS, Cell, race
from race_page import bars, page, picture, summary
from report import RESULTS, arguments, report

SHARED = Path(__file__).resolve().parents[2] / "shared"
RUNS = RESULTS / "race-runs.json"
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "img" / "race.png"
QUICK = (BOUND, ASYNC, SYNC, DDP)
RATE_S, KILL_S = 20.0, 40.0  # how long a run is that goes to no target


def name(cell: Cell) -> str:
    words = [cell.model, cell.link, cell.way]
    return "/".join(words + ["slow"] * (cell.slowness > 1) + ["killed"] * cell.kill)


def cells() -> list[Cell]:
    """All of them, the peers of one setting after one another."""
    settings = [("mlp", link) for link in LINKS] + [("cnn", "100mbit"), ("text", "100mbit")]
    made = [Cell(way, model, link) for model, link in settings for way in WAYS]
    made += [Cell(way, link=link, slowness=4.0) for link in ("100mbit", "unlimited") for way in WAYS]
    return made + [Cell(way, kill=True) for way in WAYS if way != BOUND]


def chosen(args: argparse.Namespace) -> list[Cell]:
    if args.quick:
        return [Cell(way) for way in QUICK]
    found = [cell for cell in cells() if any(fnmatch.fnmatchcase(name(cell), one) for one in args.only)]
    if not found:
        raise SystemExit(f"--only {' '.join(args.only)}: no cell has such a name; one is {name(cells()[0])}")
    return found


def one_run(cell: Cell, args: argparse.Namespace) -> dict[str, Any]:
    to_target = not (args.quick or cell.kill or cell.slowness > 1 or cell.way == BOUND)
    limit_s = args.limit if to_target else 8.0 if args.quick else KILL_S if cell.kill else RATE_S
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="taut-race-") as folder:
        run = race(cell, WAYS[cell.way], args.netlab, args.data, Path(folder) / "out", limit_s, to_target=to_target)
    told = summary(run, cell)
    told |= {"limit_s": limit_s, "load": [round(load, 1), round(os.getloadavg()[0], 1)]}
    told["made"] = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    if told["rate"] is None:
        told["error"] = run.errors[-2000:]
    return told


def kept(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    return json.loads(RUNS.read_text()) if RUNS.exists() and not args.quick else {}


def measure(args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    runs = kept(args)
    wanted = chosen(args)
    for repetition in range(0 if args.tables else 1 if args.quick else args.repeat):
        for cell in wanted:
            mine = runs.setdefault(name(cell), [])
            if not installed(WAYS[cell.way].environment):
                print(f"{name(cell)}: not installed; see bench/peers/environments.py", file=sys.stderr)
                continue
            if args.resume and sum(run["rate"] is not None for run in mine) > repetition:
                continue
            mine.append(one_run(cell, args))
            shown = {key: value for key, value in mine[-1].items() if value is not None and key != "curve"}
            print(f"{name(cell)}: {json.dumps(shown)}", file=sys.stderr, flush=True)
            if not args.quick:
                RESULTS.mkdir(exist_ok=True)
                RUNS.write_text(json.dumps(runs, indent=1) + "\n")
    return runs


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/ and tinyshakespeare/")
    parser.add_argument("--netlab", type=Path, default=SHARED / "netlab" / "netlab.sh")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="CELL", help="such as 'mlp/100mbit/*'")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--limit", type=float, default=90.0, help="seconds from the first step in which to reach the target"
    )
    parser.add_argument("--resume", action="store_true", help="count the runs that results/race-runs.json has")
    parser.add_argument("--tables", action="store_true", help="run nothing: write the tables of the runs that there are")
    args = parser.parse_args()
    args.data = args.data.resolve()
    reason = why_no_hosts(args.netlab)
    if reason and not args.tables:
        parser.error(f"the race takes four hosts: {reason}")
    runs = {cell: made for cell, made in measure(args).items() if made}
    if not args.quick:
        picture(runs, PICTURE)
    report("race", bars(runs), args, page=page(runs))


if __name__ == "__main__":
    main()
