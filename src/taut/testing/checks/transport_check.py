"""What every transport must do: ``check_transport`` runs it all, ``CHECKS`` lets a test run one thing at a time.

A transport is tested through a *network*: a function that makes the transport of a rank, together with the record by
which others know it.

>>> from taut.transport.memory import MemoryNetwork
>>> def network() -> Network:
...     memory = MemoryNetwork()
...     return lambda rank: (memory.transport(rank), memory.member(rank))
>>> check_transport(network)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from taut.core.messages import Member
from taut.transport.transport import Transport

Network = Callable[[int], tuple[Transport, Member]]
Arrival = tuple[int, list[bytes]]  # the sender, and the frames
DEADLINE_S = 20.0  # for what takes milliseconds on an idle machine


def check_transport(network: Callable[[], Network]) -> None:
    """Run every check on a fresh network; an ``AssertionError`` says which law was broken."""
    for check in CHECKS:
        check(network())


def check_address_is_known(network: Network) -> None:
    """Check that the address is known from construction on, and is the one that others are told."""
    with pair(network) as (a, b):
        assert a.address != b.address
        assert "://" in a.address


def check_order_and_no_loss(network: Network) -> None:
    """Check that everything arrives, once, in the order in which it was sent, both ways, with its sender."""
    with pair(network) as (a, b):
        n = 500
        for to, source, sink in ((1, a, b), (0, b, a)):
            messages = [[b"%d" % i, bytes(i)] for i in range(n)]
            arrived = carry(source, to, sink, messages)
            assert [frames for _, frames in arrived] == messages
            assert {sender for sender, _ in arrived} == {1 - to}


def check_links_keep_their_own_order(network: Network) -> None:
    """Check that messages of several senders mix, but each sender's stay in order and are not taken for another's."""
    with ends(network, 3) as ((a, am), (b, bm), (c, cm)):
        for left, right, left_member, right_member in ((a, c, am, cm), (b, c, bm, cm)):
            left.admit(right_member)
            right.admit(left_member)
        arrived: list[Arrival] = []
        for i in range(100):
            for source, rank in ((a, 0), (b, 1)):
                send(source, 2, [b"%d of %d" % (i, rank)], c, arrived)
        until(lambda: len(arrived) >= 200, c, arrived)
        for rank in (0, 1):
            ours = [frames[0] for sender, frames in arrived if sender == rank]
            assert ours == [b"%d of %d" % (i, rank) for i in range(100)]


def check_frames_keep_their_shape(network: Network) -> None:
    """Check that empty frames, many frames and every byte value arrive as they were sent."""
    with pair(network) as (a, b):
        messages = [
            [b""],
            [b"", b""],
            [b"header", b"", b"payload", b""],
            [bytes(range(256))],
            [bytes([i]) for i in range(256)],
            [b"h"] + [b"%d" % i for i in range(1024)],
        ]
        assert [frames for _, frames in carry(a, 1, b, messages)] == messages


def check_large_frames(network: Network) -> None:
    """Check that frames of 8 MB arrive whole, and small ones before and after them in order."""
    with pair(network) as (a, b):
        big = bytes(range(256)) * (8 * 2**20 // 256)
        messages = [[b"before"], [b"head", big], [b"between"], [big, b"tail"], [b"after"]]
        assert [frames for _, frames in carry(a, 1, b, messages)] == messages


def check_unknown_receiver(network: Network) -> None:
    """Check that sending to a worker that was not admitted is refused, and so is sending to the supervisor where there is
    none."""
    with pair(network) as (a, _):
        assert a.send(7, [b"nobody"]) is False
        assert a.send(-1, [b"no supervisor"]) is False
        a.forget(7)  # no error either


def check_forget_stops_delivery(network: Network) -> None:
    """Check that after ``forget`` nothing more of that peer is delivered or sent to it; being admitted again restores
    it."""
    with ends(network, 3) as ((a, am), (b, bm), (c, cm)):
        for transport, member in ((a, bm), (c, bm), (b, am), (b, cm)):
            transport.admit(member)
        assert len(carry(a, 1, b, [[b"first"]])) == 1
        b.forget(0)
        assert b.send(0, [b"to the forgotten"]) is False
        a.send(1, [b"from the forgotten"])
        # What c sends last arrives although a, who was connected before, sent first: so a's was let fall.
        arrived = carry(c, 1, b, [[b"from another"]])
        assert arrived == [(2, [b"from another"])]
        b.admit(am)
        frames = [frames[0] for _, frames in carry(a, 1, b, [[b"again"]], last=b"again")]
        assert frames[-1] == b"again"


def check_admit_twice(network: Network) -> None:
    """Check that admitting a member again, as it is, neither loses nor repeats anything."""
    with ends(network, 2) as ((a, am), (b, bm)):
        for _ in range(2):
            a.admit(bm)
            b.admit(am)
        assert a.send(1, [b"one"])
        a.admit(bm)
        arrived = carry(a, 1, b, [[b"two"]], last=b"two")
        assert [frames for _, frames in arrived] == [[b"one"], [b"two"]]


def check_stranger_waits(network: Network) -> None:
    """Check that a message to a peer that has not admitted the sender yet is either refused, or arrives when it has."""
    with ends(network, 2) as ((a, am), (b, bm)):
        a.admit(bm)
        accepted = a.send(1, [b"early"])
        assert b.receive(0.01) == []
        b.admit(am)
        arrived = carry(a, 1, b, [[b"later"]], last=b"later")
        assert [frames for _, frames in arrived] == [[b"early"]] * accepted + [[b"later"]]


def check_timeout(network: Network) -> None:
    """Check that ``receive`` comes back empty after its timeout, and at once for a timeout of zero."""
    with pair(network) as (a, _):
        start = time.monotonic()
        assert a.receive(0) == []
        assert a.receive(0.02) == []
        assert time.monotonic() - start < DEADLINE_S


def check_wake(network: Network) -> None:
    """Check that ``wake`` ends a ``receive`` that would wait for ever, called before it or during it, from another
    thread."""
    with pair(network) as (a, _):
        a.wake()
        a.wake()
        assert a.receive(None) == []
        waker = threading.Timer(0.01, a.wake)  # most likely while receive waits; the law holds either way
        waker.start()
        assert a.receive(None) == []
        waker.join()
        require_waiting(a)


def check_hand_over_to_a_thread(network: Network) -> None:
    """Check that a transport may be used by another thread than the one that made it."""
    with pair(network) as (a, b):
        arrived: list[Arrival] = []
        thread = threading.Thread(target=lambda: until(lambda: bool(arrived), b, arrived))
        thread.start()
        assert a.send(1, [b"over there"])
        thread.join()
        assert arrived == [(0, [b"over there"])]


def check_back_pressure(network: Network) -> None:
    """Check that when nobody reads, ``send`` is refused after a bounded number of messages; what was accepted arrives;
    and ``receive`` of the sender returns when there is room again."""
    with pair(network) as (a, b):
        for to, source, sink in ((1, a, b), (0, b, a)):
            assert len(carry(source, to, sink, [[b"connected"]])) == 1
        payload, accepted, bound = bytes(256 * 1024), 0, 1000
        while accepted < bound and a.send(1, [b"%d" % accepted, payload]):
            accepted += 1
        assert accepted < bound, "nothing holds the sender back"
        arrived: list[Arrival] = []
        reader = threading.Thread(target=lambda: until(lambda: len(arrived) > accepted, b, arrived))
        reader.start()
        start = time.monotonic()
        a.receive(DEADLINE_S)  # no message comes: it returns because the link has room
        assert time.monotonic() - start < DEADLINE_S / 2, "the sender was not told that there is room"
        while not a.send(1, [b"%d" % accepted, payload]):
            a.receive(DEADLINE_S)
        reader.join()
        assert [frames[0] for _, frames in arrived] == [b"%d" % i for i in range(accepted + 1)]
        require_waiting(a)


def check_close(network: Network) -> None:
    """Check that ``close`` may be called twice, ``wake`` after it does nothing, and the peer lives on."""
    with pair(network) as (a, b):
        assert len(carry(a, 1, b, [[b"hello"]])) == 1
        b.close()
        b.close()
        b.wake()
        a.send(1, [b"into the void"])
        assert a.receive(0.01) == []


# ------------------------------------------------------------------------- two transports, and messages between them


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


def require_waiting(transport: Transport) -> None:
    """Require that ``receive`` waits: a reason to return early is used up by returning, or the caller's loop is a busy
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


CHECKS: tuple[Callable[[Network], None], ...] = tuple(
    check for name, check in list(globals().items()) if name.startswith("check_") and check is not check_transport
)
