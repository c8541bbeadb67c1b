"""A worker dies at any moment of synchronous training: the step that the survivors finish is the mean over their own
gradients of that very step, each in it exactly once, and the dead one's wholly or not at all, everywhere alike."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.events import PeerGone
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import SyncState
from taut.strategies.api import MembersChanged
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

MOST, BUCKETS, STEPS = 5, 3, 4


@dataclass
class Witness(Actor):
    """Its gradient of step t has t at its rank's place of each lane, and nothing elsewhere. ``finished_steps``: per step,
    the bits of the mean, and who is in it."""

    sizes: tuple[int, ...] = (MOST,) * BUCKETS
    finished_steps: dict[int, tuple[bytes, frozenset[int]]] = field(default_factory=dict)

    def proceeded(self) -> None:
        state: SyncState = self.method_state
        parties = set()
        for bucket in state.buckets:
            sums = np.rint(self.x[bucket.lo : bucket.hi] * bucket.machine.contributors).reshape(-1, MOST)
            (who,) = {frozenset(int(rank) for rank in np.flatnonzero(row)) for row in sums}
            assert len(who) == bucket.machine.contributors
            assert all((row[sorted(who)] == self.steps).all() for row in sums), "of this step, and once"
            parties.add(who)
        (party,) = parties
        self.finished_steps[self.steps] = (self.x.tobytes(), party)


def differentiate(actor: Actor) -> int:
    actor.x[:] = 0.0
    actor.x[actor.rank :: MOST] = actor.steps + 1
    return 1


class Mortals(MethodWorld):
    """Survivors learn of a death one by one; what the dead one had said may still arrive, up to any point."""

    def die(self, rank: int) -> list[int]:
        """Those who do not know yet."""
        del self.actors[rank]
        self.version += 1
        for (sender, to), queue in list(self.queues.items()):
            if to == rank:
                del self.queues[sender, to]
            elif sender == rank:
                for _ in range(self.random.randint(0, len(queue))):
                    queue.pop()
        return sorted(self.actors)

    def learn(self, rank: int) -> None:
        for pair in [pair for pair in self.queues if pair[1] == rank and pair[0] not in self.actors]:
            del self.queues[pair]
        for gone in set(range(self.ranks)) - set(self.actors):
            self.channels.on(self.actors[rank].channels, PeerGone(gone), self.now)
        self.tell(rank, MembersChanged(self.membership(rank)))


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(2, MOST),
    method=st.sampled_from(["ring", "tree", "halving-doubling", "torus"]),
    several=st.booleans(),
    moments=st.lists(st.integers(0, 250), min_size=1, max_size=2),
)
@settings(max_examples=some(250), deadline=None)
def test_no_gradient_of_a_survivor_is_lost(
    seed: int, workers: int, method: str, several: bool, moments: list[int]
) -> None:
    sync = Sync(schedule=method, bucket_mib=1e-5 if several else 0.0)
    vectors = [np.zeros(MOST * BUCKETS, np.float32)] * workers
    world = Mortals(sync, vectors, step=differentiate, seed=seed, actor=Witness)
    assert len(world.actors[0].method_state.buckets) == (BUCKETS if several else 1)
    unaware: list[int] = []
    for event in range(20_000):
        for _ in range(min(moments.count(event), len(world.actors) - 1)):
            unaware = world.die(world.random.choice(sorted(world.actors)))
        if unaware and world.random.random() < 0.1:
            world.learn(unaware.pop(world.random.randrange(len(unaware))))
        able = [rank for rank, actor in sorted(world.actors.items()) if actor.steps < STEPS or not actor.proceed]
        if not world._happen(able) and not unaware and event > max(moments):
            break
    survivors = list(world.actors.values())
    for one in survivors:
        assert sorted(one.finished_steps) == list(range(1, STEPS + 1)), "nobody waits for ever, and no step is left out"
    for step in range(1, STEPS + 1):
        ((_, party),) = {one.finished_steps[step] for one in survivors}
        assert party >= {one.rank for one in survivors}
