"""A new run's folder: what is wrong with it is said the same with and without a name, and nothing is left behind."""

from __future__ import annotations

import errno
import os
import random
from datetime import datetime
from pathlib import Path

import pytest

from taut.cli.run_folder import new_run_folder, new_supervisor, run_name
from taut.config import resolve
from taut.errors import Misuse, StorageFailed
from taut.supervisor import service


@pytest.mark.parametrize("name", [None, "owl"])
@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EROFS, Misuse), (errno.EACCES, Misuse), (errno.ENOSPC, StorageFailed)]
)
def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, number: int, kind: type[Exception]
) -> None:
    def mkdir(self: Path, *words: object, **more: object) -> None:
        if self != tmp_path:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(kind, match=os.strerror(number)):
        new_run_folder(str(tmp_path), name)


def test_ctrl_c_while_it_is_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*words: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "Supervisor", interrupted)
    with pytest.raises(KeyboardInterrupt):
        new_supervisor(resolve({"runs_dir": str(tmp_path)}).fitted(), "taut run")
    assert os.listdir(tmp_path) == []


def test_names_sort_by_time_and_are_nobody_elses(tmp_path: Path) -> None:
    now = datetime(2026, 11, 15, 3, 18, 22)
    paths = [new_run_folder(str(tmp_path), None, now, random.Random(1)) for _ in range(3)]
    assert len(set(paths)) == 3
    assert paths[0].name == run_name(now, random.Random(1))
    assert paths[0].name < run_name(now.replace(second=23), random.Random(0))
    assert len(paths[0].name.split("-")) == 4
