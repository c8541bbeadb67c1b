"""The law of leases: exactly once without deaths, at least once and counted with them, in any order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Lease
from taut.errors import Misuse
from taut.supervisor.data.leases import HOLD, Leases
from taut.supervisor.data.passes import MOST_BATCHES, chunk


@dataclass
class Team:
    """Workers that ask for data pass by pass, as the real ones do: report what is done, then ask."""

    length: int
    batch: int
    passes: int
    leases: Leases = field(default_factory=Leases)
    epoch: dict[int, int] = field(default_factory=dict)  # rank -> its pass; the number of passes when it is through
    holding: dict[int, list[Lease]] = field(default_factory=dict)
    dealt: Counter[tuple[int, int]] = field(default_factory=Counter)  # (epoch, place)
    trained: Counter[tuple[int, int]] = field(default_factory=Counter)
    uncertain: int = 0

    def join(self) -> None:
        rank = len(self.holding)
        self.epoch[rank], self.holding[rank] = 0, []

    def ask(self, rank: int) -> object:
        answer = self.leases.request(
            rank,
            self.epoch[rank],
            self.length,
            batch=self.batch,
            live_workers=len(self.epoch),
            last=self.epoch[rank] == self.passes - 1,
        )
        if answer is None:
            self.epoch[rank] += 1
        elif answer != HOLD:
            assert isinstance(answer, Lease)
            assert 0 <= answer.lo < answer.hi <= self.length
            self.holding[rank].append(answer)
            self.dealt.update((answer.epoch, index) for index in range(answer.lo, answer.hi))
        return answer

    def finish(self, rank: int) -> None:
        ids = [lease.lease for lease in self.holding[rank]]
        for lease in self.holding[rank]:
            self.trained.update((lease.epoch, index) for index in range(lease.lo, lease.hi))
        assert self.leases.done(rank, ids) == sum(lease.hi - lease.lo for lease in self.holding[rank])
        self.holding[rank] = []

    def die(self, rank: int) -> None:
        self.uncertain += self.leases.release(rank)
        del self.epoch[rank]
        self.holding[rank] = []

    def asking(self) -> list[int]:
        return [rank for rank, epoch in self.epoch.items() if epoch < self.passes]

    def run_out(self) -> None:
        """Everybody goes on to the end; nobody may wait for ever."""
        for _ in range(100_000):
            for rank in self.epoch:
                self.finish(rank)
            asking = self.asking()
            if not asking:
                return
            answers = [self.ask(rank) for rank in asking]
            assert any(answer != HOLD for answer in answers), "all wait for each other"
        raise AssertionError("no end")


teams = st.builds(Team, st.integers(1, 400), st.integers(1, 40), st.integers(1, 3))
moves = st.lists(st.tuples(st.sampled_from(["ask", "ask", "finish", "die", "join"]), st.integers(0, 7)), max_size=60)


def play(team: Team, moves: list[tuple[str, int]], deaths: bool) -> None:
    team.join()
    for move, which in moves:
        ranks = list(team.epoch)
        rank = ranks[which % len(ranks)]
        if move == "join":
            team.join()
        elif move == "finish":
            team.finish(rank)
        elif move == "die" and deaths and len(ranks) > 1:
            team.die(rank)
            assert team.asking() or not team.leases.returned, "all were sent home, and data are left"
        elif move == "ask" and team.epoch[rank] < team.passes:
            team.ask(rank)
    team.run_out()


@given(teams, moves)
def test_without_deaths_every_place_is_dealt_and_trained_exactly_once(team: Team, moves: list[tuple[str, int]]) -> None:
    play(team, moves, deaths=False)
    every = {(epoch, index): 1 for epoch in range(team.passes) for index in range(team.length)}
    assert team.dealt == every
    assert team.trained == every
    assert (team.leases.samples_again, team.leases.samples_undone) == (0, 0)


@settings(max_examples=200)
@given(teams, moves)
def test_with_deaths_every_place_is_trained_and_what_was_dealt_again_is_counted(
    team: Team, moves: list[tuple[str, int]]
) -> None:
    play(team, moves, deaths=True)
    every = {(epoch, index) for epoch in range(team.passes) for index in range(team.length)}
    assert set(team.trained) == every
    assert sum(team.dealt.values()) == len(every) + team.leases.samples_again
    assert team.leases.samples_again == team.uncertain
    assert team.leases.samples_undone == 0


@given(st.integers(1, 10_000), st.integers(1, 100), st.integers(1, 64))
def test_chunks_are_whole_batches_and_shrink(length: int, batch: int, workers: int) -> None:
    left, sizes = length, []
    while left:
        sizes.append(chunk(left, batch, workers))
        left -= sizes[-1]
    assert all(size % batch == 0 for size in sizes[:-1])
    assert all(size <= MOST_BATCHES * batch for size in sizes)
    assert sizes == sorted(sizes, reverse=True)


def test_leases_of_the_dead_go_to_who_asks_next_even_in_a_later_pass() -> None:
    leases = Leases()
    lost = leases.request(0, 0, 8, batch=4, live_workers=2)
    leases.request(1, 0, 8, batch=4, live_workers=2)
    assert leases.request(1, 0, 8, batch=4, live_workers=2) is None
    leases.release(0)
    again = leases.request(1, 1, 8, batch=4, live_workers=1)
    assert isinstance(lost, Lease)
    assert isinstance(again, Lease)
    assert (again.epoch, again.lo, again.hi) == (0, lost.lo, lost.hi)
    assert again.lease != lost.lease


def test_a_lease_is_done_only_by_its_holder_and_only_once() -> None:
    leases = Leases()
    lease = leases.request(0, 0, 4, batch=4, live_workers=1)
    assert isinstance(lease, Lease)
    assert leases.done(1, [lease.lease, 99]) == 0
    assert leases.done(0, [lease.lease, lease.lease]) == 4
    assert leases.progress() == (0, 4, 4)


def test_two_lengths_for_one_pass_are_refused_naming_both() -> None:
    leases = Leases()
    leases.request(0, 3, 1000, batch=10, live_workers=2)
    with pytest.raises(Misuse, match=r"999 samples in epoch 3.*1000 samples"):
        leases.request(1, 3, 999, batch=10, live_workers=2)
    assert leases.request(1, 4, 999, batch=10, live_workers=2) is not None, "another pass may be another length"


def test_what_was_begun_and_not_done_is_counted() -> None:
    leases = Leases()
    lease = leases.request(0, 0, 100, batch=5, live_workers=1)
    assert isinstance(lease, Lease)
    assert leases.samples_undone == 100
    leases.done(0, [lease.lease])
    assert leases.samples_undone == 100 - (lease.hi - lease.lo)
