"""The transport between machines: ZeroMQ over TCP, encrypted and authenticated by CURVE.

One PULL socket takes what all peers send; one PUSH socket per peer sends to it; one DEALER talks to the
supervisor. libzmq's one I/O thread does the encryption, the copying and the reconnecting outside the GIL. The
sender of a frame is the owner of the key that its connection proved to hold.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import zmq

from taut.core.messages import SUPERVISOR, Member
from taut.errors import MalformedMessage
from taut.transport.endpoint import bind as bind_endpoint
from taut.transport.endpoint import is_tcp_address
from taut.transport.frame_packing import bundle, opened, unbundle
from taut.transport.framing import LIMIT_NBYTES, PEER_QUEUE
from taut.transport.keys import Token, WorkerKeys, is_public_key
from taut.transport.transport import SupervisorLink, Transport
from taut.transport.zmq import options
from taut.transport.zmq.auth import Gatekeeper, guard
from taut.transport.zmq.rate_limit import SMALL_NBYTES, RateLimit
from taut.transport.zmq.supervisor_client import ZmqSupervisorClient
from taut.transport.zmq.waker import Waker

# Messages queued per link and side; more belongs in the strategy's log, where updates can be merged.
BATCH = 256  # messages per call of receive, so that sending gets its turn
# Small messages of one peer: so many a second, CREDIT more for each that we send to it (protocols answer within a factor
# of five), and what a pause of BURST_S would have brought.
MESSAGES_PER_S, CREDIT, BURST_S = 2_000.0, 20.0, 10.0
MOST_FRAMES = 2048  # of one message: twice what an ``Updates`` can have

# Plain integers: zmq's own are enums, and combining those costs as much as a call into the library.
_NOBLOCK, _MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
_POLLIN, _POLLOUT, _EVENTS = int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.EVENTS)


class ZmqTransport(Transport):
    """A ``Transport`` over ZeroMQ.

    ``bind``: address (and port) to listen on; ``advertise``: what peers are told instead; ``supervisor``: its
    address and the join token, if there is one; ``limit_nbytes``: the largest message sent or taken;
    ``messages_per_s``: small ones that a peer may send for long, unasked; see ``pace``.
    """

    def __init__(
        self,
        keys: WorkerKeys,
        *,
        bind: str = "127.0.0.1",
        advertise: str | None = None,
        supervisor: tuple[str, Token] | None = None,
        limit_nbytes: int = LIMIT_NBYTES,
        messages_per_s: float = MESSAGES_PER_S,
    ) -> None:
        self._keys, self._limit_nbytes = keys, limit_nbytes
        self._members: dict[int, Member] = {}
        self._ranks: dict[str, int] = {}  # public key -> rank: who may connect, and who a frame is from
        self._outgoing: dict[int, zmq.Socket[bytes]] = {}
        self._pace = RateLimit[int](messages_per_s, int(BURST_S * messages_per_s))
        self._refused: set[int] = set()  # links whose last send found no room
        self._closed = False
        self._supervisor: ZmqSupervisorClient | None = None
        self.excess: Mapping[int, int] = self._pace.excess
        self._waker = Waker()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        if sys.platform == "linux":
            # Its waking must not take the core from the training thread, which would have to wait for its next turn
            # behind every other worker of a busy machine: it runs at the next tick, or on another core at once.
            self._context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_BATCH)
        self._context.max_sockets = 16_384
        self._gatekeeper = Gatekeeper(self._context, self._ranks.__contains__, patient=True)
        if supervisor is not None:  # it may come to tell us where it is now
            self._ranks[supervisor[1].server_public.decode("ascii")] = SUPERVISOR
        self._pull = self._socket(zmq.PULL)
        guard(self._pull, keys.secret_key)
        try:
            self._address = bind_endpoint(self._pull, bind, advertise, supervisor[0] if supervisor else None)
            if supervisor is not None:
                self._supervisor = ZmqSupervisorClient(self._context, *supervisor, keys, limit_nbytes)
                self.supervisor: SupervisorLink = self._supervisor
                self._outgoing[SUPERVISOR] = self._supervisor.socket
        except BaseException:
            self.close()
            raise
        self._watch = self._watched()

    @property
    def address(self) -> str:
        return self._address

    def admit(self, member: Member) -> None:
        known = self._members.get(member.rank)
        if known == member:
            return
        if not is_public_key(member.public_key) or not is_tcp_address(member.address):
            raise MalformedMessage(f"worker {member.rank} has no usable key or address: {member.address!r}")
        if self._ranks.get(member.public_key, member.rank) != member.rank:
            raise MalformedMessage(f"worker {member.rank} has the key of worker {self._ranks[member.public_key]}")
        self.forget(member.rank)
        push = self._socket(zmq.PUSH)
        try:
            mine, theirs = self._keys.public_key.encode("ascii"), member.public_key.encode("ascii")
            options.connect(push, member.address, theirs, mine, self._keys.secret_key)
        except zmq.ZMQError as error:
            push.close()
            raise MalformedMessage(f"worker {member.rank} at {member.address!r}: {error.strerror}") from None
        self._outgoing[member.rank] = push
        self._members[member.rank] = member
        self._ranks[member.public_key] = member.rank
        self._gatekeeper.release(member.public_key)

    def forget(self, rank: int) -> None:
        member = self._members.pop(rank, None)
        if member is None:
            return
        del self._ranks[member.public_key]
        self._outgoing.pop(rank).close(linger=0)
        self._pace.forget(rank)
        self._refused.discard(rank)
        self._watch = self._watched()

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        socket = self._outgoing.get(to)
        if socket is None:
            return False
        *first, last = bundle(frames, self._limit_nbytes)
        try:
            for frame in first:
                socket.send(frame, _MORE)
            socket.send(last, _NOBLOCK)
        except zmq.Again:  # only the first frame can find no room, so nothing is half sent
            if to not in self._refused:
                self._refused.add(to)
                self._watch = self._watched()
            return False
        self._pace.credit(to, CREDIT)
        return True

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        arrived: list[tuple[int, list[bytes]]] = []
        ready: list[tuple[Any, int]] = zmq.zmq_poll(self._watch, options.milliseconds(timeout_s))
        for socket, _ in ready:
            if socket is self._pull:
                self._drain_peers(arrived)
            elif socket is self._gatekeeper.socket:
                self._gatekeeper.serve()
            elif socket == self._waker.fd:
                self._waker.clear()
            elif self._supervisor is not None:
                if socket is self._supervisor.socket:
                    self._drain_supervisor(self._supervisor.socket, arrived)
                elif socket is self._supervisor.monitor:
                    self._supervisor.observe()
        if self._refused:
            self._forgive()
        return arrived

    def wake(self) -> None:
        self._waker.wake()

    def close(self, linger_s: float = 0.0) -> None:
        if self._closed:
            return
        self._closed = True
        if self._supervisor is not None:
            del self._outgoing[SUPERVISOR]
            self._supervisor.close(linger_s)
        for socket in self._outgoing.values():
            socket.close(linger=options.milliseconds(linger_s))
        self._outgoing.clear()
        self._members.clear()
        self._ranks.clear()
        self._pull.close()
        self._gatekeeper.close()
        self._context.term()
        self._waker.close()

    def _drain_peers(self, arrived: list[tuple[int, list[bytes]]]) -> None:
        """Take what lies in the PULL socket. The first frame is taken as a ``Frame``: only those know their sender."""
        pull, ranks, room, pace = self._pull, self._ranks, self._limit_nbytes, self._pace
        now = time.monotonic()
        for _ in range(BATCH):
            try:
                first = frame = pull.recv(_NOBLOCK, copy=False)
            except zmq.Again:  # a fresh connection is readable once before its first message
                return
            size = len(first)
            if first.more:
                frames = [first.bytes]
                while frame.more:
                    frame = pull.recv(_NOBLOCK, copy=False)
                    size += len(frame)
                    if size <= self._limit_nbytes and len(frames) < MOST_FRAMES:  # else it is refused, and costs no more
                        frames.append(frame.bytes)
            else:
                frames = unbundle(first.bytes)
            sender = ranks.get(str(first.get("User-Id")))
            # Without a sender: forgotten, but still connected.
            if sender is not None and (size > SMALL_NBYTES or pace.admits(sender, now)):
                arrived.append((sender, frames))
            room -= size
            # Asking for events keeps the GIL, and costs less than the exception of a recv that finds nothing.
            if room < 0 or not _ready(pull, _POLLIN):
                return

    def _drain_supervisor(self, dealer: zmq.Socket[bytes], arrived: list[tuple[int, list[bytes]]]) -> None:
        for _ in range(BATCH):
            try:
                arrived.append((SUPERVISOR, opened(dealer.recv_multipart(_NOBLOCK))))
            except zmq.Again:
                return

    def _forgive(self) -> None:
        """Stop watching links that have room again; the caller is about to try them."""
        self._refused = {rank for rank in self._refused if not _ready(self._outgoing[rank], _POLLOUT)}
        self._watch = self._watched()

    def _watched(self) -> list[tuple[Any, int]]:
        read: list[Any] = [self._pull, self._gatekeeper.socket, self._waker.fd]
        if self._supervisor is not None:
            read += [self._supervisor.monitor, self._supervisor.socket]
        full = [self._outgoing[rank] for rank in self._refused]
        return [*((each, _POLLIN) for each in read), *((each, _POLLOUT) for each in full)]

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        options.apply(socket, hwm=PEER_QUEUE, limit_nbytes=self._limit_nbytes)
        return socket


def _ready(socket: zmq.Socket[bytes], event: int) -> bool:
    events: Any = socket.get(_EVENTS)
    return bool(events & event)
