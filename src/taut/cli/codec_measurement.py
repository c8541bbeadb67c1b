"""Measurements of ``taut codecs`` on updates that are made up, from checkpoints, or those that a script makes.

With ``--measure`` the costs on made-up updates are kept for ``taut simulate`` and ``taut advise``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.cli.output.codec_tables import Listed, listed
from taut.codecs import parse
from taut.config import costs_file
from taut.errors import Misuse, RunFailed
from taut.simulator.models.cost_file import FIRST_TURNS, LARGE, TURNS, measure, measured_costs, origin
from taut.simulator.models.costs import Costs
from taut.worker.codec_costs.measuring import MeasuredCodec, Trial, receiver
from taut.worker.codec_costs.update_file import first_rows, read_update

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams

MADE_UP = 1_000_000  # elements
MOST_OWN = 4_000_000  # of the user's own updates; of more, the first rows of every tensor
Progress = Callable[[str], None]
Found = tuple[str, list[MeasuredCodec]]  # on what, in words, and the figures of each codec


def with_dense(specs: Sequence[str]) -> list[str]:
    """Add ``dense`` to the codecs: it is always measured, since the others are compared with it.

    >>> with_dense(["int8"]), with_dense(["dense", "int8"])
    (['int8', 'dense'], ['dense', 'int8'])
    """
    return [*specs, *(() if "dense" in specs else ("dense",))]


def on_made_up(specs: Sequence[str], size: int, progress: Progress) -> Found:
    """Measure codecs on made-up updates of ``size`` elements."""
    found = []
    for spec in specs:
        progress(spec)
        found.append(measure(spec, size))
    return f"made-up updates of {size:,} elements (heavy-tailed, tensors of differing scales, seed 0)", found


def on_checkpoints(specs: Sequence[str], paths: Sequence[Path], most: int, progress: Progress) -> Found:
    """Measure codecs on the update that the files hold, again at every turn."""
    read = read_update(paths)
    parts = first_rows(read.shapes, most)
    update, weights = (_taken(vector, parts) for vector in (read.update, read.weights))
    shapes, other = [part[2] for part in parts], receiver(len(update))
    found = []
    for spec in specs:
        progress(spec)
        trial = Trial(parse(spec), weights, shapes, other=other)
        for turn in range(FIRST_TURNS + TURNS):
            trial.turn(update, counts=turn >= FIRST_TURNS)
        found.append(trial.measured())
    return f"{read.what}, the same update again and again{_how_many(len(update), len(read.update))}", found


class Watching:
    """A measurement of codecs on copies of a script's weights, which follow it. The later half of ``steps`` counts."""

    def __init__(self, specs: Sequence[str], steps: int, most: int, progress: Progress) -> None:
        self.specs, self.steps, self.most, self.progress = specs, steps, most, progress
        self.trials: list[Trial] = []
        self.turns = self.size = 0

    def __call__(self, params: FlatParams, x: Any) -> None:
        """Give every codec the change of the step that led to ``x``."""
        if not self.trials:
            self.parts, self.size = first_rows(params.shapes, self.most), len(x)
            self.x = _taken(x, self.parts)
            shapes, other = [part[2] for part in self.parts], receiver(len(self.x))
            self.trials = [Trial(parse(spec), self.x, shapes, other=other) for spec in self.specs]
            return
        if self.turns >= self.steps:
            return  # the run is being drained
        now = _taken(x, self.parts)
        for trial in self.trials:
            trial.turn(now - self.x, counts=self.turns >= self.steps // 2)
        self.x = now
        self.turns += 1
        self.progress(f"step {self.turns}")


def on_script(
    specs: Sequence[str], script: Path, args: Sequence[str], steps: int, most: int, progress: Progress
) -> Found:
    """Measure codecs on the updates that the script makes as one worker."""
    from taut.simulator.script.measure import watch_script

    watching = Watching(specs, steps, most, progress)
    progress(f"starting {script.name}")
    watch_script(str(script), tuple(args), steps + 1, watching)  # weights before the first change are those after a step
    if watching.turns <= steps // 2:
        raise RunFailed(f"{script} made {watching.turns} steps of {steps}: too few; give it more data, or say --steps")
    told = f"{watching.turns} updates of {script} as one worker{_how_many(len(watching.x), watching.size)}"
    return told, [trial.measured() for trial in watching.trials]


def keep(specs: Sequence[str], elements: int | None, progress: Progress) -> tuple[str, list[Listed], Path]:
    """Measure codecs, and write their costs to the user's file. Return which updates, the figures, and the file."""
    wrong = [word for word in specs if ":" in word]
    if wrong:
        raise Misuse(f"--measure with {wrong[0]}", "codecs without settings", "their bits follow from the settings")
    costs, found = measured_costs(with_dense(specs), large=elements or LARGE, progress=progress)
    path = costs_file()
    _joined(path, costs).write(path, origin())
    rows = listed(specs, found[: len(specs)], next(one for one in found if one.spec == "dense"))
    return f"made-up updates of {elements or LARGE:,} elements", rows, path


def _joined(path: Path, costs: Costs) -> Costs:
    """Add the file's costs of other codecs. A broken file is ignored."""
    if not path.exists():
        return costs
    try:
        before = Costs.read(path)[0]
    except Misuse:
        return costs
    return replace(before, codecs={**before.codecs, **costs.codecs})


def _taken(vector: Any, parts: Sequence[tuple[int, int, tuple[int, ...]]]) -> Any:
    return np.concatenate([vector[lo:hi] for lo, hi, _ in parts])


def _how_many(taken: int, size: int) -> str:
    """Say how many elements of an update are measured.

    >>> _how_many(10, 10), _how_many(1000, 2000)
    (', 10 elements', ', 1,000 of 2,000 elements: the first rows of every tensor')
    """
    return (
        f", {size:,} elements" if taken == size else f", {taken:,} of {size:,} elements: the first rows of every tensor"
    )
