"""One valid message of every kind: fuzzing starts from these, and the tests of framing use them."""

from __future__ import annotations

from taut.core import messages as m

EXAMPLES: tuple[m.Message, ...] = (
    m.Updates(round=1, echo=2, spans=[m.Span(3, 4, 5), m.Span(3, 6, 6)]),
    m.Report(
        round=1,
        position=-1,
        gap=True,
        have={0: 1, 7: 2},
        sealed=[3],
        final=-1,
        merged=[(2, 5), (6, 9)],
        marks=[m.Mark(7, 2, bytes(16))],
    ),
    m.StateRequest(offset=9, phase=1),
    m.StateChunk(offset=0, total=10, have={1: 2}, phase=1),
    m.Hello(1, [m.TensorSpec("w", [2, 3], "float32", "trained")], "tcp://h:1", "k" * 40, "h", 1),
    m.Ready(),
    m.Heartbeat(
        m.Statistics(steps=3, loss=0.5, late=(4, 0, 1)),
        [0.25, -1.0],
        [m.Complaint(2, 3, 0, "not finite")],
        said=9,
        agreed=4,
        elected=m.View(1, 4, [0, 2], True),
        disputes=[m.Dispute(3, 1)],
        host_use=m.HostUse(0.5, 8, 1 << 30, 1 << 34, 1, 0.9, 1 << 33, 1 << 34),
        sent_to={1: 1000, 7: 10},
    ),
    m.Logged([m.MetricPoint(3, "accuracy", 0.5)]),
    m.LoggedImage(3, "samples"),
    m.Validated(200, 0.93, took_s=0.5),
    m.EndRun("no better for 3 passes"),
    m.LeaseRequest(0, 100, 8, False),
    m.LeaseTaken(m.Lease(2**61 + 3, 0, 0, 8), 100),
    m.ReserveSeen(5, 12),
    m.LeaseDone([1, 2]),
    m.Done(leaving=True, begun=[4], said=12),
    m.Failed("another optimizer", unfit=True),
    m.Digest("abc", True, {0: 1}, m.Statistics()),
    m.Upload(0, 10),
    m.HandedOver(10, 2**32 - 1, 0.5, "a note"),
    m.Welcome(3, "run", 0, 4, "{}"),
    m.Refusal("no"),
    m.Roster(2, [m.Member(0, "tcp://h:1", "k" * 40, first_phase=1)], [m.Gone(1, "died")], 1),
    m.Donor(-1),
    m.Start(),
    m.Lease(1, 0, 0, 8),
    m.NoLease(2),
    m.Reserve(5, 100, [(0, 80, 100), (1, 0, 20)]),
    m.Parcel(3, 2, m.Note("weights", 7, 1, [0.5]), 0, 2),
    m.Receipt(4, True),
    m.Presence(2, 0, [0, 2], [m.View(0, 4, [0, 1, 2]), m.View(1, 4, [0, 2], True)], True),
    m.PhaseDone(1, 1, [m.TensorSpec("weight", [2, 3], "float32", "trained")]),
    m.NextPhase(1, version=2, growths=1),
    m.Drain("enough"),
    m.Leave("the machine is needed"),
    m.Steering(3, rate=0.5, slack=0.015625, paused=True),
    m.Moved("tcp://h:2", 1),
    m.Returned(1, "training", 0, [m.Lease(1, 0, 0, 8)], []),
    m.Checkpoint(3),
    m.CheckpointBegun(3, [m.Lease(2, 0, 3, 8)], 0, 40),
    m.CheckpointDone(3, 1000, "ab" * 16, "", 0.01),
    m.Finish(True, 0),
    m.UploadSeen(1 << 20),
    m.Saved("/tmp/model", ""),
    m.Pulse(),
    m.Expulsion("silent", True),
)


def message_samples() -> tuple[m.Message, ...]:
    """Return one message of each kind.

    >>> len({type(message) for message in message_samples()}) == len(message_samples())
    True
    """
    return EXAMPLES
