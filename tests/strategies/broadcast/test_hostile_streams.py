"""A neighbour that sends what it likes in a stream: honest workers go on, keep little of it, and stay equal."""

from __future__ import annotations

import numpy as np
import pytest

from taut.codecs import merge
from taut.codecs.wire.payload import Header, Kind, build
from taut.core.events import Arrived, Include, PayloadRefused, PeerGone, PeerJoined, Published, Send, Tick
from taut.core.messages import Report, Span, Updates
from taut.errors import MalformedMessage
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState


def word(index: int) -> bytes:
    return build(Header(Kind.WORDS, 0.5, 0, 64, 1), np.array([index << 1], np.uint32))


def refuse_bad(payload: bytes) -> None:
    if payload.startswith(b"bad"):
        raise MalformedMessage("bad")


def joined(protocol: Broadcast) -> BroadcastState:
    state = protocol.start(0, True)
    for rank in (1, 2):
        protocol.on(state, PeerJoined(rank), 0.0)
        protocol.on(state, Arrived(rank, Report(0, 0, False, {}, [], -1), []), 0.0)
    return state


def updates(origin: int, *numbers: int) -> Updates:
    return Updates(0, 0, [Span(origin, number, number) for number in numbers])


def test_a_payload_that_cannot_be_merged_ends_nobody_who_passes_it_on() -> None:
    """Worker 1 dies after payloads of which some are rubbish; worker 0 hands them to worker 2, in many pieces."""
    protocol = Broadcast(merge=merge, payload_nbytes=1000)
    state = joined(protocol)
    for number in range(1, 301):
        payload = b"rubbish" if number % 50 == 0 else word(number % 64)
        protocol.on(state, Arrived(1, updates(1, number), [payload]), 0.0)
    protocol.on(state, PeerGone(1), 1.0)
    protocol.on(state, Arrived(2, Report(0, 0, False, {1: 0}, [1], -1, merged=[(1, 9)]), []), 1.0)
    actions = protocol.on(state, Tick(), 2.0) + protocol.on(state, Published(word(1)), 3.0)
    passed = [action for action in actions if isinstance(action, Send) and isinstance(action.message, Updates)]
    assert any(span.origin == 1 for action in passed for span in action.message.spans)


def test_a_refused_payload_is_not_kept() -> None:
    protocol = Broadcast(merge=b"".join, check=refuse_bad)
    state = joined(protocol)
    actions = protocol.on(state, Arrived(1, updates(1, 1, 2, 3), [b"good", b"bad" * 1000, b"more"]), 0.0)
    assert [action.payload for action in actions if isinstance(action, Include)] == [b"good", b"", b"more"]
    assert [action for action in actions if isinstance(action, PayloadRefused)] == [PayloadRefused(1, "bad")]
    assert state.log_of(1).nbytes == 8


def test_what_was_refused_is_passed_on_as_nothing_and_blames_nobody() -> None:
    protocol = Broadcast(merge=b"".join, check=refuse_bad)
    state = joined(protocol)
    protocol.on(state, PeerGone(1), 0.0)
    actions = protocol.on(state, Arrived(2, updates(1, 1, 2), [b"", b"good"]), 0.0)
    assert [action.payload for action in actions if isinstance(action, Include)] == [b"", b"good"]
    assert not any(isinstance(action, PayloadRefused) for action in actions)


def test_a_message_with_the_same_update_twice_is_taken_once() -> None:
    protocol = Broadcast(merge=b"".join)
    state = joined(protocol)
    actions = protocol.on(state, Arrived(1, updates(1, 1, 1, 2), [b"a", b"b", b"c"]), 0.0)
    assert [action.payload for action in actions if isinstance(action, Include)] == [b"a", b"c"]


def test_updates_that_another_worker_lacks_are_kept_up_to_a_bound() -> None:
    """Worker 1 sends to worker 0 only; worker 2 never has any of it."""
    protocol = Broadcast(merge=b"".join, keep_nbytes=10_000)
    state = joined(protocol)
    for number in range(1, 1001):
        protocol.on(state, Arrived(1, updates(1, state.log_of(1).head + 1), [bytes(100)]), float(number))
    assert state.log_of(1).nbytes <= 10_000
    held = state.log_of(1).head
    protocol.on(state, Arrived(2, Report(0, 0, False, {1: held}, [], -1), []), 2000.0)
    protocol.on(state, Arrived(1, updates(1, held + 1), [bytes(100)]), 2001.0)
    assert state.log_of(1).head == held + 1, "what others have makes room for more"


def test_updates_from_the_far_future_and_backward_spans_are_refused() -> None:
    protocol = Broadcast(merge=b"".join)
    state = joined(protocol)
    for lo, hi in ((1, 2**40), (5, 2)):
        with pytest.raises(MalformedMessage):
            protocol.on(state, Arrived(1, Updates(0, 0, [Span(1, lo, hi)]), [b"x"]), 0.0)
    assert state.log_of(1).head == 0
