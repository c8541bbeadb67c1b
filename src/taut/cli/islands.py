"""Runs whose workers are islands: a supervisor for each part of the model, and the whole model at the end.

Process ``j`` of every island is a worker of run ``j``. Run 0 is the one that the user sees; the others are in ``part-1``
and so on in its folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from taut.cli.run_folder import new_run_folder, supervisor_in
from taut.config import Settings
from taut.core.checkpoint_names import part_folder
from taut.errors import RunFailed

if TYPE_CHECKING:
    from taut.supervisor.checkpoints.folder import Found
    from taut.supervisor.service import Supervisor
    from taut.supervisor.view import Outcome


PART_S = 60.0  # for the other parts' runs to end, after the first one has


def part_supervisors(settings: Settings, folder: Path, command: str, resume: Found | None) -> list[Supervisor]:
    """Return the supervisors of all parts but the first, not started; none where a worker is one process. ``resume``:
    the first part's checkpoint that the run continues."""
    if settings.island == 1:
        return []
    import msgspec

    from taut.supervisor.prepare import Origin

    own = replace(settings, port=0)
    if resume is not None:
        resume = msgspec.structs.replace(resume, manifest=resume.manifest.of_other_part())
    made = []
    for part in range(1, settings.island):
        of_part = part_folder(folder, part)
        if not of_part.is_dir():
            new_run_folder(str(folder), of_part.name)
        made.append(supervisor_in(of_part, own, Origin(command, resume=resume), part))
    return made


def await_parts(parts: Sequence[Supervisor]) -> list[Outcome | None]:
    """Return how the runs of the other parts ended, None for one that did not; their workers are done when those of the
    first part are."""
    return [part.wait(PART_S) for part in parts]


def join_models(folder: Path, outcome: Outcome, parts: Sequence[Outcome | None]) -> None:
    """Put the whole model, from its parts, in the place of the first part; nothing where the first has none. Raise
    ``RunFailed`` where another part has none: what is in the folder then is no whole model."""
    if outcome.model is None:
        return
    from safetensors.torch import load_file, save

    from taut.supervisor.storage.model_file import write_model
    from taut.worker.model.sharded import joined_files

    files = [outcome.model]
    for number, part in enumerate(parts, 1):
        if part is None or part.model is None:
            raise RunFailed(f"part {number} of the model was not saved; {outcome.model} has part 0 only")
        files.append(part.model)
    write_model(folder, save(joined_files([load_file(str(file)) for file in files])))
