"""The files of a run that its owner may take along: the models, the checkpoints and the script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from taut.errors import Misuse
from taut.supervisor.checkpoints.folder import remember_launch

MODEL_FILES, MOST_FILES = ("*.safetensors", "*.pt", "checkpoints/*/*"), 200
PIECE_NBYTES = 256 * 1024
SCRIPT_NBYTES = 256 * 1024


def files_of(run_dir: Path) -> dict[str, Path]:
    """Return the files, by their path within the run's folder. A link that leads out of it is none of them."""
    home = run_dir.resolve()
    found = sorted(path for kind in MODEL_FILES for path in run_dir.glob(kind) if path.is_file())
    inside = [path for path in found if path.resolve().is_relative_to(home)]
    return {str(path.relative_to(run_dir)): path for path in inside[:MOST_FILES]}


def file_of(run_dir: Path, name: str) -> Path:
    """Return one of the files. Raise ``Misuse`` for any other path: no name leads elsewhere."""
    try:
        return files_of(run_dir)[name]
    except KeyError:
        raise Misuse(f"file {name[:200]!r}", "a model or a checkpoint of this run", "the page lists them") from None


def pieces(path: Path) -> Iterator[bytes]:
    """Yield a file piece by piece: models may be larger than the memory."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_NBYTES):
            yield piece


def script_of(run_dir: Path) -> str:
    """Return the text of the script that the run was started with, as the file is now; empty where it cannot be read."""
    launch = remember_launch(run_dir, None)
    if not launch.script:
        return ""
    try:
        with (Path(launch.cwd) / launch.script).open("rb") as file:
            return file.read(SCRIPT_NBYTES).decode("utf-8", "replace")
    except OSError:
        return ""
