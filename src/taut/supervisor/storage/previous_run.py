"""The state that a dead supervisor left in its run's folder: its store and its keys."""

from __future__ import annotations

import json
import os
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from taut.errors import Misuse
from taut.supervisor.storage.store_writer import FILE
from taut.transport.keys import RunKeys, read_token_file

KEYS_FILE = "keys"  # readable by the user alone; never in the store


@dataclass(frozen=True)
class PreviousRun:
    """A previous supervisor's run. ``data``: its last snapshot (``snapshot.py``); ``beat``: the snapshot's time, in
    seconds since 1970; ``ahead``: entries after it (``lease_wal.py``)."""

    run: str
    settings: dict[str, Any]
    command: str
    began_at: float
    term: int
    address: str
    bind: str
    advertise: str | None
    beat: float
    data: bytes = field(repr=False)
    keys: RunKeys = field(repr=False)
    ahead: tuple[bytes, ...] = field(default=(), repr=False)


def check_own(run_dir: Path) -> None:
    """Raise ``Misuse`` unless this user may write the run's folder, as is needed to supervise it."""
    if not os.access(run_dir, os.R_OK | os.W_OK | os.X_OK) or not os.access(run_dir / FILE, os.R_OK | os.W_OK):
        raise Misuse(f"run folder {run_dir}", "one that this user may read and write", "its owner may")


def read_previous_run(run_dir: Path) -> PreviousRun:
    """Return the run in ``run_dir``. Raise ``Misuse`` unless it is one whose supervisor can be restarted."""
    path = Path(run_dir) / FILE
    if not path.is_file():
        raise Misuse(f"run folder {run_dir}", f"one with a {FILE}", "`taut runs` lists the runs")
    try:
        database = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        try:
            database.execute("begin")  # a consistent snapshot: its supervisor may live
            run = database.execute("select name, settings, command, started, outcome from run").fetchone()
            memory = database.execute("select term, beat, address, bind, advertise, data from memory").fetchone()
            ahead = tuple(row[0] for row in database.execute("select data from ahead order by id"))
        finally:
            database.close()
    except sqlite3.Error as error:
        check_own(Path(run_dir))  # to read a store that is not being written needs write permission
        raise Misuse(f"run folder {run_dir}", "a readable run", f"{path} is damaged: {error}") from None
    if run is None or memory is None:
        raise Misuse(f"run folder {run_dir}", "a run that has begun", "no worker ever joined it: start a new one")
    if run[4]:
        raise Misuse(f"run {run[0]!r}", "one that is not over", f"`taut show {run[0]}` tells how it ended")
    keys = RunKeys.parse(read_token_file(Path(run_dir) / KEYS_FILE))
    term, beat, address, bind, advertise, data = memory
    given = (run[0], json.loads(run[1]), run[2], run[3])
    return PreviousRun(*given, term, address, bind, advertise or None, beat, data, keys, ahead)
