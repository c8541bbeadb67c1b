"""A run for notebooks and programs: ``taut.Run``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.analysis.tables import STORED, read_table
from taut.config import resolve
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import StoredRun, find_run

if TYPE_CHECKING:
    import pandas


class Run:
    """A run that was made, or that goes: ``Run("latest")``, ``Run("quiet-otter")``, ``Run("taut-runs/NAME")``.

    Everything is read anew at each access, so a run that goes can be followed.

    ``statistics``, ``metrics``, ``progress``, ``workers`` and ``events`` are pandas data frames (docs/store.md has their
    columns); ``figure()`` draws loss, speed and time split. ``model()`` loads the final model's tensors.
    """

    def __init__(self, name: str | Path = "latest", runs_dir: str | Path | None = None) -> None:
        folder = Path(name)
        if runs_dir is None and (folder / "run.sqlite").exists():
            runs_dir, name = folder.parent, folder.resolve().name
        self._runs_dir = str(runs_dir or resolve({}).runs_dir)
        self.path = self._read(str(name)).summary.path

    def _read(self, name: str | None = None) -> StoredRun:
        return find_run(self._runs_dir, name or self.path.name)

    @property
    def name(self) -> str:
        """Return the run's name."""
        return self.path.name

    @property
    def state(self) -> str:
        """Return running, interrupted, finished or failed."""
        return self._read().summary.state

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that the run was started with."""
        return {key: value for key, value in self._read().settings.items() if key != "explicit"}

    @property
    def outcome(self) -> dict[str, Any] | None:
        """Return how the run ended; None while it goes."""
        return self._read().outcome

    def model(self) -> dict[str, Any]:
        """Return the tensors of the final model, by name."""
        path = self._read().summary.model
        if path is None:
            raise Misuse(f"the model of run {self.name!r}", "a run that has ended with one", "see `taut show`")
        from safetensors.torch import load_file

        return load_file(path)

    def figure(self) -> Any:
        """Return a matplotlib figure of loss, speed, logged metrics and time split."""
        from taut.analysis.figures import draw

        return draw(self._read())

    def frame(self, table: str) -> pandas.DataFrame:
        """Return one of the run's tables as a data frame."""
        if find_spec("pandas") is None:
            raise Misuse("a data frame without pandas", "pandas", "pip install 'taut[analysis]'")
        import pandas

        return pandas.DataFrame(read_table(self.path, table).columns)

    if TYPE_CHECKING:
        workers: pandas.DataFrame
        statistics: pandas.DataFrame
        progress: pandas.DataFrame
        metrics: pandas.DataFrame
        hosts: pandas.DataFrame
        events: pandas.DataFrame

    def __getattr__(self, name: str) -> Any:
        if name in STORED:
            return self.frame(name)
        raise AttributeError(f"'Run' object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *STORED})

    def __repr__(self) -> str:
        return f"<taut.Run {self.name}: {self.state}>"
