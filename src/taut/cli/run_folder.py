"""The folders of runs: making a new one, and finding one by the run's name."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from taut.config import Settings
from taut.errors import Misuse, StorageFailed
from taut.specs import did_you_mean

if TYPE_CHECKING:
    from taut.supervisor.checkpoints.folder import Launch
    from taut.supervisor.service import Supervisor
    from taut.supervisor.storage.store_reader import StoredRun


def new_run_folder(runs_dir: str, name: str | None) -> tuple[str, Path]:
    """Make a new run's folder, and return the run's name and the folder; without a ``name``, one is made up."""
    parent = Path(runs_dir)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if name is None:
            from taut.supervisor.storage.run_names import new_run

            folder = new_run(parent)
            return folder.name, folder
        folder = parent / name
        folder.mkdir()
    except FileExistsError:
        if not parent.is_dir():
            raise Misuse(f"--runs-dir {runs_dir}", "a folder", "a file of that name is in the way") from None
        raise Misuse(
            f"--name {name}", f"a name that no run in {runs_dir} has", f"`taut show {name}` shows that run"
        ) from None
    except (OSError, StorageFailed) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or cause.errno == errno.ENOSPC:  # a full disk is not the user's mistake
            raise StorageFailed(f"--runs-dir {runs_dir}: {error}") from None
        raise Misuse(f"--runs-dir {runs_dir} ({cause.strerror})", "a folder that this user may write to") from None
    return name, folder


def new_supervisor(settings: Settings, command: str, launch: Launch | None = None) -> tuple[str, Path, Supervisor]:
    """Make a new run: return its name, its folder, and its supervisor, not started. Nothing is left where that fails."""
    from taut.supervisor.prepare import Listen, Origin
    from taut.supervisor.service import Supervisor

    name, folder = new_run_folder(settings.runs_dir, settings.name)
    try:
        supervisor = Supervisor(
            settings.shared(),
            folder,
            run=name,
            workers=settings.workers,
            seed=settings.seed,
            listen=Listen(settings.bind, settings.port, settings.advertise, settings.transport),
            origin=Origin(command, launch),
        )
    except BaseException:  # Ctrl-C, too
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return name, folder, supervisor


def find_run(runs_dir: str, name: str) -> StoredRun:
    """Return the run of that name; ``latest`` is the newest, the end of a name will do, a near miss is named."""
    from taut.supervisor.storage.store_reader import list_runs, load_run

    known = list_runs(Path(runs_dir))
    if name == "latest":
        if not known:
            raise Misuse("run 'latest'", f"a run in {runs_dir}", "there is none; `taut demo` makes one")
        name = max(known, key=lambda each: each.started).name
    elif known and not any(each.name == name or each.name.endswith(f"-{name}") for each in known):
        words = {each.name: each.name for each in known}
        words |= {each.name.split("-", 2)[-1]: each.name for each in known}  # without the date
        guess = did_you_mean(name, words)
        raise Misuse(f"run {name!r}", f"one of the {len(known)} runs in {runs_dir}", guess or "see `taut runs`")
    return load_run(Path(runs_dir), name)
