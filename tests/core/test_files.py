"""A crash at any point leaves the old or the new file, never half of one; and nobody else writes such files by hand."""

from __future__ import annotations

import errno
import os
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from taut.core import files
from taut.core.files import AtomicFile, lock_file, write_atomically

OLD, NEW = b"old" * 50_000, b"new!" * 60_000
CALLS = ("open", "fsync", "replace", "close", "urandom")


def write_in_pieces(path: Path, step: Callable[[], None]) -> None:
    with AtomicFile(path) as file:
        for at in range(0, len(NEW), 70_000):
            file.write(NEW[at : at + 70_000])
            file.file.flush()
            step()


def interrupt() -> None:
    raise KeyboardInterrupt


def crashing_at(number: int, path: Path) -> bool:
    """Write in a process that dies at its ``number``-th call of the system; return whether it came that far."""
    pid = os.fork()
    if not pid:
        left = number

        def step() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(9)

        def dying(call: Callable[..., Any]) -> Callable[..., Any]:
            def made(*args: Any, **named: Any) -> Any:
                step()
                found = call(*args, **named)
                step()
                return found

            return made

        for name in CALLS:
            setattr(files.os, name, dying(getattr(os, name)))
        write_in_pieces(path, step)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_a_crash_at_any_point_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    seen, number = [], 0
    path = tmp_path / "a"
    while True:
        path.write_bytes(OLD)
        died = crashing_at(number, path)
        assert path.read_bytes() in (OLD, NEW)
        seen.append(path.read_bytes() == NEW)
        if not died:
            break
        number += 1
    assert seen == sorted(seen) and seen[0] is False and seen[-1] is True
    assert number >= 12


def test_data_is_on_the_disk_before_it_has_its_name_and_the_name_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, call=call: (done.append(name), call(*args))[1])
    write_atomically(tmp_path / "a", NEW)
    assert done == ["fsync", "replace", "fsync"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(OLD)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(tmp_path / "a", NEW)
    with pytest.raises(KeyboardInterrupt):
        write_in_pieces(tmp_path / "a", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == OLD


def test_a_secret_is_never_readable_by_others(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)
    with AtomicFile(tmp_path / "a", mode=0o600):
        modes = [path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name != "a"]
    assert modes == [0o600]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_no_other_module_writes_files_so_by_hand() -> None:
    source = Path(files.__file__).parents[1]
    renaming = re.compile(r"\bos\.(replace|rename)\(|\b(part|temporary)\.(replace|rename)\(")
    found = {str(path.relative_to(source)) for path in source.rglob("*.py") if renaming.search(path.read_text())}
    stores = {"supervisor/storage/store_reader.py", "supervisor/storage/store_writer.py"}  # SQLite writes these files
    handed = "core/handover.py"  # read at once, and never after a crash: its files are not synced
    folder = "cli/packing/unpack.py"  # a folder, whose files are compared with their checksums before each use
    assert found == {"core/files.py", handed, folder, *stores}


def test_a_lock_is_held_until_its_file_is_closed(tmp_path: Path) -> None:
    one, other = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    lock_file(one, wait=True)
    with pytest.raises(OSError, match="temporarily unavailable"):
        lock_file(other, wait=False)
    waits = threading.Thread(target=lock_file, args=(other, True))
    waits.start()
    os.close(one)
    waits.join(60)
    assert not waits.is_alive()
    os.close(other)


def test_a_lock_on_windows_is_waited_for_beyond_its_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [OSError(errno.EDEADLK, "ten seconds"), OSError(errno.EDEADLK, "again"), None, OSError(errno.EACCES, "no")]

    def locking(file: int, mode: str, nbytes: int) -> None:
        assert os.lseek(file, 0, os.SEEK_CUR) > 10**6 and mode == ("wait" if len(answers) > 1 else "once")
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    monkeypatch.setattr(files, "sys", SimpleNamespace(platform="win32"))
    windows = SimpleNamespace(locking=locking, LK_LOCK="wait", LK_NBLCK="once")
    monkeypatch.setitem(sys.modules, "msvcrt", windows)  # type: ignore[arg-type]
    with (tmp_path / "lock").open("w") as file:
        lock_file(file.fileno(), wait=True)
        assert len(answers) == 1
        with pytest.raises(OSError, match="no"):
            lock_file(file.fileno(), wait=False)
