"""The written form of strategies and of schedules of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.strategies import REGISTRY, parse
from taut.strategies.phases import parse_schedule


@given(st.lists(st.tuples(st.sampled_from(sorted(REGISTRY)), st.integers(1, 10**6)), min_size=1, max_size=4))
@settings(deadline=None)  # the first one imports a strategy's module
def test_a_schedule_is_read_back_from_its_written_form(phases: list[tuple[str, int]]) -> None:
    text = ", then ".join([f"{name} for {steps} steps" for name, steps in phases[:-1]] + [phases[-1][0]])
    schedule = parse_schedule(text)
    assert str(schedule) == text
    assert parse_schedule(str(schedule)) == schedule
    assert schedule.last == parse(phases[-1][0])


def test_people_may_write_it_shorter() -> None:
    assert parse_schedule("sync for 200 then ssp:3 for 1 step, then async") == parse_schedule(
        "sync for 200 steps, then ssp:3 for 1 steps, then async"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sync then async", ["for how many steps sync lasts"]),
        ("sync for 20 steps", ["lasts to the end"]),
        ("sync for 0 steps, then async", ["at least 1 step"]),
        ("sinc for 20 steps, then async", ["strategy 'sinc'", "did you mean 'sync'?"]),
        ("sync for 20 steps, then ", ["before and after every 'then'"]),
        ("ssp:-1", ["slack"]),
        ("averaging:every=0", ["every=0"]),
        ("averaging:evry=2", ["did you mean 'every'?"]),
        ("averaging:every=two", ["every=two", "a whole number"]),
        ("async:1,2,3,4,5,6,7", ["at most"]),
    ],
)
def test_a_wrong_strategy_says_what_to_write(text: str, words: list[str]) -> None:
    with pytest.raises(Misuse) as caught:
        parse_schedule(text)
    for word in words:
        assert word in str(caught.value)


def test_the_commonest_spelling_needs_no_key() -> None:
    assert parse("ssp:3").settings == {"slack": 3}
    assert parse({"name": "averaging", "every": 4}) == parse("averaging:4")
