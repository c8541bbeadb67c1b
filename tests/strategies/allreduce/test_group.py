"""Groups in random histories: the same bits for the same round everywhere, the right sum, and nobody waits for ever."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce import group as group_module
from taut.strategies.allreduce.group import Group
from taut.strategies.api import Membership, Tell
from taut.topologies.registry import parse

SHAPE = parse("complete")
LENGTH = 16  # element r of a vector is rank r's
SCHEDULES = ["ring", "tree", "halving-doubling", "torus"]


@dataclass
class Member:
    rank: int
    group: Group
    version: int
    offers: dict[int, float] = field(default_factory=dict)  # per round: what we gave
    results: dict[int, bytes] = field(default_factory=dict)
    given: int = 0
    open: bool = False


class World:
    """Members learn of a new version whenever they please, and may skip versions; messages are in order per pair; what
    the dead had said may still arrive, up to any point."""

    def __init__(self, seed: int, workers: int, schedule: str) -> None:
        self.random, self.schedule = random.Random(seed), schedule
        self.version, self.next_rank = 1, workers
        self.alive = set(range(workers))
        self.queues: dict[tuple[int, int], deque[Tell]] = {}
        self.members = {rank: Member(rank, self.make(rank), 1) for rank in range(workers)}
        self.dead: list[Member] = []

    def make(self, rank: int) -> Group:
        return Group(self.membership(rank), LENGTH, self.schedule)

    def membership(self, rank: int) -> Membership:
        return Membership(rank, tuple(sorted(self.alive)), SHAPE, self.version)

    def send(self, rank: int, tells: list[Tell]) -> None:
        for tell in tells:
            # Views are kept, as by a transport: what they show must still be right when it is delivered.
            self.queues.setdefault((rank, tell.to), deque()).append(tell)
        self.look(rank)

    def look(self, rank: int) -> None:
        member = self.members[rank]
        if member.open and member.group.done:
            member.open = False
            group, out = member.group, np.zeros(LENGTH, np.float32)
            total = group.mean(out)
            number = group.completed
            member.offers[number] = float(member.given)
            sums = np.rint(out * total)
            member.results[number] = out.tobytes()
            who = [other for other in range(LENGTH) if sums[other]]
            assert rank in who and sums[rank] == member.given * (rank + 1), "our own contribution is in it"
            assert group.contributors == len(who) and total == sum(other + 1 for other in who)
            assert group.ending == sum(other % 2 for other in who) and group.extra == [float(2 * len(who))]

    def begin(self, rank: int) -> None:
        member = self.members[rank]
        member.given += 1
        member.open = True
        values = np.zeros(LENGTH, np.float32)
        values[rank] = member.given
        self.send(rank, member.group.begin(values, rank + 1.0, ending=bool(rank % 2), extra=(2.0,)))
        values[:] = np.nan  # it was copied

    def learn(self, rank: int) -> None:
        member = self.members[rank]
        member.version = self.version
        self.send(rank, member.group.members_changed(self.membership(rank)))
        for pair in list(self.queues):  # nothing more of the dead comes now
            if pair[1] == rank and pair[0] not in self.alive:
                del self.queues[pair]

    def deliver(self, pair: tuple[int, int]) -> None:
        tell = self.queues[pair].popleft()
        if pair[1] in self.members:
            member = self.members[pair[1]]
            assert member.group.hears(tell.note)
            note = msgspec.msgpack.decode(msgspec.msgpack.encode(tell.note), type=Note)  # as the wire would have it
            self.send(pair[1], member.group.heard(pair[0], note, bytes(tell.payload)))

    def kill(self, rank: int) -> None:
        self.alive.discard(rank)
        self.dead.append(self.members.pop(rank))
        self.version += 1
        for pair, queue in self.queues.items():
            if pair[0] == rank:
                for _ in range(self.random.randint(0, len(queue))):
                    queue.pop()

    def join(self) -> None:
        rank = self.next_rank
        self.next_rank += 1
        self.alive.add(rank)
        self.version += 1
        self.members[rank] = Member(rank, self.make(rank), self.version)

    def happen(self, target: int) -> bool:
        """Any one thing that can happen. False: nothing can."""
        pairs = [("deliver", pair) for pair, queue in sorted(self.queues.items()) if queue]
        able = [("begin", r) for r, m in sorted(self.members.items()) if not m.open and m.group.completed < target]
        unaware = [("learn", r) for r, m in sorted(self.members.items()) if m.version != self.version]
        if not (pairs or able or unaware):
            return False
        kinds = [kind for kind in (pairs, able, unaware) if kind]
        what, which = self.random.choice(self.random.choice(kinds))  # type: ignore[misc]
        getattr(self, what)(which)
        return True


def check(world: World, target: int) -> None:
    everybody = [*world.members.values(), *world.dead]
    for member in world.members.values():
        # Who joined after the last round began a round that nobody else takes part in any more.
        assert member.group.completed >= target, f"worker {member.rank} waits for ever"
    for number in range(1, target + 1):
        living = {m.results[number] for m in world.members.values() if number in m.results}
        assert len(living) <= 1, f"round {number} differs among the living"
    for member in everybody:  # what a worker gave is in one round only
        assert len(set(member.offers.values())) == len(member.offers)


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 5),
    schedule=st.sampled_from(SCHEDULES),
    trouble=st.sampled_from([0.0, 0.02, 0.1]),
)
@settings(max_examples=some(400), deadline=None)
def test_who_completes_a_round_has_its_sum_and_nobody_waits_for_ever(
    seed: int, workers: int, schedule: str, trouble: float
) -> None:
    world, target = World(seed, workers, schedule), 6
    for _ in range(100_000):
        if world.random.random() < trouble:
            if world.random.random() < 0.5 and world.next_rank < LENGTH:
                world.join()
            elif len(world.alive) > 1:
                world.kill(world.random.choice(sorted(world.alive)))
        if not world.happen(target):
            break
        if world.dead and world.random.random() < 0.001:
            trouble = 0.0  # it must be able to come to an end
    check(world, target)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("segment", [1, 3, 7])
def test_vectors_of_many_segments(schedule: str, segment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment is weighted when it is first needed: none twice, none never, with deaths in between."""
    monkeypatch.setattr(group_module, "LEAST_SEGMENT_ELEMENTS", segment)
    for seed in range(10):
        world = World(seed, 4, schedule)
        for event in range(100_000):
            if event == 40 + 7 * seed:
                world.kill(seed % 4)
            if not world.happen(4):
                break
        check(world, 4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_trouble_everybody_completes_every_round(schedule: str) -> None:
    world = World(7, 4, schedule)
    while world.happen(5):
        pass
    check(world, 5)
    assert all(sorted(member.results) == [1, 2, 3, 4, 5] for member in world.members.values())


def test_the_result_of_a_round_reaches_who_was_still_in_it() -> None:
    """Worker 0 completes the round and 1 does not, because 2 dies: 1 gets the sum, with the dead one's share."""
    world = World(0, 3, "tree")
    for rank in range(3):
        world.begin(rank)
    while any(queue for pair, queue in world.queues.items() if pair != (0, 1)) or not world.members[0].group.done:
        pairs = [
            pair for pair, queue in world.queues.items() if queue and (pair != (0, 1) or queue[0].note.kind == "stand")
        ]
        if not pairs:
            break
        world.deliver(pairs[0])
    assert world.members[0].group.done and not world.members[1].group.done
    world.queues.pop((0, 1))
    world.kill(2)
    while world.happen(1):
        pass
    check(world, 1)
    assert world.members[1].group.contributors == 3


def test_a_round_that_nobody_completed_is_run_again_by_the_survivors() -> None:
    world = World(0, 3, "ring")
    world.begin(0)
    world.begin(1)
    world.kill(2)
    while world.happen(1):
        pass
    check(world, 1)
    assert world.members[1].group.contributors == 2
    assert world.members[0].given == 1, "what was kept is used: nobody has to begin again"


def test_no_weight_leaves_the_vector_alone() -> None:
    group, x = Group(Membership(0, (0,), SHAPE), 2), np.float32([3, 4])
    assert group.begin(np.float32([1, 1]), 0.0) == []
    assert group.done and group.mean(x) == 0.0 and x.tolist() == [3, 4]


def test_a_kept_vector_is_not_copied_and_not_changed() -> None:
    group, x = Group(Membership(0, (0,), SHAPE), 2), np.float32([3, 4])
    group.begin(x, 2.0, keeps=True)
    assert group.mean(x) == 2.0 and x.tolist() == [3, 4]


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    group = Group(Membership(0, (0, 1), SHAPE, 3), 4)
    group.begin(np.ones(4, np.float32))
    group.heard(1, Note("stand", 0, 0, [3, 1]), b"")
    good = np.full(4, 2.0, np.float32)
    for note, payload in [
        (Note("piece", 1, 0, [3]), b""),
        (Note("piece", 1, 0, [3, 9, 9]), b""),
        (Note("piece", 7, 0, [3, 0, 0]), b""),
        (Note("piece", 1, 0, [3, 0, 0]), good.tobytes()[:3]),
        (Note("result", 1, 0, [3]), good.tobytes()),
        (Note("stand", 1, 0, [-1.0, float("nan")]), b""),
    ]:
        with pytest.raises(MalformedMessage):
            group.heard(1, note, payload)
    with pytest.raises(MalformedMessage):
        group.heard(5, Note("piece", 1, 0, [3, 0, 0]), good.tobytes())
    assert not group.done
    assert not group.hears(Note("weights")) and not group.hears(Note("piece", part=1))


def test_misuse() -> None:
    with pytest.raises(Misuse, match="ring"):
        Group(Membership(0, (0,), SHAPE), 2, "gather")
    with pytest.raises(Misuse, match="3 elements"):
        Group(Membership(0, (0,), SHAPE), 2).begin(np.zeros(3, np.float32))
