"""Law 2 on the pure objects: drained complete strategies agree, whatever was lost, repeated, reordered, dead or new."""

from __future__ import annotations

from examples import some
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taut.strategies.broadcast.broadcast import Broadcast
from taut.testing.checks.strategy_check import check_strategy, merge_sets


@given(
    seed=st.integers(0, 2**32),
    budget=st.sampled_from([8, 64, 1 << 20]),
    window=st.sampled_from([8, 24, 1 << 20]),
)
@example(seed=1168057, budget=64, window=8)  # heavy loss: a deadline that only ever grows does not end
@example(seed=11629, budget=8, window=8)  # few round trips, the first of them long: deadlines must come down again
@settings(max_examples=some(150))
def test_every_update_reaches_everybody_once(seed: int, budget: int, window: int) -> None:
    strategy = Broadcast(merge=merge_sets, budget_nbytes=budget, window_nbytes=window, compares=True)
    check_strategy(strategy, seed)


def test_what_was_made_while_cut_off_reaches_everybody_once() -> None:
    """By the same law: these histories have workers that are cut off, given up, and come back with their logs."""
    strategy = Broadcast(merge=merge_sets, budget_nbytes=64, window_nbytes=24)
    worlds = [check_strategy(strategy, seed) for seed in range(40)]
    assert sum(len(world.back) for world in worlds) >= 5
    assert sum(sum(world.back.values()) for world in worlds) > 50, "and they had something to say"
