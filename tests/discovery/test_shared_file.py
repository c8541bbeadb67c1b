"""A supervisor announces itself in a folder: whole, private, removed at the end, and told apart from what is stale."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

from taut.cli import discovery
from taut.cli.discovery import find_in_folder
from taut.discovery.choice import choose
from taut.discovery.shared_file import SharedFile, look
from taut.engines.launchers.rendezvous import Offer
from taut.errors import Misuse, StorageFailed, SupervisorLost

ONE = Offer("tcp://10.0.0.7:7000", "calm-otter", token="taut1-secret")
TWO = Offer("tcp://10.0.0.8:7000", "shy-crab", token="taut1-other")
CONSOLE = Console(file=io.StringIO())


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FOLDER_S", 0.0)
    monkeypatch.setattr(discovery, "LOOK_S", 0.0)


def living(address: str) -> None:
    return None


def announced(folder: Path, *offers: Offer) -> list[SharedFile]:
    files = [SharedFile(str(folder), offer) for offer in offers]
    for file in files:
        file.announce()
    return files


def test_what_was_announced_is_found_and_is_gone_afterwards(tmp_path: Path) -> None:
    (file,) = announced(tmp_path, ONE)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert find_in_folder(str(tmp_path), None, living, CONSOLE) == ONE
    file.withdraw()
    assert list(tmp_path.iterdir()) == []


def test_the_file_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    (file,) = announced(tmp_path, ONE)
    announced(tmp_path, Offer("tcp://10.0.0.9:7000", ONE.run, token=ONE.token))
    file.withdraw()
    assert [one.address for one in look(tmp_path).offers] == ["tcp://10.0.0.9:7000"]


def test_two_supervisors_are_named_and_one_can_be_chosen(tmp_path: Path) -> None:
    announced(tmp_path, ONE, TWO)
    with pytest.raises(
        Misuse, match=r"2 supervisors in .*: calm-otter at \S+ and shy-crab at \S+: expected one; .*--run NAME"
    ):
        find_in_folder(str(tmp_path), None, living, CONSOLE)
    assert find_in_folder(str(tmp_path), "shy-crab", living, CONSOLE) == TWO


def test_a_supervisor_that_is_gone_is_passed_over_and_named(tmp_path: Path) -> None:
    announced(tmp_path, ONE, TWO)
    gone = {ONE.address: "connection refused", TWO.address: None}
    assert find_in_folder(str(tmp_path), None, gone.__getitem__, CONSOLE) == TWO
    said = r"no supervisor of calm-otter in .*does not answer at tcp://10\.0\.0\.7:7000.*refused.*shy-crab is another"
    with pytest.raises(SupervisorLost, match=said):
        find_in_folder(str(tmp_path), "calm-otter", gone.__getitem__, CONSOLE)


def test_an_empty_folder_says_what_to_try(tmp_path: Path) -> None:
    with pytest.raises(
        SupervisorLost, match=r"nothing is announced there; start `taut supervisor --announce .*--join ADDRESS"
    ):
        find_in_folder(str(tmp_path), None, living, CONSOLE)


def test_a_folder_that_is_missing_is_misuse(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(Misuse, match=r"--announce .*missing: expected a folder that exists"):
        discovery.check_announce(missing)
    with pytest.raises(Misuse, match=r"--rendezvous .*missing: expected a folder that exists"):
        find_in_folder(missing, None, living, CONSOLE)


def test_what_another_user_can_have_written_is_not_believed(tmp_path: Path) -> None:
    (file,) = announced(tmp_path, ONE)
    file.path.chmod(0o644)
    os.symlink(file.path, tmp_path / "link.taut")
    os.mkfifo(tmp_path / "pipe.taut", 0o600)
    (tmp_path / "broken.taut").write_bytes(b'{"run": "\xff"}')
    (tmp_path / "broken.taut").chmod(0o600)
    (tmp_path / "large.taut").write_bytes(b" " * 100_000)
    (tmp_path / "large.taut").chmod(0o600)
    other = file.path.with_name("other.taut")
    other.write_bytes(TWO.encode())
    other.chmod(0o600)
    looked = look(tmp_path)
    assert looked.offers == [] and len(looked.refused) == 6, looked
    assert "taut1-" not in str(looked.refused)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = SharedFile(str(tmp_path), Offer("tcp://a:1", "x" * 250, token="t"))
    with pytest.raises(StorageFailed, match="could not be written"):
        file.announce()


def test_runs_of_one_name_are_told_apart_by_address() -> None:
    twins = [ONE, Offer("tcp://10.6.6.6:1", ONE.run)]
    with pytest.raises(Misuse, match=r"2 supervisors here: .* --join ADDRESS --token-file FILE"):
        choose(twins, ONE.run, "here")
