"""A token is all a joiner needs; nothing shows a secret; a damaged token is refused and not quoted."""

import os

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse, StorageFailed
from taut.transport.keys import (
    RunKeys,
    Token,
    WorkerKeys,
    is_public_key,
    read_token_file,
    write_token_file,
)

KEYS = RunKeys.generate()


def test_the_token_carries_the_server_key_and_the_derived_client_pair() -> None:
    token = Token.parse(KEYS.token)
    assert token.server_public == KEYS.server_public
    assert token.client_public == KEYS.client_public == zmq.curve_public(token.client_secret)
    assert Token.parse(f"  {KEYS.token}\n") == token
    other = RunKeys(KEYS.server_public, KEYS.server_secret, bytes(32))
    assert Token.parse(other.token).client_public != token.client_public


def test_a_run_can_be_restored() -> None:
    assert RunKeys.parse(KEYS.text) == KEYS
    for text in (KEYS.token, KEYS.text):
        assert text.isascii()
    with pytest.raises(Misuse):
        RunKeys.parse(KEYS.token)
    with pytest.raises(Misuse):
        Token.parse(KEYS.text)


def test_nothing_shows_a_secret() -> None:
    worker, token = WorkerKeys.generate(), Token.parse(KEYS.token)
    shown = f"{KEYS!r} {KEYS} {worker!r} {worker} {token!r} {token}"
    for secret in (KEYS.server_secret, worker.secret_key, token.client_secret):
        assert secret.decode() not in shown
    assert KEYS.token[50:] not in shown
    assert repr(KEYS.join_secret) not in shown


@pytest.mark.parametrize(
    "damaged",
    [
        "",
        "hunter2-is-my-password",
        KEYS.token[:-1],
        KEYS.token + "A",
        KEYS.token.replace("taut1-", "taut2-"),
        KEYS.token.removeprefix("taut1-"),
        KEYS.token[:40] + " " + KEYS.token[41:],
        KEYS.token[:40] + "é" + KEYS.token[41:],
        KEYS.token[:-4] + "====",
    ],
    ids=range(9),  # the keys are new each time, and tests that run side by side must have the same names
)
def test_a_damaged_token_is_refused_and_not_quoted(damaged: str) -> None:
    with pytest.raises(Misuse) as caught:
        Token.parse(damaged)
    for part in (damaged, damaged[10:40]):
        assert not part or part not in str(caught.value)
    assert caught.value.__cause__ is None


@given(st.text(max_size=100))
@settings(max_examples=50)
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(Misuse):
        Token.parse("taut1-" + text)


@given(st.text(max_size=45) | st.text("0123456789.:#$", min_size=40, max_size=40))
def test_public_keys_are_told_from_other_text(text: str) -> None:
    if is_public_key(text):
        assert len(text.encode()) == 40
    assert is_public_key(KEYS.server_public.decode())
    assert not is_public_key("#" * 40)  # more than 32 bits in a group


def test_the_token_file_is_private_and_whole(tmp_path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    write_token_file(path, KEYS.token)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_token_file(path) == KEYS.token
    assert os.listdir(tmp_path) == ["token"]


def test_token_file_errors_say_what_to_do(tmp_path) -> None:
    with pytest.raises(StorageFailed, match="no/token"):
        write_token_file(tmp_path / "no" / "token", KEYS.token)
    with pytest.raises(Misuse, match="No such file"):
        read_token_file(tmp_path / "token")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(Misuse, match="no text"):
        read_token_file(tmp_path / "binary")
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageFailed):
        write_token_file(tmp_path / "taken", KEYS.token)
    assert sorted(os.listdir(tmp_path)) == ["binary", "taken"]
