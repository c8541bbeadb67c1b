"""Runs that were never made, for tests of everything that comes after them."""

from __future__ import annotations

from pathlib import Path

from taut.comparison.runs.comparison import Comparison, conduct
from taut.comparison.runs.history import Moment
from taut.comparison.runs.job import Job, Report
from taut.comparison.runs.matrix import Cell, expand
from taut.comparison.runs.record import RunRecord, failed, of_cell

BEST = {"sync": 0.95, "async": 0.93, "gossip": 0.9}


def record(
    strategy: str = "sync", workers: int = 2, seed: int = 0, *, score: float | None = 0.9, **more: object
) -> RunRecord:
    """A run that ended well; its loss falls from 1.0 to 0.1 in 10 s."""
    moments = tuple(Moment(float(at), 100.0 * at, 1000.0 * at, 1.0 - 0.09 * at if at else None) for at in range(11))
    split = {"compute": 6.0, "encode": 0.5, "send": 0.5, "wait": 2.0, "merge": 0.5, "data": 0.25, "other": 0.25}
    known = {
        "key": f"{strategy}{workers}{seed}",
        "strategy": strategy,
        "topology": "complete",
        "codec": "dense",
        "workers": workers,
        "seed": seed,
        "command": f"taut run --strategy {strategy} train.py",
        "versions": {"taut": "0.1.0"},
        "wall_s": 10.0,
        "samples": 1000,
        "samples_per_s": 100.0 * workers,
        "bytes_sent": 10_000 * workers,
        "compression": 1.0,
        "staleness": 1.5,
        "consensus_distance": 0.01,
        "score": score,
        "loss": 0.1,
        "time_split": tuple(dict(split) for _ in range(workers)),
        "history": moments,
        "staleness_samples": (0.0, 1.0, 1.5),
    }
    return RunRecord(**{**known, **more})  # type: ignore[arg-type]


class Runner:
    """Makes up a run at once; ``fails`` are strategies whose runs fail, ``stop_after`` so many runs Ctrl-C comes."""

    def __init__(self, fails: tuple[str, ...] = (), stop_after: int | None = None, scored: bool = True) -> None:
        self.fails, self.stop_after, self.scored = fails, stop_after, scored
        self.made: list[Cell] = []

    def __call__(self, job: Job, cell: Cell, folder: Path, report: Report) -> RunRecord:
        if self.stop_after is not None and len(self.made) >= self.stop_after:
            raise KeyboardInterrupt
        self.made.append(cell)
        report("half of it")
        if cell.strategy in self.fails:
            return failed(job, cell, "boom <b>at</b> a step")
        score = BEST.get(cell.strategy, 0.8) + 0.01 * cell.seed if self.scored else None
        return record(**of_cell(job, cell), score=score)  # type: ignore[arg-type]


def script(folder: Path, text: str = "print('train')\n") -> Path:
    path = folder / "train.py"
    path.write_text(text)
    return path


def compared(folder: Path, runner: Runner | None = None, **more: object) -> Comparison:
    """A comparison of made-up runs."""
    given = {"strategies": ["sync", "async"], "workers": [1, 2], "seeds": [0, 1]} | more
    target, resume = given.pop("target", None), given.pop("resume", True)
    matrix = expand(**given)  # type: ignore[arg-type]
    job = Job(script(folder) if not (folder / "train.py").exists() else folder / "train.py")
    return conduct(job, matrix, folder / "out", target=target, resume=bool(resume), runner=runner or Runner())  # type: ignore[arg-type]
