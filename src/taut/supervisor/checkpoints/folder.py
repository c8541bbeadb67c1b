"""A run's checkpoints on disk: manifests, rotation, and the last one that is whole.

A manifest is written when all parts are on disk, to a temporary file that is renamed when complete; it lists every part
with its hash. A folder without a manifest is no checkpoint, nor is one in which a part is missing or differs.

Where workers are islands, each part of the model has a run with checkpoints of its own. A checkpoint counts if it is
complete in all of these runs, so an old one is removed only if a newer one is.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import socket
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from taut.core.checkpoint_names import DIGEST_NBYTES, FOLDER, MANIFEST, checkpoint_of, part_folder, part_rank
from taut.core.files import sync_folder, write_atomically
from taut.core.sample_ranges import Span
from taut.errors import StorageFailed
from taut.supervisor.storage.store_writer import plain

VERSION = 1
LAUNCH_FILE = "launch.json"


class PartFile(msgspec.Struct, frozen=True):
    """A worker's part. ``host``: where it was written; ``pause_s``: time that training stopped for it."""

    rank: int
    nbytes: int
    blake2b: str
    host: str = ""
    pause_s: float = 0.0


class Launch(msgspec.Struct, frozen=True):
    """The way workers were started; ``script`` is empty if the supervisor's process did not start them. ``own``: settings
    of the engine's own."""

    script: str = ""
    args: list[str] = []
    cwd: str = ""
    start: str | None = None
    threads: int | None = None
    preload: list[str] = []
    engine: str = "local"
    devices: str | None = None
    own: dict[str, str | int | None] = {}


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a checkpoint. ``passes``: the length of each pass that was begun; ``undone``: the samples of
    them that it does not contain; ``settings``: as sent to the workers; ``rate`` and ``slack``: as in
    ``Ledger``."""

    version: int
    run: str
    number: int
    written: float  # seconds since 1970
    settings: dict[str, Any]
    launch: Launch
    files: dict[str, PartFile]
    phase: int
    steps: int
    passes: dict[int, int]
    undone: list[Span]
    rate: float = 1.0
    slack: float = 0.0

    @property
    def complete(self) -> int:
        """Return the number of complete passes: the first with anything left, or one after the last that was begun."""
        return min((epoch for epoch, _, _ in self.undone), default=max(self.passes, default=-1) + 1)

    @property
    def parts(self) -> int:
        """Return how many parts the model is cut into: 1, unless workers are islands."""
        return int(self.settings.get("island", 1))

    def of_other_part(self) -> Manifest:
        """Return it for the run of another part, where nobody asks for data."""
        return msgspec.structs.replace(self, passes={}, undone=[])


def remember_launch(run_dir: Path, launch: Launch | None) -> Launch:
    """Keep the way workers are started in the run's folder; a restarted supervisor (None) reads it there."""
    path = run_dir / LAUNCH_FILE
    try:
        if launch is not None:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(launch)))
            return launch
        return msgspec.json.decode(path.read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):  # only a resume needs it
        return launch or Launch()


class Found(Struct, frozen=True):
    """A complete checkpoint, its folder, and why later ones are damaged."""

    manifest: Manifest
    folder: Path
    damaged: tuple[str, ...] = ()


def numbers(folder: Path) -> list[int]:
    """Return the numbers of all checkpoints that were begun and not removed, complete or not."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())


def write_manifest(folder: Path, manifest: Mapping[str, object], keep: int) -> str:
    """Complete checkpoint ``manifest["number"]``, remove old ones, and return a text for the log. Raise
    ``StorageFailed`` on failure: the previous checkpoint stays the last."""
    number = int(str(manifest["number"]))
    own = folder / str(number)
    parsed = _parse({"version": VERSION, "written": time.time(), **manifest}, own)
    for name, part in parsed.files.items():
        if part.host == socket.gethostname() and (
            not (own / name).is_file() or (own / name).stat().st_size != part.nbytes
        ):
            raise StorageFailed(f"{own / name} is not there, or not whole")
    try:
        own.mkdir(parents=True, exist_ok=True)
        text = json.dumps(plain(msgspec.to_builtins(parsed)), indent=1) + "\n"
        write_atomically(own / MANIFEST, text.encode())
        sync_folder(folder)
    except OSError as error:
        raise StorageFailed(f"{own / MANIFEST} could not be written: {error.strerror or error}") from error
    with contextlib.suppress(OSError):  # an old checkpoint that cannot be removed does no harm
        _rotate(folder, _newest_common(folder, parsed), keep)
    nbytes = sum(part.nbytes for part in parsed.files.values())
    pause_ms = 1e3 * max(part.pause_s for part in parsed.files.values())
    many = f"{len(parsed.files)} parts" if len(parsed.files) > 1 else "1 part"
    return f"checkpoint {number}: {many}, {nbytes / 1e6:.1f} MB; training stopped for {pause_ms:.1f} ms at most"


def drop(folder: Path, number: int) -> None:
    """Remove a checkpoint, its manifest first: a kill in between leaves none."""
    own = folder / str(number)
    with contextlib.suppress(OSError):
        (own / MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(own, ignore_errors=True)


def _rotate(folder: Path, newest: int, keep: int) -> None:
    known = [number for number in numbers(folder) if number <= newest]
    whole = [number for number in known if (folder / str(number) / MANIFEST).is_file()]
    for number in known:
        if number not in whole[-keep:]:
            drop(folder, number)


def _newest_common(folder: Path, manifest: Manifest) -> int:
    """Return the newest checkpoint that is complete in the runs of all parts; 0 for none."""
    root = folder.parent.parent if manifest.settings.get("part") else folder.parent
    others = [part_folder(root, part) / FOLDER for part in range(manifest.parts)]
    common = (
        number
        for number in numbers(folder)
        if number <= manifest.number and all((other / str(number) / MANIFEST).is_file() for other in others)
    )
    return max(common, default=0) if manifest.parts > 1 else manifest.number


def drop_newer(found: Found) -> None:
    """Remove what the runs of an island's parts have of checkpoints after this one: they will be written anew, and the
    parts of two attempts must not be taken for one."""
    for part in range(found.manifest.parts) if found.manifest.parts > 1 else ():
        folder = checkpoint_of(found.folder, part).parent
        for number in numbers(folder):
            if number > found.manifest.number:
                drop(folder, number)


def last_good(folder: Path) -> Found | None:
    """Return the newest complete checkpoint, with the reasons why later ones are not; None if there are none at all.
    Raise ``StorageFailed`` if there are some and all are damaged."""
    damaged: list[str] = []
    for number in reversed(numbers(folder)):
        try:
            manifest = read_manifest(folder / str(number))
            _verify(folder / str(number), manifest)
            for part in range(1, manifest.parts):
                _verify_part(checkpoint_of(folder / str(number), part), manifest)
            return Found(manifest, folder / str(number), tuple(damaged))
        except StorageFailed as error:
            damaged.append(f"checkpoint {number} is not used: {error}")
    if damaged:
        raise StorageFailed("; ".join(damaged))
    return None


def read_manifest(own: Path) -> Manifest:
    """Return the manifest in this folder; it is checked, the parts are not."""
    try:
        text = (own / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise StorageFailed(f"{own} has no {MANIFEST}: it was never completed") from None
    except OSError as error:
        raise StorageFailed(f"{own / MANIFEST} could not be read: {error.strerror or error}") from error
    try:
        return _parse(json.loads(text), own)
    except ValueError as error:
        raise StorageFailed(f"{own / MANIFEST} is damaged: {error}") from None


def _parse(given: Mapping[str, object], own: Path) -> Manifest:
    if given.get("version") != VERSION:
        raise StorageFailed(f"{own / MANIFEST} is in form {given.get('version')}; this version of taut reads {VERSION}")
    try:
        manifest = msgspec.convert(plain(dict(given)), Manifest, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise StorageFailed(f"{own / MANIFEST} is damaged: {error}") from None
    for epoch, lo, hi in manifest.undone:
        if not 0 <= lo <= hi <= manifest.passes.get(epoch, -1):
            raise StorageFailed(f"{own / MANIFEST} is damaged: samples {lo} to {hi} of pass {epoch}")
    if not manifest.files or any(part_rank(name) != part.rank for name, part in manifest.files.items()):
        raise StorageFailed(f"{own / MANIFEST} is damaged: it does not list the parts")
    return manifest


def _verify_part(own: Path, first: Manifest) -> None:
    manifest = read_manifest(own)
    _verify(own, manifest)
    if manifest.files.keys() != first.files.keys() or manifest.steps != first.steps:
        raise StorageFailed(f"{own} is not of the same islands and steps as the first part")


def _verify(own: Path, manifest: Manifest) -> None:
    for name, part in manifest.files.items():
        path = own / name
        if not path.is_file():
            elsewhere = part.host not in ("", socket.gethostname())
            raise StorageFailed(f"{path} is missing" + (f": copy it from {part.host}" if elsewhere else ""))
        if path.stat().st_size != part.nbytes:
            raise StorageFailed(f"{path} has {path.stat().st_size} bytes: expected {part.nbytes}")
        try:
            with open(path, "rb") as file:
                hashed = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=DIGEST_NBYTES))
        except OSError as error:
            raise StorageFailed(f"{path} could not be read: {error.strerror or error}") from error
        if hashed.hexdigest() != part.blake2b:
            raise StorageFailed(f"{path} is damaged: its checksum is another")
