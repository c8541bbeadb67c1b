"""How faults are written."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.simulator.faults import Fail, Fault, Join, Pause
from taut.simulator.flags import parse_fail, parse_fault_words, parse_join, parse_pause


def test_each_kind() -> None:
    assert parse_fail("2@30s") == Fail(2, 30.0)
    assert parse_pause("1@5s+3s") == Pause(1, 5.0, 3.0)
    assert parse_pause("1@500ms+2m") == Pause(1, 0.5, 120.0)
    assert parse_join("2@10s") == Join(2, 10.0)


@given(rank=st.integers(0, 99999), ms=st.integers(0, 10**7), for_ms=st.integers(0, 10**7))
def test_what_is_written_is_what_is_meant(rank: int, ms: int, for_ms: int) -> None:
    assert parse_fail(f"{rank}@{ms}ms") == Fail(rank, ms / 1000)
    assert parse_pause(f"{rank}@{ms}ms+{for_ms}ms") == Pause(rank, ms / 1000, for_ms / 1000)


def test_words_are_put_in_the_order_of_time() -> None:
    faults = parse_fault_words(["2@30s", "1@30s"], ["1@5s+3s"], ["2@10s"])
    assert faults == (Pause(1, 5.0, 3.0), Join(2, 10.0), Fail(2, 30.0), Fail(1, 30.0))
    assert parse_fault_words() == ()


@pytest.mark.parametrize(
    ("parse", "word", "says"),
    [
        (parse_fail, "2", "2@30s"),
        (parse_fail, "two@30s", "a worker's rank"),
        (parse_fail, "-1@30s", "a worker's rank"),
        (parse_fail, "2@30", "no unit"),
        (parse_fail, "2@30sec", "did you mean 's'"),
        (parse_fail, "2@-3s", "at least 0"),
        (parse_pause, "1@5s", r"1@5s\+3s"),
        (parse_pause, "5s+3s", r"1@5s\+3s"),
        (parse_pause, "1@5s+", "duration"),
        (parse_pause, "1@5s+3", "no unit"),
        (parse_join, "0@10s", "from 1 up"),
        (parse_join, "@10s", "how many workers"),
        (parse_join, "2.5@10s", "how many workers"),
    ],
)
def test_what_cannot_be_read_is_refused(parse: Callable[[str], Fault], word: str, says: str) -> None:
    with pytest.raises(Misuse, match=says) as caught:
        parse(word)
    assert word in str(caught.value)
