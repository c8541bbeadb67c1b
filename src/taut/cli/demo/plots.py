"""The pictures of ``taut demo``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.cli.demo.figures import Training

Curve = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def curve(folder: Path, points: int = 60) -> Curve:
    """Return the samples trained by all workers together, and the mean loss around there, from ``losses-*.json``.

    Each file holds ``[time, samples, loss]`` of one worker's steps; together they are put in order of time.
    """
    steps = [step for path in sorted(folder.glob("losses-*.json")) for step in json.loads(path.read_text())]
    if not steps:
        return np.empty(0), np.empty(0)
    table = np.array(sorted(steps), dtype=np.float64)
    trained, loss = np.cumsum(table[:, 1]), table[:, 2]
    groups = np.array_split(np.arange(len(table)), min(points, len(table)))
    return np.array([trained[group].mean() for group in groups]), np.array([loss[group].mean() for group in groups])


@contextmanager
def _picture(path: Path) -> Iterator[Any]:
    import matplotlib as mpl

    mpl.use("Agg")  # no window, on machines without a screen too
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    yield axes
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def plot_losses(curves: dict[str, Curve], title: str, path: Path) -> Path:
    """Draw the curves."""
    with _picture(path) as axes:
        for label, (samples, loss) in curves.items():
            axes.plot(samples, loss, label=label, linewidth=1.8)
        axes.set(xlabel="samples trained, all workers together", ylabel="training loss", yscale="log", title=title)
    return path


def plot_comparison(trainings: Sequence[Training], target: float, title: str, path: Path) -> Path:
    """Draw the held-out loss of each training over its seconds, and when a worker was killed."""
    with _picture(path) as axes:
        for index, training in enumerate(trainings):
            seconds, losses = [point.seconds for point in training.curve], [point.loss for point in training.curve]
            axes.plot(seconds, losses, color=f"C{index}", label=training.name, linewidth=1.8)
            if training.killed_s is not None:
                loss = np.interp(training.killed_s, seconds, losses)
                axes.plot(training.killed_s, loss, "X", color=f"C{index}", markersize=9)
        axes.plot([], [], "X", color="gray", label="a worker is killed")
        axes.axhline(target, color="gray", linewidth=0.8, linestyle="--")
        axes.set(xlabel="seconds of training", ylabel="loss on held-out digits", ylim=(0.0, None))
        axes.set_title(title, fontsize="small", loc="left")
    return path
