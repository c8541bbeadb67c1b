"""The stages of a run's phases at one worker whose neighbours begin in different ones."""

from __future__ import annotations

from taut.core.events import Arrived, Ended, PeerAhead, PeerGone, PeerJoined, Synced
from taut.core.messages import Member, NextPhase, Note, Parcel, Report, Roster, StateChunk, StateRequest
from taut.strategies.broadcast.asynchronous import Asynchronous
from taut.strategies.delivery.channels import Channels
from taut.testing import FakeClock
from taut.worker.comm.phase_protocols import PhaseProtocols
from taut.worker.comm.rejections import Rejections
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.state_transfer import StateTransfer, _window
from taut.worker.model.snapshot import Snapshot

LIMIT_NBYTES = 1 << 20


def stages_of(status: RunStatus | None = None) -> PhaseProtocols:
    stages = PhaseProtocols(status or RunStatus(), FakeClock(), lambda *_: True, LIMIT_NBYTES, Rejections())
    stages.begin(Asynchronous(merge=b"".join), 0, synced=True)
    return stages


def report(phase: int = 0, final: int = -1) -> Report:
    return Report(0, 0, False, {}, [], final, phase=phase)


def test_a_neighbour_is_known_from_its_first_phase_on() -> None:
    stages = stages_of()
    stages.met(1, 0)
    stages.met(2, 1)
    assert list(stages.phase_protocol.state.links) == [1]
    stages.advance(Channels())
    assert list(stages.phase_protocol.state.links) == [1, 2]
    stages.met(3, 1)
    assert stages.previous is not None
    assert list(stages.previous.state.links) == [1] and list(stages.phase_protocol.state.links) == [1, 2, 3]
    stages.lost(2)
    assert list(stages.phase_protocol.state.links) == [1, 3] and stages.phase_protocol.state.gone == {2}


def test_a_phase_ends_without_a_neighbour_that_begins_in_the_next_one() -> None:
    """As long as it might still come, everything is kept for it, and nobody is through."""
    stages = stages_of()
    stages.met(1, 0)
    stages.met(2, 0)
    stages.phase_protocol.state.final = 0  # type: ignore[union-attr]
    stages.tell(Arrived(1, report(final=0), []))
    assert not stages.phase_protocol.state.drained()  # type: ignore[union-attr]
    stages.met(2, 1)
    assert stages.phase_protocol.state.drained()  # type: ignore[union-attr]
    stages.advance(Asynchronous(merge=b"".join))
    assert set(stages.phase_protocol.state.links) == {1, 2} and not stages.phase_protocol.state.gone


def test_a_death_after_a_phase_does_not_end_the_next_one() -> None:
    """The previous phase is through again without the dead: that is no news of the present one."""
    status = RunStatus()
    stages = stages_of(status)
    stages.met(1, 0)
    stages.tell(Ended())
    stages.tell(Arrived(1, report(final=0), []))
    assert status.drained
    stages.advance(Asynchronous(merge=b"".join))
    assert not status.drained
    stages.lost(1)
    assert stages.previous is not None and stages.previous.state.drained()  # type: ignore[union-attr]
    assert not status.drained


def test_protocols_take_the_news_that_somebody_is_ahead() -> None:
    broadcast, channels = Asynchronous(merge=b"".join), Channels()
    for protocol in (broadcast, channels):
        state = protocol.start(0, True)
        for event in (PeerJoined(1), PeerAhead(1), PeerAhead(7), PeerJoined(2), PeerGone(2)):
            protocol.on(state, event, 0.0)  # type: ignore[attr-defined]
        assert not state.links and state.gone == {2}


def test_who_begins_anew_knows_all_and_drops_what_it_took_over_before() -> None:
    status = RunStatus()
    stages = stages_of(status)
    stages.begin(Asynchronous(merge=b"".join), 0, synced=False)
    stages.met(1, 0)
    stages.lost(3)
    before = stages.phase_protocol
    stages.arrived(1, report(phase=1), [])
    stages.begin(Asynchronous(merge=b"".join), 0, synced=False, phase=1)
    assert (
        stages.previous is None
        and list(stages.phase_protocol.state.links) == [1]
        and stages.phase_protocol.state.gone == {3}
    )
    assert stages.phase_protocol.state.attached()  # type: ignore[union-attr]  # what came early was heard
    stages.tell(Synced({}, []), before)
    assert before.state.synced and not stages.phase_protocol.state.synced


def test_what_is_far_ahead_of_a_newcomer_is_nobodys_fault() -> None:
    status = RunStatus()
    stages = stages_of(status)
    stages.met(1, 0)
    far = Parcel(1, 0, Note("x"), 0, 1, phase=2)
    stages.arrived(1, far, [b""])  # before the start: we shall begin there
    status.started = True
    stages.met(2, 2)
    stages.arrived(2, far, [b""])  # it began there
    assert not len(stages.early)


def test_a_phase_is_gone_to_when_it_is_known_who_is_in_the_run() -> None:
    status = RunStatus()
    status.learn(Roster(3, [], []), [])
    status.learn(NextPhase(1, 4), [])
    assert status.phase == 0 and not status.over(0)
    status.learn(Roster(4, [Member(2, "", "", False, 1)], []), [])
    assert status.phase == 1 and status.over(0)


class Wire:
    """Two ends of a handover."""

    def __init__(self) -> None:
        self.said: list[tuple[int, StateRequest | StateChunk, list[bytes]]] = []
        self.end = StateTransfer(
            RunStatus(), lambda to, message, payloads: self.said.append((to, message, list(payloads))), 1000
        )


def test_a_state_of_a_later_phase_is_given_when_the_donor_is_there() -> None:
    donor = Wire()
    donor.end.asked(5, StateRequest(0, phase=1))
    assert not donor.end.wanted, "its weights are not those of that phase"
    donor.end.asked(6, StateRequest(0))
    assert donor.end.wanted
    donor.end.enter(1)
    assert donor.end.wanted
    donor.end.grant(Snapshot(b"abcd"), {})
    assert [(to, chunk.phase) for to, chunk, _ in donor.said] == [(5, 1)], "and nobody gets one of a phase that is over"
    donor.end.wanted = False  # as the training thread does
    donor.end.asked(6, StateRequest(0))
    assert not donor.end.wanted


def test_a_state_of_another_phase_is_not_taken() -> None:
    taker, attached = Wire(), Channels().start(0, False)
    attached.links[4] = None  # type: ignore[assignment]
    taker.end._status.donor = 4
    taker.end.enter(1)
    taker.end.go_on(attached, 0.0)
    assert [message for _, message, _ in taker.said] == [StateRequest(0, phase=1, nbytes=_window(0).part_nbytes)]
    taker.end.arrived(4, StateChunk(0, 3, {}), [b"old"], attached, 0.1)
    assert taker.end._status.state is None
    taker.end.arrived(4, StateChunk(0, 3, {}, phase=1), [b"new"], attached, 0.1)
    assert taker.end._status.state is not None and bytes(taker.end._status.state[0]) == b"new"
