"""A job as one file that a machine runs without Python: a shell script, followed by a compressed tar archive of Python,
the packages and the job.

When it is first run it unpacks itself into the user's cache, under its checksum; later it starts from there at once. The
Python in it is a whole one, so that workers, and whatever else starts ``sys.executable``, run as they do anywhere.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from taut.cli.packing.environment import LIBRARIES
from taut.core.files import AtomicFile

JOB = "job.taut"  # in the folder into which an executable unpacks itself
HEADER_NBYTES = 4096
_WHEN_S = 315532800  # 1980, as in job files: the time of packing is no content

_HEADER = """\
#!/bin/sh
# A job of taut with Python and its packages: `taut pack --executable` wrote this file.
fail() { echo "error: $1" >&2; exit 1; }
for tool in uname mkdir mktemp tail tar gzip mv rm; do
  command -v $tool > /dev/null || fail "$0 unpacks itself with \\`$tool\\`, which is not on this machine"
done
here="$(uname -s) on $(uname -m)"
[ "$here" = "Linux on @MACHINE@" ] || fail "$0 is for Linux on @MACHINE@, and this is $here"
cache=${TAUT_UNPACK:-${XDG_CACHE_HOME:-$HOME/.cache}/taut}
folder=$cache/@CHECKSUM@
libraries=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset PYTHONHOME PYTHONPATH PYTHONSTARTUP
export PYTHONNOUSERSITE=1
if [ ! -d "$folder" ]; then
  before=$(umask)
  umask 077
  mkdir -p "$cache" && new=$(mktemp -d "$cache/.new-XXXXXX") ||
    fail "$cache cannot be written: TAUT_UNPACK=FOLDER names another folder, which should be yours alone"
  trap 'rm -rf "$new"' EXIT
  trap 'exit 130' INT TERM HUP
  echo "unpacking @SIZE@ into $folder, once" >&2
  tail -c +@START@ "$0" | tar xzf - -C "$new" ||
    fail "$0 could not be unpacked to $cache: it is damaged, or the disk is full"
  LD_LIBRARY_PATH=$new/@LIBRARIES@$libraries "$new/@PYTHON@" -I -c 'import ctypes' ||
    fail "$0 does not run on this machine: it takes glibc, and was made with version @GLIBC@"
  mv -T "$new" "$folder" 2> /dev/null || [ -d "$folder" ] || fail "$folder cannot be written"
  rm -rf "$new"  # where another process was faster
  trap - EXIT INT TERM HUP
  umask "$before"
fi
export LD_LIBRARY_PATH="$folder/@LIBRARIES@$libraries"
exec "$folder/@PYTHON@" -P -m taut.cli.packing.executable_main "$folder/@JOB@" "$0" "$@"
"""


def write_executable(target: Path, files: Mapping[str, Path], glibc: str, size: str) -> None:
    """Write an executable that holds these files, by their paths in its folder: Python, packages and the job. ``glibc``:
    the version that they take; ``size``: of all of them, in words."""
    python = next(path for path in files if path.startswith("bin/"))
    with AtomicFile(target, 0o777) as written:
        written.write(bytes(HEADER_NBYTES))
        hashed = _Hashed(written.file)
        with (
            gzip.GzipFile("", "wb", 6, hashed, mtime=0) as packed,  # no time: the same files give the same bytes
            tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path, file in sorted(files.items()):
                _add(archive, path, file)
        words = {"CHECKSUM": hashed.sha256.hexdigest()[:32], "START": str(HEADER_NBYTES + 1), "SIZE": size}
        words |= {"MACHINE": platform.machine(), "GLIBC": glibc, "PYTHON": python, "LIBRARIES": LIBRARIES, "JOB": JOB}
        written.file.seek(0)
        written.write(header(words))


def header(words: Mapping[str, str]) -> bytes:
    """Return the shell script with these words in their places, filled up to its full size."""
    text = _HEADER
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    encoded = text.encode()
    assert len(encoded) <= HEADER_NBYTES
    return encoded.ljust(HEADER_NBYTES, b"\n")


def _add(archive: tarfile.TarFile, path: str, file: Path) -> None:
    info = tarfile.TarInfo(path)
    with file.open("rb") as opened:
        info.size, info.mtime = file.stat().st_size, _WHEN_S
        info.mode = 0o755 if path.startswith("bin/") or file.stat().st_mode & 0o100 else 0o644
        archive.addfile(info, opened)


class _Hashed:
    """A file whose written bytes are hashed on their way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.sha256 = file, hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.sha256.update(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()
