"""One odd message of a worker that is in the run does not end the run: over real sockets, to the saved model."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from clients import PATIENCE_S, Client, Harness, end_together, work

from taut.core.messages import (
    Digest,
    Drain,
    Expulsion,
    Failed,
    Heartbeat,
    Lease,
    LeaseRequest,
    Message,
    Pulse,
    Saved,
    Start,
    Statistics,
)
from taut.supervisor.faults.complaints import MOST_REFUSED
from taut.supervisor.run.handlers import MessageHandlers
from taut.transport.framing import encode, payload_count


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    harness.close()


def raw(message: Message, *path_and_value: object) -> list[bytes]:
    """The frames of a message with one value that no honest worker can write."""
    *path, value = path_and_value
    plain = at = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    frames = encode(message, [b""] * payload_count(message))
    return [frames[0][:2] + msgspec.msgpack.encode(plain), *frames[1:]]


def heartbeat_of_nan(client: Client) -> None:
    client.send(raw(Heartbeat(Statistics(4, 40, wall_s=1.0), []), 1, 10, math.nan))
    client.say(Failed("no more"))


def heartbeat_of_infinite_speed(client: Client) -> None:
    client.say(Heartbeat(Statistics(4, 2**62, wall_s=5e-324), []))
    client.say(LeaseRequest(0, 100, 10, True))
    client.hear(Pulse)
    client.say(Failed("no more"))


def digest_far_away(client: Client) -> None:
    client.hear(Drain)
    client.send(raw(Digest("ab", True, {}, Statistics()), 7, 1e200))
    client.say(Failed("no more"))


@pytest.mark.parametrize("sends", [heartbeat_of_nan, heartbeat_of_infinite_speed, digest_far_away])
def test_an_odd_number_does_not_end_the_run(harness: Harness, sends: Callable[[Client], None]) -> None:
    supervisor = harness.supervise(workers=3)
    honest, hostile = [harness.client(11), harness.client(12)], harness.client(13)
    for client in (*honest, hostile):
        client.become_ready()
    hostile.hear(Start)
    if sends is not digest_far_away:
        sends(hostile)
        harness.seen(lambda view: [row.rank for row in view.workers if row.state == "gone"] == [2])
    for client in honest:
        work(client)
    if sends is digest_far_away:
        supervisor.drain("enough")
        sends(hostile)
        harness.seen(lambda view: [row.rank for row in view.workers if row.state == "gone"] == [2])
    end_together(*honest)
    assert honest[0].hear(Saved).error == ""
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert (outcome.state, outcome.error) == ("finished", "")
    assert outcome.failures == ("worker 2: no more",)


def test_a_request_with_another_length_costs_its_sender_the_place_and_the_others_go_on(harness: Harness) -> None:
    supervisor = harness.supervise(workers=3)
    honest, hostile = [harness.client(11), harness.client(12)], harness.client(13)
    for client in (*honest, hostile):
        client.become_ready()
    hostile.hear(Start)
    hostile.say(LeaseRequest(0, 7, 10, True))
    hostile.hear(Lease)
    threads = [threading.Thread(target=work, args=[client], daemon=True) for client in honest]
    for thread in threads:
        thread.start()
    assert "a data set of 7 samples in pass 0: expected 100 samples" in hostile.hear(Expulsion).reason
    for thread in threads:
        thread.join(PATIENCE_S)
    end_together(*honest)
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert (outcome.state, outcome.samples_again, outcome.samples_undone) == ("finished", 0, 0)


def test_a_bug_in_a_handler_costs_the_sender_its_place_and_nobody_else_anything(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = MessageHandlers.said

    def broken(self, worker, message, payloads, now) -> None:
        if isinstance(message, LeaseRequest) and message.length == 13:
            raise ZeroDivisionError("a bug")
        handle(self, worker, message, payloads, now)

    monkeypatch.setattr(MessageHandlers, "said", broken)
    supervisor = harness.supervise(workers=3)
    honest, hostile = [harness.client(11), harness.client(12)], harness.client(13)
    for client in (*honest, hostile):
        client.become_ready()
    hostile.say(LeaseRequest(0, 13, 1, True))
    view = harness.seen(lambda view: any(event.kind == "odd" for event in view.events))
    told = next(event.text for event in view.events if event.kind == "odd")
    assert "LeaseRequest from worker 2 could not be handled" in told
    assert "ZeroDivisionError: a bug" in told
    assert view.state == "training"
    hostile.say(Heartbeat(Statistics(), []))
    assert hostile.hear(Pulse).lost == 0, "the message came, though nobody could handle it"
    for _ in range(MOST_REFUSED):
        hostile.say(LeaseRequest(0, 13, 1, True))
    assert "could not be handled" in hostile.hear(Expulsion).reason
    for client in honest:
        work(client)
    end_together(*honest)
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("finished", 0)
