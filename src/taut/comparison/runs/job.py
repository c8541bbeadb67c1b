"""The job that every cell runs: a script, really or in virtual time; and the key under which a cell's result is kept."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taut.comparison.runs.matrix import Cell
from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.comparison.runs.record import RunRecord
    from taut.simulator.scenario import Scenario

Report = Callable[[str], None]  # told in words how far a run is, where that is known


@dataclass(frozen=True)
class Job:
    """A script to be run in every cell. ``args`` are the script's; ``{seed}`` and ``{workers}`` in them become the
    cell's. ``flags``: more of ``taut run`` or ``taut simulate``. With a ``scenario`` the script is simulated on those
    machines; ``timing_only``: by sizes alone, and the script may be the name of a preset."""

    script: Path
    args: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    scenario: Scenario | None = None
    timing_only: bool = False
    time_limit_s: float | None = None
    keep_models: bool = False

    @property
    def simulated(self) -> bool:
        return self.scenario is not None

    @property
    def file(self) -> Path:
        """Return the script, also where a preset was named."""
        return self.script if self.scenario is None else Path(self.scenario.script or self.script)

    def arguments(self, cell: Cell) -> tuple[str, ...]:
        """Return the script's arguments in this cell.

        >>> cell = Cell("sync", "complete", "dense", workers=4, seed=2)
        >>> Job(Path("train.py"), ("--seed", "{seed}")).arguments(cell)
        ('--seed', '2')
        """
        said = {"{seed}": str(cell.seed), "{workers}": str(cell.workers)}
        return tuple(re.sub(r"\{(seed|workers)\}", lambda match: said[match[0]], each) for each in self.args)

    def command(self, cell: Cell) -> str:
        """Return the command that makes this run alone.

        >>> cell = Cell("ssp:3", "complete", "tether", workers=4, seed=2, named={"strategy": "ssp:3"})
        >>> Job(Path("train.py"), ("--epochs", "3")).command(cell)
        'taut run --workers 4 --strategy ssp:3 --seed 2 train.py --epochs 3'
        """
        kind = "simulate" if self.simulated else "run"
        depth = ["--timing-only"] if self.timing_only else []
        return shlex.join(["taut", kind, *depth, *self.run_flags(cell), str(self.script), *self.arguments(cell)])

    def run_flags(self, cell: Cell) -> list[str]:
        """Return the flags that make ``taut run`` or ``taut simulate`` this cell."""
        chosen = [word for key, value in cell.named.items() for word in (f"--{key}", value)]
        return ["--workers", str(cell.workers), *chosen, "--seed", str(cell.seed), *self.flags]

    def key(self, cell: Cell) -> str:
        """Return a digest of everything that decides the result: the script's text, too, but not what it imports."""
        decides = {
            "script": hashlib.blake2b(self._text()).hexdigest(),
            "args": self.arguments(cell),
            "flags": self.flags,
            "named": sorted(cell.named),  # a script's own wishes yield to these
            "resolved": dict(cell.resolved),
            "workers": cell.workers,
            "seed": cell.seed,
            "scenario": None if self.scenario is None else self.scenario.to_record(),
            "timing_only": self.timing_only,
        }
        return hashlib.blake2b(json.dumps(decides, sort_keys=True).encode(), digest_size=8).hexdigest()

    def name(self, cell: Cell) -> str:
        """Return a readable name for the cell's file and its run, with the key in it."""
        words = f"{cell.strategy}-{cell.codec}-{cell.topology}"
        plain = re.sub(r"[^A-Za-z0-9=.]+", "-", words)[:60].strip("-.")
        return f"{plain}-{cell.workers}-seed{cell.seed}-{self.key(cell)}"

    def _text(self) -> bytes:
        if self.timing_only:
            return str(self.script).encode()  # nothing of it is run
        try:
            return self.file.read_bytes()
        except OSError as error:
            raise Misuse(f"script {str(self.file)!r} ({error.strerror})", "a file that can be read") from None


Runner = Callable[[Job, Cell, Path, Report], "RunRecord"]
