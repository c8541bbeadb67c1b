"""Laws of the scaling of learning rates by the number of workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.config import resolve
from taut.errors import Misuse
from taut.strategies.rate_scaling import RateScaling, parse_rate_scaling

RULES = st.sampled_from(["linear", "sqrt"])
WORKERS = st.integers(1, 65_536)


@given(RULES, WORKERS)
def test_the_workers_that_the_rate_is_meant_for_change_nothing(rule: str, workers: int) -> None:
    assert RateScaling(rule, workers).factor(workers) == 1.0


@given(RULES, WORKERS, st.integers(1, 1000), st.integers(1, 1000))
def test_more_workers_have_a_larger_rate(rule: str, meant_for: int, one: int, more: int) -> None:
    scaling = RateScaling(rule, meant_for)
    assert scaling.factor(one) < scaling.factor(one + more)


@given(WORKERS, WORKERS)
def test_the_square_root_is_one(workers: int, meant_for: int) -> None:
    linear, root = (RateScaling(rule, meant_for).factor(workers) for rule in ("linear", "sqrt"))
    assert linear == workers / meant_for and root**2 == pytest.approx(linear)


@given(RULES, st.integers(0, 65_536))
def test_what_is_written_is_read_again(rule: str, workers: int) -> None:
    assert parse_rate_scaling(str(RateScaling(rule, workers))) == RateScaling(rule, workers)


@given(st.text(max_size=12).filter(lambda text: text[:6] not in ("linear", "sqrt")) | st.integers() | st.booleans())
def test_anything_else_is_refused(written: object) -> None:
    with pytest.raises(Misuse, match="expected linear or sqrt"):
        parse_rate_scaling(written)


@pytest.mark.parametrize("written", ["linear:0", "linear:", "linear:65537", "sqrt:1.5", "linear:-3", "lin"])
def test_a_wrong_number_of_workers_is_refused(written: str) -> None:
    with pytest.raises(Misuse, match="--scale-lr = "):
        resolve({"scale_lr": written}, environ={}, cwd="/nowhere")


def test_the_rate_is_meant_for_the_workers_that_the_run_starts_with() -> None:
    def scaling(**flags: object) -> str | None:
        return resolve({"workers": 3, **flags}, environ={}, cwd="/nowhere").fitted().scale_lr

    assert scaling() is None and scaling(scale_lr="linear") == "linear:3" and scaling(scale_lr="sqrt:1") == "sqrt:1"
    with pytest.raises(Misuse, match="--scale-lr with sync:backup=1"):
        scaling(scale_lr="linear", strategy="sync:backup=1")
