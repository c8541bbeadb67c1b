"""Fetching the files of a data set. A file has its name only when it is whole and its checksum is right.

What a server sends is not trusted: no more is read than the file is long, and nothing of another checksum is kept.
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from taut.core.files import AtomicFile
from taut.data.catalogue import DataFile, DataSet
from taut.errors import TautError
from taut.quantities import size

CHUNK_NBYTES = 1 << 20
TIMEOUT_S = 30.0  # without a byte
UNPACKED_FACTOR = 8  # an archive that unpacks to more than this times its length is no recordings


class DownloadFailed(TautError):
    """A file of a data set could not be fetched, or is not the one that was expected. Nothing of it was kept."""


def get(data_set: DataSet, folder: Path, mirror: str, progress: Callable[[str], object]) -> int:
    """Fetch into ``folder`` what is not there yet; return the number of bytes that were fetched.

    ``mirror``: an address that serves all files, or nothing for the usual ones. ``progress`` is called with a text.
    Raises ``DownloadFailed``, which says what to do.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fetched = 0
    for file in data_set.files:
        path = folder / file.name
        if not path.is_file() or not _right(path, file):
            _fetch(file, path, _sources(file, mirror), data_set, progress)
            fetched += file.nbytes
        if data_set.archive and (fetched or not any(each.is_dir() for each in folder.iterdir())):
            progress(f" {file.name}: unpacking")
            _unpack(path, folder)
    return fetched


def _sources(file: DataFile, mirror: str) -> tuple[str, ...]:
    return (f"{mirror.rstrip('/')}/{file.name}",) if mirror else file.sources


def _fetch(
    file: DataFile, path: Path, sources: tuple[str, ...], data_set: DataSet, progress: Callable[[str], object]
) -> None:
    """Fetch a file from the first source that has it."""
    failures = []
    for source in sources:
        try:
            _fetch_from(source, file, path, progress)
        except DownloadFailed as failure:
            failures.append(str(failure))
        else:
            return
    remedy = (
        f"without internet here, type `taut data get {data_set.name}` on a machine that has it, and copy the folder to "
        f"{path.parent}; or name a server that has the files: --from URL"
    )
    raise DownloadFailed(f"{data_set.name}: {'; '.join(failures)}; {remedy}")


def _fetch_from(source: str, file: DataFile, path: Path, progress: Callable[[str], object]) -> None:
    algorithm, _, expected = file.checksum.partition(":")
    digest, received = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
        with AtomicFile(path) as written, urllib.request.urlopen(_request(source), timeout=TIMEOUT_S) as answer:
            while piece := answer.read(min(CHUNK_NBYTES, file.nbytes + 1 - received)):
                received += len(piece)
                if received > file.nbytes:
                    raise DownloadFailed(f"{source} sends more than the {size(file.nbytes)} of {file.name}")
                digest.update(piece)
                written.write(piece)
                progress(f" {file.name}: {size(received)} of {size(file.nbytes)}")
            if received < file.nbytes:
                raise DownloadFailed(f"{source} was cut off after {received:,} of {file.nbytes:,} bytes")
            if digest.hexdigest() != expected:
                raise DownloadFailed(f"{source} has another checksum ({algorithm}) than {file.name}: not kept")
    except urllib.error.HTTPError as error:
        with error:
            raise DownloadFailed(f"{source} answers {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise DownloadFailed(f"{source} cannot be reached ({error.reason})") from None
    except http.client.IncompleteRead as error:
        received += len(error.partial)
        raise DownloadFailed(f"{source} was cut off after {received:,} of {file.nbytes:,} bytes") from None
    except (http.client.HTTPException, TimeoutError, ConnectionError) as error:
        raise DownloadFailed(f"{source} failed ({error or type(error).__name__})") from None


def _request(source: str) -> urllib.request.Request:
    if not source.startswith(("http://", "https://")):
        raise DownloadFailed(f"{source} is no address of a web server (http:// or https://)")
    try:
        return urllib.request.Request(source, headers={"User-Agent": "taut"})
    except ValueError as error:
        raise DownloadFailed(f"{source} is no address ({error})") from None


def _right(path: Path, file: DataFile) -> bool:
    """Return whether a file that is there is the right one."""
    algorithm, _, expected = file.checksum.partition(":")
    if path.stat().st_size != file.nbytes:
        return False
    with path.open("rb") as found:
        return hashlib.file_digest(found, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest() == expected


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack the regular files of an archive, none of them outside ``folder``."""
    try:
        with tarfile.open(archive, "r:gz") as packed:
            members = _bounded(packed, archive.name, UNPACKED_FACTOR * archive.stat().st_size)
            packed.extractall(folder, members=members, filter="data")
    except tarfile.TarError as error:
        raise DownloadFailed(f"{archive}: {error}") from None


def _bounded(packed: tarfile.TarFile, name: str, limit_nbytes: int) -> Iterator[tarfile.TarInfo]:
    """Yield the files and folders of an archive, as long as they are no larger than ``limit_nbytes`` together."""
    total = 0
    for member in packed:
        total += member.size
        if total > limit_nbytes:
            raise DownloadFailed(f"{name} unpacks to more than {size(limit_nbytes)}")
        if member.isreg() or member.isdir():
            yield member
