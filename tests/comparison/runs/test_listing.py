"""Lists of choices: commas that separate them, and commas that belong to one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.comparison.runs.listing import split, split_all, whole_numbers
from taut.errors import Misuse
from taut.strategies.registry import REGISTRY

NAMES = sorted(REGISTRY)
words = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(lambda word: word not in (*NAMES, "then"))
values = st.sampled_from(["3", "2^-6", "0.5", "yes", "top-k"])
settings = st.lists(st.one_of(st.tuples(words, values).map("=".join), values), max_size=4)
choices = st.tuples(st.sampled_from(NAMES), settings).map(
    lambda made: ":".join([made[0], ",".join(made[1])][: 1 + bool(made[1])])
)
schedules = st.tuples(choices, st.integers(1, 999), choices).map(
    lambda made: f"{made[0]} for {made[1]} steps, then {made[2]}"
)


@given(st.lists(st.one_of(choices, schedules), max_size=6), st.sampled_from([",", ", ", " , "]))
def test_a_list_is_split_into_what_it_was_made_of(written: list[str], comma: str) -> None:
    assert split(comma.join(written), NAMES) == written


@given(st.lists(choices, unique=True, max_size=5))
def test_a_flag_may_be_repeated_instead(written: list[str]) -> None:
    assert split_all(written, NAMES) == split_all([",".join(written)], NAMES) == written


def test_an_unknown_name_is_a_choice_of_its_own() -> None:
    """So that it is told by name, not as a setting of the one before."""
    assert split("sync,asinc", NAMES) == ["sync", "asinc"]


def test_settings_with_the_name_of_a_strategy() -> None:
    assert split("ssp:3,sync=1", NAMES) == ["ssp:3,sync=1"]


@pytest.mark.parametrize("wrong", ["4,", "0", "-2", "four", "2.5", ""])
def test_numbers_that_are_none(wrong: str) -> None:
    with pytest.raises(Misuse, match="as in 4,8,16"):
        whole_numbers([wrong], "--workers")
