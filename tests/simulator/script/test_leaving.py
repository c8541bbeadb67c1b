"""A worker that is asked to leave is gone in a moment, whatever the others ask of it and whoever's turn it is."""

from __future__ import annotations

from typing import Any

import pytest

from taut.core.events import Arrived, Heard, PeerJoined, Send, Tell
from taut.core.messages import Note, Receipt
from taut.strategies.delivery.channels import Channels
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.cluster import Cluster
from taut.testing import FaultPlan, run_with_faults
from taut.testing.soak.cases import JOB

STEP_S = 0.05


@pytest.mark.parametrize(
    ("strategy", "rank"),
    [
        ("server", 0),  # holds the weights, and is asked for them all the time
        ("relay", 1),  # passes on what the others send
        ("fedavg", 0),  # is not chosen, and waits for those who are
        ("easgd:every=4", 0),
        ("sync", 1),
    ],
)
def test_it_takes_a_few_steps_at_most(strategy: str, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_s, gone_s = [], []
    dismiss, gone = Cluster.dismiss, Admission.gone

    def noted_dismiss(self: Cluster, rank: int, reason: str, now: float, expel: bool = False) -> Any:
        asked_s.append(now)
        return dismiss(self, rank, reason, now, expel)

    def noted_gone(self: Admission, worker: Any, reason: str, now: float, **more: Any) -> None:
        gone_s.append((now, worker.rank, reason))
        gone(self, worker, reason, now, **more)

    monkeypatch.setattr(Cluster, "dismiss", noted_dismiss)
    monkeypatch.setattr(Admission, "gone", noted_gone)
    plan = FaultPlan(seed=1).leave(rank).at(0.72)
    samples = ("--samples", "768", "--epochs", "1")
    found = run_with_faults(JOB, plan, workers=4, strategy=strategy, args=samples, step_s=STEP_S, limit_s=60.0)
    assert not found.error and found.outcome is not None and found.outcome.samples_undone == 0
    ((at_s, who, reason),) = gone_s
    assert (who, reason) == (rank, "left")
    assert at_s - asked_s[0] < 10 * STEP_S < found.wall_s / 2


def test_what_was_posted_before_a_mark_is_received_though_more_follows() -> None:
    """The other worker is always one parcel behind, so that the channel is never empty."""
    channels = Channels()
    mine, theirs = channels.start(0, synced=True), channels.start(1, synced=True)
    channels.on(mine, PeerJoined(1), 0.0)
    channels.on(theirs, PeerJoined(0), 0.0)
    delivered = []

    def post(number: int) -> list[Send]:
        return [one for one in channels.on(mine, Tell(1, Note("n", number), b""), 0.0) if isinstance(one, Send)]

    under_way = post(0) + post(1)
    marks = mine.posted()
    for number in range(2, 6):
        assert mine.received(marks) == (len(delivered) >= 2)
        under_way += post(number)
        sent = under_way.pop(0)
        actions = channels.on(theirs, Arrived(0, sent.message, [bytes(each) for each in sent.payloads]), 0.0)
        delivered += [one.note.round for one in actions if isinstance(one, Heard)]
        channels.on(mine, Arrived(1, Receipt(len(delivered)), []), 0.0)
        assert not mine.delivered()
    assert delivered == [0, 1, 2, 3] and mine.received(marks) and not mine.received(mine.posted())
