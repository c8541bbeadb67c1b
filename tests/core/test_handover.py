"""A model handed over as a file: only in a folder with the supervisor's mark, and only as it was announced."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from taut.core.handover import FOLDER, flaw, is_here, make_folder, name_folder, path_of, put, remove_folder

DATA = bytes(range(256)) * 40


def made(run_dir: Path) -> list[str]:
    told = name_folder(run_dir)
    make_folder(*told)
    return told


def test_a_worker_of_this_machine_finds_the_folder(tmp_path: Path) -> None:
    told = name_folder(tmp_path)
    assert not is_here(told)
    make_folder(*told)
    assert is_here(told)
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    remove_folder(tmp_path)
    assert not is_here(told)
    assert os.listdir(tmp_path) == []


def test_a_supervisor_that_came_back_has_the_mark_that_workers_know(tmp_path: Path) -> None:
    assert made(tmp_path) == made(tmp_path)


def test_where_nothing_can_be_written_there_is_no_folder(tmp_path: Path) -> None:
    assert not is_here(made(tmp_path / "missing"))


def test_no_other_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    folder, mark = made(tmp_path / "a")
    (tmp_path / "link").symlink_to(folder)
    for told in ([], [folder], [folder, mark[:-1]], [str(tmp_path), mark], [str(tmp_path / "link"), mark], ["\0", mark]):
        assert not is_here(told)


def test_what_is_put_is_what_is_found(tmp_path: Path) -> None:
    folder = Path(made(tmp_path)[0])
    nbytes, checksum = put(folder, 3, [DATA[:7], b"", DATA[7:]])
    assert path_of(folder, 3).read_bytes() == DATA
    assert nbytes == len(DATA)
    assert flaw(path_of(folder, 3), nbytes, checksum) == ""
    assert sorted(os.listdir(folder)) == ["3.safetensors", "mark"]


def test_another_file_than_announced_is_refused(tmp_path: Path) -> None:
    folder = Path(made(tmp_path)[0])
    (_, checksum), path = put(folder, 0, [DATA]), path_of(folder, 0)
    path_of(folder, 1).symlink_to(path)
    path_of(folder, 2).write_bytes(b"")
    wrong = [
        (path, len(DATA) + 1, checksum),
        (path, len(DATA), checksum ^ 1),
        (path_of(folder, 1), len(DATA), checksum),
        (path_of(folder, 2), 0, 0),
        (path_of(folder, 9), len(DATA), checksum),
        (folder, len(DATA), checksum),
    ]
    for file, nbytes, found in wrong:
        assert "handed over" in flaw(file, nbytes, found)


def test_a_full_disk_leaves_no_part(tmp_path: Path) -> None:
    folder = Path(made(tmp_path)[0])
    path_of(folder, 0).mkdir()
    with pytest.raises(OSError, match="directory"):
        put(folder, 0, [DATA])
    assert sorted(os.listdir(folder)) == ["0.safetensors", "mark"]
