"""The other runs in the same folder, to be shown beside this one: a list, and a short curve of each."""

from __future__ import annotations

from pathlib import Path

from taut.dashboard.records import RunChoice, RunCurve, Runs
from taut.dashboard.sources import StoreSource
from taut.dashboard.view_model import short
from taut.errors import Misuse
from taut.supervisor.metrics import finite
from taut.supervisor.storage.store_follower import StoreFollower
from taut.supervisor.storage.store_reader import summary_or_unreadable
from taut.supervisor.storage.store_writer import FILE

MOST_RUNS = 100  # in a list
MOST_READ = 4_000  # statistics of a run: its process also holds a supervisor, which is not to wait


class OtherRuns:
    """Reads the runs in ``runs_dir``. A run is known by the name of its folder alone, so no name leads elsewhere."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

    def runs(self) -> Runs:
        """Return the newest runs."""
        found = sorted(self._stores(), key=_written_s, reverse=True)
        each = [summary_or_unreadable(path.parent) for path in found[:MOST_RUNS]]
        return Runs(
            len(found),
            tuple(
                RunChoice(one.name, one.state, short(one.strategy), one.started, one.workers)
                for one in each
                if one.state != "unreadable"
            ),
        )

    def curve(self, name: str) -> RunCurve:
        """Return a run of the folder. Raise ``Misuse`` where there is none of this name."""
        folder = next((path.parent for path in self._stores() if path.parent.name == name), None)
        if folder is None:
            raise Misuse(f"run {name[:100]!r}", "a run of this folder", "GET /api/runs lists them")
        source = StoreSource(folder, secret_for_all=True, most=MOST_READ)
        trained, before_s, points = 0.0, 0.0, []
        for point in source.history.points:
            trained += point.samples_per_s * (point.time_s - before_s)
            before_s = point.time_s
            points.append((point.time_s, round(trained), point.loss, point.samples_per_s))
        return RunCurve(source.look().run, _score(folder), tuple(points))

    def _stores(self) -> list[Path]:
        return list(self._runs_dir.glob(f"*/{FILE}"))


def _written_s(store: Path) -> float:
    try:
        return store.stat().st_mtime
    except OSError:  # it was removed meanwhile
        return 0.0


def _score(folder: Path) -> float | None:
    """Return the score of a run's final model; None where there is none, so far."""
    outcome = StoreFollower(folder, most=1).read().outcome or {}
    validation = outcome.get("validation")
    chosen = validation.get("chosen") if isinstance(validation, dict) else None
    return finite(chosen) if isinstance(chosen, float) else None
