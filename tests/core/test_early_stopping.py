"""A run stops early when none of the last evaluations was better than the best one before, and no sooner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.config import resolve
from taut.core.early_stopping import EarlyStopping
from taut.errors import Misuse

SCORES = st.lists(st.one_of(st.none(), st.integers(-4, 4).map(float)), max_size=20)


@given(SCORES, st.integers(1, 4), st.sampled_from([0.0, 1.0]), st.booleans())
def test_the_reason_comes_with_the_first_evaluation_that_ends_a_patience(
    scores: list[float | None], patience: int, delta: float, lower: bool
) -> None:
    rule = EarlyStopping(patience, delta)
    better: list[bool] = []
    for step, score in enumerate(scores):
        before = [-each if lower else each for each, was in zip(scores, better, strict=False) if was and each is not None]
        signed = None if score is None else -score if lower else score
        better.append(rule.heard(step, score, lower))
        assert better[-1] == (signed is not None and (not before or signed > before[-1] + delta))
        recent = better[-patience:]
        assert bool(rule.reason) == (len(recent) == patience and not any(recent))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"stop_early": "3"}, "--stop-early 3 without --validate-every"),
        ({"validate_every": "0.5epochs"}, "a whole number of epochs"),
        ({"validate_every": "5s", "stop_early": "0"}, "a patience of at least 1"),
        ({"validate_every": "5s", "stop_early": "3:nan"}, "a delta of at least 0"),
        ({"validate_every": "5s", "stop_early": "soon"}, "such as 3, or 3:0.001"),
        ({"validate_every": "5s", "workers": 2, "island": 2}, "a model that one process holds"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(flags: dict[str, object], words: str) -> None:
    with pytest.raises(Misuse, match=words):
        resolve(flags, environ={}, config_file=None, cwd="/nowhere").grouped().fitted()
