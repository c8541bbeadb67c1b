"""Signed jobs: `make test-sign`. Where a signature is required, nothing runs that no trusted key has signed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_files import CONTENTS, job
from typer.testing import CliRunner

from taut.cli.main import app
from taut.cli.packing.job_file import read_job
from taut.cli.packing.signing import check_signature, make_keys, signer
from taut.cli.packing.unpack import opened_job
from taut.errors import Misuse


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, Path]:
    secret = tmp_path / "key"
    return secret, make_keys(secret)


def test_a_signed_job_is_opened_by_whom_trusts_the_key(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    secret, public = keys
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600 and secret.read_text() != public.read_text()
    path = job(tmp_path / "job.taut", sign=signer(secret))
    found = opened_job(path, public)
    assert found is not None and found.contents == CONTENTS
    name = public.read_text().split()[1][:16]
    assert check_signature(found, public) == f"signed by {name}"
    assert check_signature(found, None) == f"signed by {name}, which is not compared with any key"


def test_other_keys_are_not_trusted(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    secret, public = keys
    other = make_keys(tmp_path / "other")
    path = job(tmp_path / "job.taut", sign=signer(secret))
    with pytest.raises(Misuse, match="expected a job signed by a key of"):
        opened_job(path, other)
    both = tmp_path / "both"
    both.write_text(f"# us\n{other.read_text()}{public.read_text().strip()} the second machine\n")
    assert opened_job(path, both) is not None
    with pytest.raises(Misuse, match="which is not signed"):
        opened_job(job(path), both)
    with pytest.raises(Misuse, match="line `taut-public-key HEX`"):
        opened_job(path, secret)


@given(at=st.integers(0, 95), bit=st.integers(0, 7))
def test_a_changed_signature_or_key_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    folder = tmp_path_factory.mktemp("changed")
    public = make_keys(folder / "key")
    right = signer(folder / "key")

    def wrong(encoded: bytes) -> bytes:
        made = bytearray(right(encoded))
        made[at] ^= 1 << bit
        return bytes(made)

    found = read_job(job(folder / "job.taut", sign=wrong))
    for trusted in (public, None):
        with pytest.raises(Misuse, match="whose signature is wrong"):
            check_signature(found, trusted)


def test_a_signature_is_of_one_job(tmp_path: Path, keys: tuple[Path, Path]) -> None:
    signed = read_job(job(tmp_path / "one.taut", sign=signer(keys[0])))
    for changes in ({"args": ["--evil"]}, {"settings": {"workers": 9}}, {"requirements": {"evil": "1"}}):
        path = job(tmp_path / "two.taut", sign=lambda _: signed.signature, **changes)
        with pytest.raises(Misuse, match="whose signature is wrong"):
            opened_job(path, keys[1])
    path = job(tmp_path / "two.taut", {**CONTENTS, "train.py": b"evil"}, sign=lambda _: signed.signature)
    with pytest.raises(Misuse, match="whose signature is wrong"):
        opened_job(path, None)


def test_the_command_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('hello')\n")
    run = CliRunner()
    assert (
        "wrote key (whoever has it signs in your name) and key.pub"
        in run.invoke(app, ["pack", "--new-key", "key"]).stderr
    )
    assert isinstance(run.invoke(app, ["pack", "--new-key", "key"]).exception, Misuse)
    assert run.invoke(app, ["pack", "train.py", "--key", "key"]).exit_code == 0
    assert opened_job(Path("train.taut"), Path("key.pub")) is not None
