"""One valid message of every kind: what fuzzing starts from, and what a test of framing goes through."""

from __future__ import annotations

from taut.core.messages import (
    Digest,
    Done,
    Donor,
    Drain,
    Expulsion,
    Failed,
    Finish,
    Gone,
    Heartbeat,
    Hello,
    Lease,
    LeaseDone,
    LeaseRequest,
    Member,
    Message,
    NextPhase,
    NoLease,
    Note,
    Parcel,
    PhaseDone,
    Pulse,
    Ready,
    Receipt,
    Refusal,
    Report,
    Roster,
    Saved,
    Span,
    Start,
    StateChunk,
    StateRequest,
    Statistics,
    TensorSpec,
    Updates,
    Upload,
    Welcome,
)

EXAMPLES: tuple[Message, ...] = (
    Updates(round=1, echo=2, spans=[Span(3, 4, 5), Span(3, 6, 6)]),
    Report(round=1, position=-1, gap=True, have={0: 1, 7: 2}, sealed=[3], final=-1),
    StateRequest(offset=9),
    StateChunk(offset=0, total=10, have={1: 2}),
    Hello(1, [TensorSpec("w", [2, 3], "float32", "trained")], "tcp://h:1", "k" * 40, "h", 1),
    Ready(),
    Heartbeat(Statistics(steps=3, loss=0.5), [0.25, -1.0]),
    LeaseRequest(0, 100, 8, False),
    LeaseDone([1, 2]),
    Done(leaving=True),
    Failed("it broke"),
    Digest("abc", True, {0: 1}, Statistics()),
    Upload(0, 10),
    Welcome(3, "run", 0, 4, "{}"),
    Refusal("no"),
    Roster(2, [Member(0, "tcp://h:1", "k" * 40)], [Gone(1, "died")]),
    Donor(-1),
    Start(),
    Lease(1, 0, 0, 8),
    NoLease(2),
    Parcel(3, 2, Note("weights", 7, 1, [0.5]), 0, 2),
    Receipt(4, True),
    PhaseDone(1),
    NextPhase(1),
    Drain("enough"),
    Finish(True, 0),
    Saved("/tmp/model", ""),
    Pulse(),
    Expulsion("silent"),
)


def message_samples() -> tuple[Message, ...]:
    """
    >>> len({type(message) for message in message_samples()}) == len(message_samples())
    True
    """
    return EXAMPLES
