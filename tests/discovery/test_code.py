"""The pairing code: what is taken for one, and how often it may be wrong."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.discovery.code import MINUTE_S, WRONG, CodeLimits, new_code, parse_code
from taut.errors import Misuse


def numbered() -> CodeLimits:
    return CodeLimits(map("{:08}".format, itertools.count()).__next__)


def test_a_new_code_is_one() -> None:
    assert parse_code(new_code()).isdecimal()
    assert len({new_code() for _ in range(50)}) > 45


@pytest.mark.parametrize("text", ["", "1234-567", "1234-56789", "1234-567a", "１２３４５６７８", "12345678" * 9])
def test_what_is_no_code_is_not_quoted(text: str) -> None:
    with pytest.raises(Misuse, match=r"a code of \d+ characters \(not shown\): expected 8 digits"):
        parse_code(text)


def test_a_code_lets_one_in() -> None:
    limits = numbered()
    assert limits.tried(0, True, 0.0)
    assert limits.code == "00000001"
    assert not limits.tried(0, True, 0.0), "the old one"


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 40), st.integers(0, 2)), max_size=60))
def test_wrong_codes_are_limited(attempts: list[tuple[bool, float, int]]) -> None:
    """Whatever comes: no code is tried wrongly more than 3 times, and no minute has more than 3 wrong ones."""
    limits, now, wrong, times = numbered(), 0.0, dict[int, int](), list[float]()
    for right, after, age in attempts:
        now += after
        number = max(0, limits.number - age)
        counts = number == limits.number and not limits.locked_s(now)
        assert limits.tried(number, right, now) == (counts and right)
        if counts and not right:
            wrong[number] = wrong.get(number, 0) + 1
            times.append(now)
    assert all(count <= WRONG for count in wrong.values())
    assert all(later - first >= MINUTE_S - 1e-6 for first, later in zip(times, times[WRONG:], strict=False))
