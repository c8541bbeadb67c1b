"""Law 4: ssp never lets a worker get more than its slack ahead of the slowest that trains; async never waits."""

from __future__ import annotations

import math
import random

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import Ended, Ticked
from taut.errors import Misuse
from taut.strategies import parse
from taut.strategies.broadcast.asynchronous import Asynchronous
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.ssp import StaleSynchronous
from taut.testing.checks.strategy_check import World, check_strategy, merge_sets


class Paced(World):
    """A world whose workers step only when the strategy lets them, and which looks at the law before every step."""

    steps = 0

    def step(self, rank: int) -> bool:
        state = self.live[rank].state
        if not state.synced or state.final >= 0 or not self.strategy.may_go(state):
            return False
        slack = getattr(self.strategy, "slack", math.inf)
        for other, link in state.links.items():
            if other in self.live and not link.pending and self.live[other].state.final < 0:
                assert state.clock <= self.live[other].state.clock + slack
        self.publish(rank)
        self.tell(rank, Ticked(state.clock + 1))
        self.steps += 1
        return True

    def rest(self, rank: int) -> None:
        """It waits for data: see ``Streaming._rest``."""
        state = self.live[rank].state
        if state.synced and state.final < 0:
            self.tell(rank, Ticked(state.fastest()))


def history(strategy: Broadcast, seed: int, events: int = 250) -> Paced:
    choose = random.Random(seed)
    world = Paced(strategy, workers=choose.randint(1, 5), seed=seed, loss=choose.choice([0, 0.1, 0.4]))
    for _ in range(20):  # the run starts when everybody has the state
        world._settle()
    for _ in range(events):
        kind = choose.random()
        if kind < 0.45:
            world.step(world.any())
        elif kind < 0.80:
            world.deliver()
        elif kind < 0.88:
            world.take(world.any())
        elif kind < 0.93:
            world.tick(choose.random())
        elif kind < 0.96:
            world.rest(world.any())
        elif kind < 0.98:
            world.join()
        elif len(world.live) > 1:
            world.kill(world.any())
    return world


@given(seed=st.integers(0, 2**32), slack=st.integers(0, 9))
@settings(max_examples=some(60), deadline=None)
def test_nobody_gets_more_than_the_slack_ahead_and_nobody_waits_for_ever(seed: int, slack: int) -> None:
    world = history(StaleSynchronous(merge=merge_sets, slack=slack), seed)
    for _ in range(60):
        world._settle()
    goal = {rank: replica.published + 3 for rank, replica in world.live.items()}
    for _ in range(400):
        behind = [rank for rank in sorted(world.live) if world.live[rank].published < goal[rank]]
        if not behind:
            break
        for rank in behind:
            world.step(rank)
        for rank in set(world.live) - set(behind):
            world.rest(rank)  # it has run out of data, and holds nobody back
        world._settle()
    else:
        raise AssertionError(f"workers {behind} wait for ever")
    world.finish()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=some(30), deadline=None)
def test_ssp_is_complete(seed: int) -> None:
    check_strategy(StaleSynchronous(merge=merge_sets, slack=2), seed, steps=200)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_async_never_waits(seed: int) -> None:
    world = history(Asynchronous(merge=merge_sets), seed, events=100)
    for replica in world.live.values():
        assert world.strategy.horizon(replica.state) == math.inf
    rank = world.any()
    if world.live[rank].state.synced:
        assert all(world.step(rank) for _ in range(100)), "without a single delivery"


@pytest.mark.parametrize("slack", [0, 1, 3, 9])
def test_clocks_are_told_at_once(slack: int) -> None:
    """No time passes at all, so nothing that waits for the next report is ever sent."""
    world = Paced(StaleSynchronous(merge=merge_sets, slack=slack), workers=3, seed=1, loss=0.0, repeat=0.0)
    for _ in range(20):
        world._settle()
    for _ in range(1000):
        moved = [world.step(rank) for rank in range(3)]
        if not any(moved):
            assert world.under_way, "everybody waits and nothing is under way"
            world.deliver()
    assert world.steps > 120


@pytest.mark.parametrize("slack", [0, 2, 5])
def test_the_fastest_waits_exactly_at_its_slack(slack: int) -> None:
    world = Paced(StaleSynchronous(merge=merge_sets, slack=slack), workers=2, seed=1, loss=0.0, repeat=0.0)
    for _ in range(20):
        world._settle()
    alone = 0
    while world.step(0):
        alone += 1
    assert alone == slack + 1  # the first `slack` ahead, and the one both are at
    world.step(1)
    for _ in range(4):
        world._settle()
    assert world.step(0)
    world.kill(1)
    assert all(world.step(0) for _ in range(20)), "the dead hold nobody back"


def test_a_newcomer_begins_level_and_the_ended_do_not_count() -> None:
    world = Paced(StaleSynchronous(merge=merge_sets, slack=1), workers=2, seed=1, loss=0.0, repeat=0.0)
    for _ in range(200):
        world.step(0), world.step(1)
        world._settle()
    newcomer = world.join()
    while not world.live[newcomer].state.synced:
        world._settle()
    assert world.live[newcomer].state.clock >= 100
    for rank in (1, newcomer):
        world.tell(rank, Ended())
    for _ in range(4):
        world._settle()
    assert all(world.step(0) for _ in range(20)), "who has ended holds nobody back"


def test_slack_is_a_whole_number_from_zero() -> None:
    assert parse("ssp:3").settings == {"slack": 3}
    with pytest.raises(Misuse, match=r"slack=-1.*async"):
        parse("ssp:-1")
    with pytest.raises(Misuse, match="whole number"):
        parse("ssp:slack=1.5")
