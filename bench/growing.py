"""What does growing resolution gain? examples/growing_resolution.py with images of 16 x 16 first, then 32 x 32 with a
larger model that takes over the smaller one, against 32 x 32 with the larger model from the start: for as many passes,
and for about as much CPU time. One worker, one thread, generated images; the mean over the seeds.

    python bench/growing.py [--seeds 3] [--quick] [--json]
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from report import Grid, Row, arguments, report, row
from taut.data import Resolutions

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "growing_resolution.py"
GROWING, FULL, SHORT = "16:4, then 32:2", "32:6", "32:4"
SCHEDULES = {GROWING: [(16, 4), (32, 2)], FULL: [(32, 6)], SHORT: [(32, 4)]}
POINTS = 1.0  # of accuracy that growing may cost


def example_train() -> Callable[..., tuple[float, float, Any]]:
    spec = importlib.util.spec_from_file_location("growing_resolution", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    train: Callable[..., tuple[float, float, Any]] = module.train
    return train


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train = example_train()
    seeds, samples = (1, 512) if args.quick else (args.seeds, 2048)
    train(Resolutions([(16, 1), (32, 1)]), 64, 0)  # what the first steps of a process cost is not in the figures
    found = {
        label: [train(Resolutions(stages), samples, seed)[:2] for seed in range(seeds)]
        for label, stages in SCHEDULES.items()
    }
    right = {label: 100 * statistics.mean(each[0] for each in made) for label, made in found.items()}
    cpu_s = {label: statistics.mean(each[1] for each in made) for label, made in found.items()}
    rows: list[Row] = [
        row("CPU time of growing, of full size from the start", cpu_s[GROWING] / cpu_s[FULL], "x", at_most=0.8),
        row("accuracy below full size", right[FULL] - right[GROWING], "points", at_most=100.0 if args.quick else POINTS),
        row("accuracy above full size for fewer passes", right[GROWING] - right[SHORT], "points"),
    ]
    lines = {
        label: (right[label], 100 * min(each[0] for each in made), cpu_s[label], 100 * Resolutions(stages).pixels)
        for (label, stages), made in zip(SCHEDULES.items(), found.values(), strict=True)
    }
    columns = ("accuracy, %", "worst seed, %", "CPU, s", "pixels, % of full size")
    report("growing", rows, args, Grid(f"size:passes, {seeds} seeds", columns, lines))


if __name__ == "__main__":
    main()
