"""Which tier answers, how well, and for how many bytes? examples/tiers.py: four devices see a corner each of
scikit-learn's digits, as six see one object in Teerapittayanon et al. 2017. Mean over seeds of model, data split and
order.

    python bench/tiers.py [--seeds 3] [--quick] [--json]
"""

from __future__ import annotations

import importlib.util
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch

from report import Grid, Row, arguments, report, row
from taut.tiers import TierReport, evaluate

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "tiers.py"
THRESHOLDS = (0.0, 0.05, 0.1, 0.2, 0.4)
CHOSEN = 0.1
COLUMNS = ("right, %", "device, %", "edge, %", "cloud, %", "bytes", "bytes, % of raw")


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiers_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(found: Sequence[TierReport]) -> list[float]:
    shares = [100 * statistics.mean(each.shares[tier] for each in found) for tier in ("device", "edge", "cloud")]
    nbytes = statistics.mean(each.nbytes for each in found)
    right = 100 * statistics.mean(each.accuracy for each in found)
    return [right, *shares, nbytes, 100 * nbytes / statistics.mean(each.raw for each in found)]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    script = example()
    seeds, epochs = (1, 2) if args.quick else (args.seeds, 8)
    fusions = ("concat",) if args.quick else ("concat", "max", "average")
    tests = [script.data(seed)[2:] for seed in range(seeds)]
    models = {fusion: [script.train(epochs, fusion, seed=seed)[0] for seed in range(seeds)] for fusion in fusions}

    def found(fusion: str, sure: float, gone: Sequence[int] = (), uplink: bool = True) -> list[float]:
        made = [
            evaluate(model, script.views_of(x), y, device=sure, edge=sure, gone=gone, uplink=uplink)
            for model, (x, y) in zip(models[fusion], tests, strict=True)
        ]
        return line(made)

    devices = range(len(script.CORNERS))
    lines = {f"sure up to entropy {sure}": found("concat", sure) for sure in THRESHOLDS}
    lines |= {f"device {each} gone": found("concat", CHOSEN, [each]) for each in devices}
    lines |= {
        f"device {each} alone": found("concat", CHOSEN, [one for one in devices if one != each]) for each in devices
    }
    lines |= {"no uplink": found("concat", CHOSEN, uplink=False)}
    lines |= {f"fused by {fusion}": found(fusion, CHOSEN) for fusion in fusions[1:]}
    chosen, cloud = lines[f"sure up to entropy {CHOSEN}"], lines["sure up to entropy 0.0"]
    without = [lines[f"device {each} gone"][0] for each in devices]
    alone = [lines[f"device {each} alone"][0] for each in devices]
    much = 100.0
    rows: list[Row] = [
        row(
            "accuracy below the cloud's for all samples",
            cloud[0] - chosen[0],
            "points",
            at_most=much if args.quick else 1.0,
        ),
        row("bytes, of the raw input", chosen[5] / 100, "x", at_most=1.0 if args.quick else 0.2),
        row(
            "accuracy lost with the worst device gone",
            chosen[0] - min(without),
            "points",
            at_most=much if args.quick else 5.0,
        ),
        row("accuracy above the best device alone", chosen[0] - max(alone), "points"),
    ]
    report("tiers", rows, args, Grid(f"{seeds} seeds", COLUMNS, lines))


if __name__ == "__main__":
    main()
