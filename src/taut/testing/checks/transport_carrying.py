"""Two transports, and messages from one to the other, for ``transport_check.py``: nothing here waits for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from taut.core.messages import Member
from taut.transport.transport import Transport

Network = Callable[[int], tuple[Transport, Member]]
Arrival = tuple[int, list[bytes]]  # the sender, and the frames
DEADLINE_S = 20.0  # for what takes milliseconds on an idle machine


@contextmanager
def ends(network: Network, count: int) -> Iterator[list[tuple[Transport, Member]]]:
    """Yield the transports of the first ranks, each with the record by which others know it; close them at the end."""
    made = [network(rank) for rank in range(count)]
    try:
        yield made
    finally:
        for transport, _ in made:
            transport.close()


@contextmanager
def pair(network: Network) -> Iterator[tuple[Transport, Transport]]:
    """Yield the transports of ranks 0 and 1, admitted to each other."""
    with ends(network, 2) as ((a, a_member), (b, b_member)):
        a.admit(b_member)
        b.admit(a_member)
        yield a, b


def check_waits(transport: Transport) -> None:
    """Check that ``receive`` waits: a reason to return early is used up by returning, or the caller's loop is a busy
    one."""
    start = time.monotonic()
    for _ in range(5):
        transport.receive(0.02)
    assert time.monotonic() - start > 0.04, "receive no longer waits"


def carry(
    source: Transport, to: int, sink: Transport, messages: Sequence[list[bytes]], last: bytes | None = None
) -> list[Arrival]:
    """Send all messages and return what the sink got: as many, or everything up to the frame ``last``."""
    arrived: list[Arrival] = []
    for message in messages:
        send(source, to, message, sink, arrived)
    if last is None:
        until(lambda: len(arrived) >= len(messages), sink, arrived)
    else:
        until(lambda: any(frames == [last] for _, frames in arrived), sink, arrived)
    return arrived


def send(source: Transport, to: int, frames: list[bytes], sink: Transport, arrived: list[Arrival]) -> None:
    """Send, letting the sink read while there is no room."""
    end = time.monotonic() + DEADLINE_S
    while not source.send(to, frames):
        assert time.monotonic() < end, f"no room towards {to} within {DEADLINE_S} s"
        arrived += sink.receive(0.01)


def until(done: Callable[[], bool], sink: Transport, arrived: list[Arrival]) -> None:
    """Receive until ``done``."""
    end = time.monotonic() + DEADLINE_S
    while not done():
        left_s = end - time.monotonic()
        assert left_s > 0, f"waited {DEADLINE_S} s; {len(arrived)} messages came"
        arrived += sink.receive(left_s)
