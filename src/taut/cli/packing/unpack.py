"""A job on its way to run: checked, unpacked into a folder that is named by its checksum, with what it needs there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from taut import __version__
from taut.cli.options import Given
from taut.cli.output.console import notes
from taut.cli.packing.bytecode import MARK
from taut.cli.packing.job_file import Job, read_job
from taut.cli.packing.machine_code import SUFFIX as SUFFIX_HERE
from taut.cli.packing.manifest import PACKED_SETTINGS, SUFFIX
from taut.cli.packing.signing import check_signature
from taut.config import Settings
from taut.errors import Misuse

FOLDER = ".jobs"  # in the folder of all runs


def opened_job(script: Path, trusted: Path | None, *, module: bool = False, quiet: bool = False) -> Job | None:
    """Return the job where ``script`` is one, checked, and say what it is; None for a plain script. ``trusted``: public
    keys, one of which must have signed it."""
    if module or script.suffix != SUFFIX:
        if trusted is not None:
            raise Misuse(f"{script} with --require-signature", "a packed job", f"taut pack {script} --key KEY")
        return None
    job = read_job(script)
    signed = check_signature(job, trusted)
    _check_python(job)
    _check_packages(job, quiet)
    if not quiet:
        text = f"{script.name}: {job.manifest.script} ({job.manifest.kind}), checksum {job.checksum[:16]}, {signed}"
        notes().print(text, style="dim", markup=False, soft_wrap=True)
    return job


def settings_of(given: Given, job: Job | None) -> Settings:
    """Return the settings: those that are given, else the job's own."""
    if job is None:
        return given.settings()
    own = {name: value for name, value in job.manifest.settings.items() if name in PACKED_SETTINGS}
    settings = given.settings(**own)
    taken = {name: "job" for name in own if settings.sources[name] == "default"}
    return replace(settings, sources=MappingProxyType({**settings.sources, **taken}))


def unpacked(job: Job, settings: Settings) -> Path:
    """Return the job's script, in a folder that holds the job's files and nothing else."""
    if settings.engine != "local":
        remedy = "on other machines type: taut worker --join ADDRESS JOB"
        raise Misuse(f"--engine {settings.engine} with {job.path.name}", "a script that is on every machine", remedy)
    folder = Path(settings.runs_dir) / FOLDER / job.checksum[:32]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
        try:
            for path, data in job.contents.items():
                target = new / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            with contextlib.suppress(OSError):  # another process was faster: its folder is checked below
                os.rename(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    _check_folder(job, folder)
    return folder / job.manifest.script


def _check_folder(job: Job, folder: Path) -> None:
    """Refuse a folder in which something was changed or added since the job was unpacked."""
    found = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir() or file.is_symlink()}
    found = {path for path in found if "__pycache__" not in path.split("/")}
    same = found == set(job.contents) and not any((folder / path).is_symlink() for path in found)
    if not same or any(_digest(folder / file.path) != file.sha256 for file in job.manifest.files):
        raise Misuse(
            f"{folder}, into which {job.path.name} was unpacked", "the job's files, unchanged", "remove the folder"
        )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _check_python(job: Job) -> None:
    if job.manifest.bytecode not in ("", MARK):
        given = f"{job.path}, which is byte code of Python {job.manifest.python}"
        raise Misuse(given, "that version of Python", "or a job packed without --no-source")
    if job.manifest.machine not in ("", SUFFIX_HERE):
        given = f"{job.path}, which is machine code for {job.manifest.machine}"
        raise Misuse(given, f"machine code for {SUFFIX_HERE}", "or a job packed without --no-source")


def _check_packages(job: Job, quiet: bool) -> None:
    """Refuse a job whose packages are not installed; say where their versions are others."""
    missing: list[str] = []
    others = [f"taut {__version__} instead of {job.manifest.taut}"] if job.manifest.taut != __version__ else []
    for name, version in job.manifest.requirements.items():
        try:
            here = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError):
            missing.append(f"{name}=={version}")
            continue
        if here != version:
            others.append(f"{name} {here} instead of {version}")
    if missing:
        install = " ".join(missing)
        raise Misuse(f"{job.path} without its packages", "all that it was packed with", f"pip install {install!r}")
    if others and not quiet:
        text = f"{job.path.name} was packed with other versions: here is {', '.join(others)}"
        notes().print(text, markup=False, soft_wrap=True)
