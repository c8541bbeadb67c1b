"""Make the picture of the examples: `python docs/example_pictures.py` writes docs/img/examples.png.

Each example is trained by `taut run`, on what it makes up or what comes with scikit-learn; each panel is drawn from the
store of that run. It takes some minutes.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from PIL import Image

from taut.analysis.tables import read_table
from taut.comparison.report.style import STYLE, look

ROOT = Path(__file__).parents[1]
PICTURE = Path(__file__).parent / "img" / "examples.png"
WORDS = {  # for `taut run`, and after -- for the script
    "digits": "--workers 2 -- --epochs 60",
    "mnist_cnn": "--workers 2 -- --epochs 4",
    "cifar_resnet": "--workers 2 --strategy sync",
    "char_transformer": "--workers 2",
    "speech_ctc": "--workers 2 -- --epochs 16",
    "word_lstm": "--workers 2 -- --epochs 30 --lr 0.5",
    "gan": "--workers 2 -- --epochs 200",
    "federated": "--workers 2 --clients 50 --strategy fedavg:fraction=0.2",
    "growing_resolution": "--workers 2 --strategy sync -- --samples 6144",
    "tiers": "--workers 2 -- --epochs 30",
    "columns_mlp": "--workers 4 --island 2 -- --epochs 20",
    "pipelined_transformer": "--workers 4 --island 2 -- --epochs 6",
}
METRICS = {"federated": "accuracy"}  # logged by the script, and drawn in place of the loss
COLUMNS = 3


def trained(name: str, folder: Path) -> Path:
    """Train an example, and return the folder of the run."""
    flags, _, args = WORDS[name].partition("-- ")
    command = [sys.executable, "-m", "taut", "run", "--quiet", "--name", name, *flags.split()]
    script = ROOT / "examples" / f"{name}.py"
    subprocess.run([*command, script, *args.split()], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "taut-runs" / name


def curves(run: Path, metric: str | None) -> dict[int, list[tuple[float, float]]]:
    """Return the points of each worker: its step, and its loss or what it logged."""
    found: dict[int, list[tuple[float, float]]] = {}
    for row in read_table(run, "metrics" if metric else "statistics").rows():
        step, value = (row["step"], row["value"]) if metric else (row["steps"], row["loss"])
        points = found.setdefault(row["rank"], [])
        if value is not None and (metric is None or row["name"] == metric) and (not points or step > points[-1][0]):
            points.append((step, value))
    return {rank: points for rank, points in found.items() if points}


def draw(axes: Any, name: str, run: Path) -> None:
    """Draw the panel of an example."""
    metric = METRICS.get(name)
    for index, (_, points) in enumerate(sorted(curves(run, metric).items())):
        axes.plot(*zip(*points, strict=True), color=look(index).color, linewidth=1.2)
    axes.set_title(f"{name}.py", fontsize=9, loc="left")
    axes.set_ylabel(metric or "loss", fontsize=8)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(visible=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, mpl.rc_context(STYLE):
        rows = -(-len(WORDS) // COLUMNS)
        figure = Figure(figsize=(9, 1.9 * rows), layout="constrained")
        for axes, name in zip(figure.subplots(rows, COLUMNS).flat, WORDS, strict=False):
            draw(axes, name, trained(name, Path(folder)))
            print(name, flush=True)
        figure.supxlabel("steps of a worker", fontsize=8)
        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=90, facecolor="white")
        Image.open(drawn).convert("RGB").quantize(32).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
