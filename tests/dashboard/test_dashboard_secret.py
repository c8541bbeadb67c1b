"""The secret: made for its user alone, compared in constant time, void at once when its file goes, few attempts."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.dashboard.limits import Limits
from taut.dashboard.secret import SECRET_FILE, SecretKeeper, neighbourhood, new_secret, read_secret
from taut.testing.clock import FakeClock
from taut.transport.keys import RunKeys

LIMITS = Limits(attempts=3, attempt_every_s=10.0, addresses=4)


def keeper(folder: Path) -> tuple[SecretKeeper, FakeClock, str]:
    new_secret(folder)
    clock, secret = FakeClock(), read_secret(folder)
    assert secret is not None
    return SecretKeeper(folder, LIMITS, clock), clock, f"Bearer {secret}"


def test_the_file_is_for_its_user_alone(tmp_path: Path) -> None:
    path = new_secret(tmp_path)
    assert path == tmp_path / SECRET_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    first = read_secret(tmp_path)
    new_secret(tmp_path)
    assert read_secret(tmp_path) not in (None, first), "each is fresh"
    assert [one.name for one in tmp_path.iterdir()] == [SECRET_FILE]


def test_only_the_secret_is_good(tmp_path: Path) -> None:
    keep, _, good = keeper(tmp_path)
    assert keep.verdict(good, "10.0.0.1") == "good"
    assert keep.verdict(good.replace("Bearer", "bearer") + " ", "10.1.0.1") == "good"
    for missing in (None, "", "Bearer", "Bearer ", f"Basic {good[7:]}", good[7:]):
        assert keep.verdict(missing, "10.1.0.1") == "missing"
    for number, wrong in enumerate(
        (good[:-1], good + "x", "Bearer x", f"Bearer {RunKeys.generate().token}", "Bearer é\0")
    ):
        assert keep.verdict(wrong, f"10.2.0.{number}") == "wrong"


@pytest.mark.parametrize("left", [None, "", "taut1-dashboard-", "taut1-dashboard-short", "é"])
def test_without_a_secret_nobody_gets_in(tmp_path: Path, left: str | None) -> None:
    """It is void when its file goes: also an empty one lets nobody in."""
    keep, _, good = keeper(tmp_path)
    if left is None:
        (tmp_path / SECRET_FILE).unlink()
    else:
        (tmp_path / SECRET_FILE).write_text(left, encoding="utf-8")
    assert keep.verdict(good, "10.1.0.1") == "wrong"
    assert keep.verdict("Bearer \0", "10.1.0.2") == "wrong"
    assert keep.verdict(f"Bearer {left or 'x'}", "10.1.0.3") in ("wrong", "missing")


def test_a_new_secret_voids_the_old_one(tmp_path: Path) -> None:
    keep, _, good = keeper(tmp_path)
    new_secret(tmp_path)
    assert keep.verdict(good, "10.1.0.1") == "wrong"
    assert keep.verdict(f"Bearer {read_secret(tmp_path)}", "10.1.0.1") == "good"


def test_it_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep, _, good = keeper(tmp_path)
    compared: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(secrets, "compare_digest", lambda a, b: compared.append((a, b)) or False)
    assert keep.verdict(good, "10.1.0.1") == "wrong", "nothing else decides"
    assert compared == [(good[7:].encode(), good[7:].encode())]


def test_attempts_of_an_address_are_few(tmp_path: Path) -> None:
    keep, clock, good = keeper(tmp_path)
    assert [keep.verdict("Bearer x", "10.0.0.1") for _ in range(5)] == ["wrong"] * 3 + ["too often"] * 2
    assert keep.verdict(good, "10.0.0.1") == "too often", "not even heard: else there was no limit"
    assert keep.verdict(good, "10.0.0.2") == "good", "another address is not held up"
    assert keep.verdict(None, "10.0.0.1") == "missing"
    clock.advance(10.0)
    assert keep.verdict(good, "10.0.0.1") == "good"
    assert keep.verdict("Bearer x", "10.0.0.1") == "wrong"
    assert keep.verdict(good, "10.0.0.1") == "too often"
    clock.advance(1e6)
    assert [keep.verdict("Bearer x", "10.0.0.1") for _ in range(4)] == ["wrong"] * 3 + ["too often"]


@settings(max_examples=40)
@given(st.lists(st.floats(0.0, 30.0), max_size=40))
def test_no_more_wrong_ones_are_compared_than_the_limit_allows(pauses_s: list[float]) -> None:
    keep, clock = SecretKeeper(Path("/nowhere"), LIMITS, FakeClock()), FakeClock()
    keep._clock = clock
    compared = 0
    for pause_s in pauses_s:
        clock.advance(pause_s)
        compared += keep.verdict("Bearer x", "10.1.0.1") == "wrong"
        assert compared <= LIMITS.attempts + clock.now() / LIMITS.attempt_every_s + 1e-6


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    keep, _, _ = keeper(tmp_path)
    for number in range(50):
        keep.verdict("Bearer x", f"10.0.0.{number}")
    assert len(keep._allowances) == LIMITS.addresses


def test_an_ipv6_network_is_one_address() -> None:
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff") != neighbourhood("2001:db8:0:1::1")
    assert neighbourhood("fe80::1%eth0") == "fe80::"
    assert neighbourhood("rubbish") == neighbourhood("") == "?"
