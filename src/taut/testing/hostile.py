"""A worker that has a token, is let in, and then sends whatever a test wants: for seeing that the others stand it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence

from taut.core.messages import (
    PROTOCOL_VERSION,
    SUPERVISOR,
    Donor,
    Expulsion,
    Heartbeat,
    Hello,
    Message,
    Parcel,
    Ready,
    Refusal,
    Report,
    Roster,
    Statistics,
    SupervisorMessage,
    TensorSpec,
    Updates,
    Welcome,
)
from taut.transport.framing import decode, encode
from taut.transport.keys import Token, WorkerKeys
from taut.transport.zmq.transport import ZmqTransport

BEAT_S = 0.5
PATIENCE_S = 20.0


class HostileWorker:
    """Joins the run of the supervisor at ``supervisor`` as a worker with this ``model``, by hand: there is no model
    behind it, and it takes part in nothing. It beats as a live worker does, whenever it waits.

    ``members`` are the others; ``expelled`` and ``refused`` say why it was sent away, None while it was not.
    """

    def __init__(self, supervisor: str, token: str, model: Sequence[TensorSpec]) -> None:
        keys = WorkerKeys.generate()
        self.transport = ZmqTransport(keys, supervisor=(supervisor, Token.parse(token)))
        self.rank = -1
        self.members: set[int] = set()
        self.expelled: str | None = None
        self.refused: str | None = None
        self._donor = False
        self._beat_s = 0.0
        address, who = self.transport.address, (socket.gethostname(), os.getpid())
        self.say(Hello(PROTOCOL_VERSION, list(model), address, keys.public_key, *who))

    def join(self, ready: bool = True) -> None:
        """Wait until it is in the run and could take the state from somebody; with ``ready`` say that it has it."""
        self.until(lambda: self._donor or self.refused is not None)
        if ready and self.refused is None:
            self.say(Ready())
            for rank in self.members:
                self.send(rank, Report(0, 0, False, {}, [], -1))

    def say(self, message: Message, payloads: Sequence[bytes] = ()) -> bool:
        """To the supervisor."""
        return self.transport.send(SUPERVISOR, encode(message, payloads))

    def send(self, rank: int, message: Updates | Report | Parcel | Message, payloads: Sequence[bytes] = ()) -> bool:
        """To a worker; False: its queue is full just now."""
        return self.transport.send(rank, encode(message, payloads))

    def send_frames(self, rank: int, frames: Sequence[bytes]) -> bool:
        """Any bytes, to a worker (or to ``SUPERVISOR``)."""
        return self.transport.send(rank, frames)

    def until(self, condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Beat and listen until ``condition`` holds."""
        deadline = time.monotonic() + patience_s
        while not condition():
            self.listen(0.02)
            assert time.monotonic() < deadline, "it did not come to pass"

    def listen(self, timeout_s: float) -> None:
        """Take in what came from the supervisor, and beat if it is time."""
        for sender, frames in self.transport.receive(timeout_s):
            if sender == SUPERVISOR:
                self._learn(decode(frames, SupervisorMessage)[0])
        if self.rank >= 0 and time.monotonic() - self._beat_s > BEAT_S:
            self._beat_s = time.monotonic()
            self.say(Heartbeat(Statistics(), []))

    def close(self) -> None:
        self.transport.close()

    def _learn(self, message: Message) -> None:
        match message:
            case Welcome(rank):
                self.rank = rank
            case Roster(_, members):
                for member in members:
                    if member.rank != self.rank:
                        self.transport.admit(member)
                        self.members.add(member.rank)
                self.members &= {member.rank for member in members}
            case Donor():
                self._donor = True
            case Expulsion(reason):
                self.expelled = reason
            case Refusal(reason):
                self.refused = reason
            case _:
                pass
