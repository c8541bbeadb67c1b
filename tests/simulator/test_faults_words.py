"""How faults are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.simulator.faults import Fail, Join, Pause
from taut.simulator.flags import parse_fault, parse_fault_words


def test_each_kind() -> None:
    assert parse_fault("fail", "2@30s") == Fail(2, 30.0)
    assert parse_fault("pause", "1@5s+3s") == Pause(1, 5.0, 3.0)
    assert parse_fault("pause", "1@500ms+2m") == Pause(1, 0.5, 120.0)
    assert parse_fault("join", "2@10s") == Join(2, 10.0)


@given(rank=st.integers(0, 99999), ms=st.integers(0, 10**7), for_ms=st.integers(0, 10**7))
def test_what_is_written_is_what_is_meant(rank: int, ms: int, for_ms: int) -> None:
    assert parse_fault("fail", f"{rank}@{ms}ms") == Fail(rank, ms / 1000)
    assert parse_fault("pause", f"{rank}@{ms}ms+{for_ms}ms") == Pause(rank, ms / 1000, for_ms / 1000)


def test_words_are_put_in_the_order_of_time() -> None:
    faults = parse_fault_words(["2@30s", "1@30s"], ["1@5s+3s"], ["2@10s"])
    assert faults == (Pause(1, 5.0, 3.0), Join(2, 10.0), Fail(2, 30.0), Fail(1, 30.0))
    assert parse_fault_words() == ()


@pytest.mark.parametrize(
    ("flag", "word", "says"),
    [
        ("fail", "2", "2@30s"),
        ("fail", "two@30s", "a worker's rank"),
        ("fail", "-1@30s", "a worker's rank"),
        ("fail", "2@30", "no unit"),
        ("fail", "2@30sec", "did you mean 's'"),
        ("fail", "2@-3s", "at least 0"),
        ("pause", "1@5s", r"1@5s\+3s"),
        ("pause", "5s+3s", r"1@5s\+3s"),
        ("pause", "1@5s+", "duration"),
        ("pause", "1@5s+3", "no unit"),
        ("join", "0@10s", "from 1 up"),
        ("join", "@10s", "how many workers"),
        ("join", "2.5@10s", "how many workers"),
    ],
)
def test_what_cannot_be_read_is_refused(flag: str, word: str, says: str) -> None:
    with pytest.raises(Misuse, match=says) as caught:
        parse_fault(flag, word)
    assert word in str(caught.value)
