"""What a worker that was given up brings along: law 1 holds across its return, and its old leases are not its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from taut.codecs import parse
from taut.core.messages import Lease, Statistics
from taut.errors import Expelled, GivenUp
from taut.strategies.broadcast.state import BroadcastState
from taut.worker.comm.run_status import RunStatus
from taut.worker.data.batches import BatchPlan, Dealer, Share
from taut.worker.data.sampling import whole
from taut.worker.joining.rejoin import RejoinState, SessionLeases, less, together
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.snapshot import Snapshot

EXACT = ["tether:slack=2^-6", "threshold:tau=2^-6"]
CODECS = [*EXACT, "topk:density=0.1", "int8", "dense"]


def replica(codec: str, workers: int = 4) -> Replica:
    torch.manual_seed(0)
    made = Replica(FlatParams(nn.Sequential(nn.Linear(7, 9), nn.Linear(9, 3))), parse(codec))
    made.found(workers)
    return made


def stepped(one: Replica, seed: int) -> bytes | None:
    one.params.vector += np.random.default_rng(seed).standard_normal(one.params.size, np.float32) * np.float32(0.2)
    return one.emit()


def left(one: Replica) -> Any:
    """What it accumulated and has not sent."""
    state = one.codec_state
    stray = np.asarray(state.w, np.float64) - state.b
    return stray + (0.0 if state.r is None else state.r)


def copy(state: Snapshot) -> Snapshot:
    return Snapshot(bytes(state.vector), bytes(state.still), state.grid)


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_made_while_cut_off_is_in_everybodys_weights_once(codec: str) -> None:
    """Worker 2 makes eight updates, of which the donor has three; worker 3, cut off with it, two that worker 2 has."""
    donor, away, other = replica(codec), replica(codec), replica(codec)
    log = BroadcastState(2, synced=True)
    for seq in range(1, 9):
        payload = stepped(away, seq)
        assert payload is not None
        log.log_of(2).append(seq, seq, payload)
        if seq <= 3:
            donor.absorb(payload, 2)
    for seq in (1, 2):
        payload = stepped(other, 100 + seq)
        assert payload is not None
        log.log_of(3).append(seq, seq, payload)
        away.absorb(payload, 3)
    for seq in range(50, 53):  # meanwhile the donor trains
        stepped(donor, seq)
    before = left(away)
    back = Replica(away.params, away.codec)
    carried = RejoinState("sum", away, None, log)  # type: ignore[arg-type]
    added = carried.merge(back, copy(donor.state()), {2: 3, 0: 3}, gone=[2, 3])
    assert [(item.origin, item.lo) for item in added] == [(2, seq) for seq in range(4, 9)] + [(3, 1), (3, 2)]
    for item in added:
        donor.absorb(item.payload, item.origin)  # as they are passed on
    if codec in EXACT:
        assert back.digest() == donor.digest()
    np.testing.assert_allclose(back.shared(), donor.shared(), atol=1e-5)
    np.testing.assert_allclose(left(back), before, atol=1e-6)  # accumulated = sent + left
    assert np.abs(before).max() > 0 or codec == "dense"


def test_of_the_living_nothing_is_taken_from_an_old_log() -> None:
    """They send it themselves: from the position that the donor's state has."""
    donor, away = replica("threshold:tau=2^-6"), replica("threshold:tau=2^-6")
    log = BroadcastState(2, synced=True)
    payload = stepped(replica("threshold:tau=2^-6"), 7)
    assert payload is not None
    log.log_of(0).append(1, 1, payload)
    away.absorb(payload, 0)
    back = Replica(away.params, away.codec)
    assert RejoinState("sum", away, None, log).merge(back, copy(donor.state()), {}, gone=[2]) == []  # type: ignore[arg-type]
    assert back.digest() == donor.digest()


@pytest.mark.parametrize(("rule", "kept"), [("mix", True), ("take", False)])
def test_where_replicas_are_averaged_it_keeps_its_weights_else_it_takes_the_donors(rule: str, kept: bool) -> None:
    donor, away = replica("dense"), replica("dense")
    donor.uses_codec = away.uses_codec = False
    away.params.vector += np.float32(1.0)
    own = away.params.vector.copy()
    back = Replica(away.params, away.codec, uses_codec=False)
    assert RejoinState(rule, away, None).merge(back, copy(donor.state()), {}, gone=[2]) == []  # type: ignore[arg-type]
    np.testing.assert_array_equal(back.params.vector, own if kept else donor.params.vector)


def test_only_a_welcome_expulsion_is_one_to_come_back_from() -> None:
    from taut.core.messages import Expulsion

    for welcome in (True, False):
        status = RunStatus()
        status.learn(Expulsion("silent for 9.0 s", welcome), [])
        assert isinstance(status.failure, Expelled) and isinstance(status.failure, GivenUp) is welcome


class Leases:
    def __init__(self, *ids: int, given_up: bool = False) -> None:
        self.ids, self.given_up, self.reported = list(ids), given_up, list[int]()

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | None:
        if self.given_up:
            raise GivenUp("silent")
        return Lease(self.ids[0], 0, 4 * self.ids[0], 4 * self.ids.pop(0) + 4) if self.ids else None

    def done(self, lease: Lease) -> None:
        self.reported.append(lease.lease)


def test_leases_of_the_former_place_are_neither_trained_on_nor_reported() -> None:
    first, then = Leases(0), Leases(2, 3)
    session = SimpleNamespace(leases=first, enter=lambda: False)
    session.come_back = lambda _: setattr(session, "leases", then)
    dealer = Dealer(SessionLeases(session), seed=0)  # type: ignore[arg-type]
    plan = BatchPlan(16, 2, 0, 1, last=True, order=whole(16, False)[1], drop_last=False)
    batches = Share(dealer, plan)
    assert next(batches).tolist() == [0, 1]
    first.given_up = True
    session.come_back(None)  # noticed in the exchange of that step
    batches.trained()
    rest = []
    for batch in batches:
        rest.append(batch.tolist())
        batches.trained()
    assert rest == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert (first.reported, then.reported) == ([], [2, 3])


def test_to_be_given_up_while_it_waits_for_data_is_to_come_back_and_ask_again() -> None:
    then = Leases(5)
    session = SimpleNamespace(leases=Leases(given_up=True), enter=lambda: False)
    session.come_back = lambda _: setattr(session, "leases", then)
    plan = BatchPlan(40, 4, 0, 1, last=True, order=whole(40, False)[1], drop_last=False)
    assert [batch.tolist() for batch in Share(Dealer(SessionLeases(session), seed=0), plan)] == [[20, 21, 22, 23]]  # type: ignore[arg-type]


def test_each_place_counts_its_own_work() -> None:
    first = Statistics(steps=10, samples=80, wall_s=5.0, bytes_sent=7)
    assert less(Statistics(steps=25, samples=200, wall_s=9.0, bytes_sent=3), first) == Statistics(
        15, 120, None, 3, wall_s=4.0
    )
    assert together(first, first).steps == 20
