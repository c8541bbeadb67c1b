"""A worker that has a token, is admitted, and then sends whatever a test wants, to show that the others survive it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence

from taut.core import messages as m
from taut.transport.framing import decode, encode
from taut.transport.keys import Token, WorkerKeys
from taut.transport.zmq.transport import ZmqTransport

BEAT_S = 0.5
PATIENCE_S = 20.0


class HostileWorker:
    """Joins the run of the supervisor at ``supervisor`` as a worker with this ``model``, by hand: there is no model
    behind it, and it takes part in nothing. While it waits, it sends heartbeats as a live worker does.

    ``members`` are the others; ``expelled`` and ``refused`` say why it was expelled or refused, None while it was not.
    """

    def __init__(self, supervisor: str, token: str, model: Sequence[m.TensorSpec]) -> None:
        keys = WorkerKeys.generate()
        self.transport = ZmqTransport(keys, supervisor=(supervisor, Token.parse(token)))
        self.rank = -1
        self.members: set[int] = set()
        self.expelled: str | None = None
        self.refused: str | None = None
        self._donor = False
        self._beat_s = 0.0
        address, who = self.transport.address, (socket.gethostname(), os.getpid())
        self.say(m.Hello(m.PROTOCOL_VERSION, list(model), address, keys.public_key, *who))

    def join(self, ready: bool = True) -> None:
        """Wait until it is in the run and could get the state from a donor; with ``ready``, say that it has the state."""
        self.until(lambda: self._donor or self.refused is not None)
        if ready and self.refused is None:
            self.say(m.Ready())
            for rank in self.members:
                self.send(rank, m.Report(0, 0, False, {}, [], -1))

    def say(self, message: m.Message, payloads: Sequence[bytes] = ()) -> bool:
        """Send a message to the supervisor."""
        return self.transport.send(m.SUPERVISOR, encode(message, payloads))

    def send(self, rank: int, message: m.Message, payloads: Sequence[bytes] = ()) -> bool:
        """Send a message to a worker; return False if its queue is full."""
        return self.transport.send(rank, encode(message, payloads))

    def send_frames(self, rank: int, frames: Sequence[bytes]) -> bool:
        """Send any bytes to a worker (or to ``SUPERVISOR``)."""
        return self.transport.send(rank, frames)

    def until(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Listen and send heartbeats until ``condition`` holds."""
        deadline = time.monotonic() + patience_s
        while not condition():
            self.listen(0.02)
            assert time.monotonic() < deadline, "the condition did not hold in time"

    def listen(self, timeout_s: float) -> None:
        """Take in messages of the supervisor, and send a heartbeat if it is time."""
        for sender, frames in self.transport.receive(timeout_s):
            if sender == m.SUPERVISOR:
                self._learn(decode(frames, m.SupervisorMessage)[0])
        if self.rank >= 0 and time.monotonic() - self._beat_s > BEAT_S:
            self._beat_s = time.monotonic()
            self.say(m.Heartbeat(m.Statistics(), []))

    def close(self) -> None:
        self.transport.close()

    def _learn(self, message: m.Message) -> None:
        match message:
            case m.Welcome(rank):
                self.rank = rank
            case m.Roster(_, members):
                for member in members:
                    if member.rank != self.rank:
                        self.transport.admit(member)
                        self.members.add(member.rank)
                self.members &= {member.rank for member in members}
            case m.Donor():
                self._donor = True
            case m.Expulsion(reason):
                self.expelled = reason
            case m.Refusal(reason):
                self.refused = reason
            case _:
                pass
