"""The job file: a zip archive with a manifest, the files under ``files/``, and a signature if a key was given.

    job.json    the manifest: script, arguments, settings, packages, and the checksum of each file
    job.sig     32 bytes of the public key and 64 of the Ed25519 signature of the manifest
    files/...   the script and its modules, as source or as byte code

The same files give the same bytes. ``unzip -p job.taut job.json`` shows the manifest without running anything.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from taut.cli.packing.manifest import JOB_NBYTES, MANIFEST_NBYTES, MOST_FILES, Manifest, broken, checksum, decoded
from taut.core.files import AtomicFile
from taut.errors import Misuse

MANIFEST, SIGNATURE, FILES = "job.json", "job.sig", "files/"
SIGNATURE_NBYTES = 96
DIRECTORY_NBYTES = 1000 * (MOST_FILES + 2)  # of the archive's list of files
_WHEN = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip archive can name: the time of packing is no content
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


@dataclass(frozen=True)
class Job:
    """A job file that was read and found whole. ``signature``: empty where it has none; it is not verified here."""

    path: Path
    manifest: Manifest
    encoded: bytes
    signature: bytes
    contents: Mapping[str, bytes]

    @property
    def checksum(self) -> str:
        return checksum(self.encoded)


def write_job(
    path: Path, manifest: Manifest, contents: Mapping[str, bytes], sign: Callable[[bytes], bytes] | None
) -> None:
    """Write a job file. ``sign``: returns the key and the signature of the manifest's bytes; None: it is not signed."""
    encoded = manifest.encoded()
    entries = {MANIFEST: encoded} | ({SIGNATURE: sign(encoded)} if sign is not None else {})
    entries |= {FILES + name: contents[name] for name in sorted(contents)}
    with AtomicFile(path) as written, zipfile.ZipFile(written.file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            info = zipfile.ZipInfo(name, _WHEN)
            info.compress_type, info.external_attr, info.create_system = zipfile.ZIP_DEFLATED, 0o644 << 16, 3
            archive.writestr(info, data)


def read_job(path: Path) -> Job:
    """Read a job file, and check all of it: paths, sizes and checksums. Raises ``Misuse`` for any other file."""
    name = str(path)
    try:
        _check_directory(path)
        with zipfile.ZipFile(path) as archive:
            return _read(path, archive)
    except Misuse:
        raise
    except FileNotFoundError:
        raise broken(name, "there is no such file") from None
    except _DAMAGED as error:
        raise broken(name, f"it is damaged, or another kind of file ({error})") from None


def _check_directory(path: Path) -> None:
    """Refuse an archive whose list of files is too long, before that is read: its length is in the last 22 bytes, where
    nothing follows and no second, larger form of them (zip64) precedes."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - 42))
        tail = file.read(42)
    end = tail[-22:]
    if len(tail) < 42 or end[:4] != b"PK\5\6" or end[-2:] != b"\0\0" or tail[:4] == b"PK\6\7":
        raise zipfile.BadZipFile("it does not end as an archive does")
    if int.from_bytes(end[12:16], "little") > DIRECTORY_NBYTES:
        raise zipfile.BadZipFile("it lists too many files")


def _read(path: Path, archive: zipfile.ZipFile) -> Job:
    name = str(path)
    infos = {info.filename: info for info in archive.infolist()}
    if len(infos) < len(archive.infolist()):
        raise broken(name, "it has a file twice")
    if MANIFEST not in infos:
        raise broken(name, f"it has no {MANIFEST}")
    encoded = _content(archive, infos[MANIFEST], MANIFEST_NBYTES, name)
    manifest = decoded(encoded, name)
    if set(infos) - {MANIFEST, SIGNATURE} != {FILES + file.path for file in manifest.files}:
        raise broken(name, "its files are not those of its manifest")
    contents = {}
    for file in manifest.files:
        data = _content(archive, infos[FILES + file.path], file.nbytes, name)
        if len(data) != file.nbytes or hashlib.sha256(data).hexdigest() != file.sha256:
            raise broken(name, f"{file.path} has another checksum than the manifest says")
        contents[file.path] = data
    signature = _content(archive, infos[SIGNATURE], SIGNATURE_NBYTES, name) if SIGNATURE in infos else b""
    return Job(path, manifest, encoded, signature, contents)


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most_nbytes: int, name: str) -> bytes:
    """Return the content of an entry, of which no more than ``most_nbytes`` is unpacked, whatever the archive says."""
    if info.file_size > min(most_nbytes, JOB_NBYTES):
        raise broken(name, f"{info.filename} has {info.file_size:,} bytes, where at most {most_nbytes:,} are due")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise broken(name, f"{info.filename} is compressed in another way")
    with archive.open(info) as entry:
        return entry.read(most_nbytes)
