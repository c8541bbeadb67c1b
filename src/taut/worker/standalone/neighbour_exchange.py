"""How a worker of a wired topology exchanges with its neighbours, when each worker has a process of its own.

After each iteration the update goes to the neighbours that the script wired, and no further; they include it as it is.
The updates go through the reliable channels that every run has beside its stream: once, and in order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from taut.core.events import Heard, Tell
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.delivery.payload_batch import unbind
from taut.worker.comm.comm_thread import CommThread
from taut.worker.exchange.stream import ReplicaStream
from taut.worker.standalone.outbox import Outbox
from taut.worker.standalone.worker import Worker

UPDATES, SEEN, ENDED = "updates", "seen", "ended"
KINDS = (UPDATES, SEEN, ENDED)


class NeighbourExchange:
    """Exchanges for ``worker`` with ``neighbours``, on ``comm``; ``stream`` takes in what comes. All of it belongs to the
    training thread."""

    def __init__(self, worker: Worker, neighbours: Collection[int], comm: CommThread, stream: ReplicaStream) -> None:
        self.worker, self.comm, self.stream = worker, comm, stream
        self._outboxes = {rank: Outbox() for rank in sorted(neighbours)}
        self._came: Counter[int] = Counter()
        self._ended: set[int] = set()
        others, stream.hear = stream.hear, self._hear
        self._others = others

    def turn(self) -> None:
        """Include what arrived, make one iteration, and send its update."""
        self.comm.pump(receive=True)
        self.stream.take_mail()
        self.stream.charge("merge")
        update = self.worker.emit()
        self.stream.charge("compute")
        for rank, outbox in self._outboxes.items():
            if update is not None:
                outbox.put(update)
            self._send(rank, outbox)
        self.stream.charge("send")

    def end(self) -> None:
        """Send what waits, and say that nothing follows."""
        for rank, outbox in self._outboxes.items():
            self._send(rank, outbox, last=True)
            self.comm.post(Tell(rank, Note(ENDED)))

    def drained(self) -> bool:
        """Return whether all neighbours that are left have said that nothing follows: all of theirs is included then."""
        roster = self.comm.status.roster
        left = {member.rank for member in roster.members} if roster is not None else set(self._outboxes)
        return left & set(self._outboxes) <= self._ended

    def _send(self, rank: int, outbox: Outbox, last: bool = False) -> None:
        message = outbox.take(last)
        if message is not None:
            self.comm.post(Tell(rank, Note(UPDATES), message))

    def _hear(self, heard: Heard) -> bool:
        """Take a message; return whether it is one of these. Raises ``MalformedMessage``."""
        if heard.note.kind not in KINDS:
            return self._others(heard)
        outbox = self._outboxes.get(heard.sender)
        if outbox is None:
            raise MalformedMessage(f"{heard.note.kind!r} of worker {heard.sender}, which has no channel to this one")
        if heard.note.kind == SEEN:
            outbox.note_seen(heard.note.round)
            self._send(heard.sender, outbox)
        elif heard.note.kind == ENDED:
            self._ended.add(heard.sender)
        else:
            self._came[heard.sender] += 1
            self.comm.post(Tell(heard.sender, Note(SEEN, self._came[heard.sender])))
            for update in unbind(heard.payload):
                self.worker.absorb(update, heard.sender)
        return True
