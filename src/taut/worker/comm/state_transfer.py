"""Handing a state from a donor to a newcomer, in chunks that the newcomer asks for, by the communication threads of both.

Before the run starts, a donor may itself still be taking the state from another: it passes on what it has
(``Fetch.chunk``). So a chain of workers takes about as long as one. ``Donation`` and ``Fetch`` are pure: time is a
number.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from taut.core.messages import StateChunk, StateRequest
from taut.core.pacing import Window
from taut.errors import MalformedMessage
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.channels import ChannelsState
from taut.worker.comm.run_status import RunStatus
from taut.worker.model.snapshot import Snapshot, pack

CHUNK_NBYTES = 256 << 10  # the largest: a worker of a chain passes on none before it is complete
FIRST_NBYTES = 16 << 10  # under way at first: a link of 64 kbit/s carries a chunk before its answer is missed
UNDER_WAY = 32  # of the largest, at most: a link takes 64 messages
# Before asking again, doubled each time up to the longest: a donor that was cut off is asked soon after it is back. An
# answered request starts anew.
PATIENCE_S, LONGEST_S = 1.0, 16.0
PATIENT = 8  # times as long as the last chunk took
MOST_SNAPSHOTS = 16  # that one worker may ask for
MOST_WAITING = 64  # requests of one worker for chunks that have not come

log = logging.getLogger("taut")

Links = BroadcastState | ChannelsState
Send = Callable[[int, StateRequest | StateChunk, Sequence[bytes]], object]


@dataclass
class Donation:
    """The donor's side: the workers that wait for a snapshot, and the snapshots that are being read."""

    waiting: dict[int, int] = field(default_factory=dict)  # worker -> size of its first chunk
    granted: dict[int, tuple[bytes, dict[int, int]]] = field(default_factory=dict)

    def request(self, sender: int, message: StateRequest) -> tuple[StateChunk, bytes] | None:
        """Return the chunk asked for; None if there must be a snapshot first (``waiting`` says so). A worker in the
        middle of a state that is not kept for it is told to begin anew, by a chunk of another total."""
        if sender not in self.granted:
            if message.offset:
                return StateChunk(message.offset, message.offset, {}), b""
            self.waiting[sender] = message.nbytes
            return None
        data, have = self.granted[sender]
        if message.offset > len(data):
            return None
        return StateChunk(message.offset, len(data), have), data[message.offset : message.offset + message.nbytes]

    def grant(self, data: bytes, have: dict[int, int]) -> list[tuple[int, StateChunk, bytes]]:
        """Give a new snapshot to all workers that waited for one; return the first chunk for each."""
        ready, self.waiting = sorted(self.waiting.items()), {}
        self.granted |= {rank: (data, have) for rank, _ in ready}
        return [(rank, StateChunk(0, len(data), have), data[:nbytes]) for rank, nbytes in ready]

    def forget(self, rank: int) -> None:
        """Drop what is kept for worker ``rank``: it has the state, or is gone."""
        self.waiting.pop(rank, None)
        self.granted.pop(rank, None)


@dataclass
class Fetch:
    """The newcomer's side: what has come of the state, and what to ask for."""

    donor: int
    limit_nbytes: int
    buffer: memoryview = field(default_factory=lambda: memoryview(b""))
    offset: int = 0
    total: int | None = None
    have: dict[int, int] = field(default_factory=dict)
    patience_s: float = PATIENCE_S
    window: Window = field(default_factory=lambda: _window(0))  # what is asked for
    began_s: float = 0.0  # when the first chunk came
    _since_s: float = float("-inf")  # when the last chunk came, or the first was asked for

    @property
    def complete(self) -> bool:
        return self.total is not None and self.offset == self.total

    def due(self, now: float) -> list[StateRequest]:
        """Return the requests to send now."""
        if self.complete:
            return []
        if now - self._since_s >= self.patience_s:
            if self._since_s > float("-inf"):
                self.patience_s = min(LONGEST_S, 2 * self.patience_s)
            self._since_s, self.window = now, _window(self.offset)
        requests, window = [], self.window
        while window.room and window.offset < (1 if self.total is None else self.total):  # its size comes with the first
            left = window.part_nbytes if self.total is None else self.total - window.offset
            requests.append(StateRequest(window.offset, nbytes=min(window.part_nbytes, left)))
            window.sent(requests[-1].nbytes, now)
        return requests

    def arrived(self, sender: int, message: StateChunk, payloads: Sequence[bytes], now: float) -> None:
        """Take a chunk. One that does not fit is left alone: it will be asked for again."""
        if sender != self.donor or message.offset != self.offset or message.total > self.limit_nbytes:
            return
        if self.total is not None and (message.total != self.total or message.have != self.have):
            self.buffer, self.offset, self.total, self.window = (
                memoryview(b""),
                0,
                None,
                _window(0),
            )  # it is a new snapshot
            return
        if self.offset + len(payloads[0]) > message.total:
            return
        if self.total is None:
            # The only copy of the state in memory. No bytearray: filling that with zeros takes as long as many chunks.
            self.buffer, self.began_s = np.empty(message.total, np.uint8).data, now
        self.total, self.have = message.total, message.have
        self.buffer[self.offset : self.offset + len(payloads[0])] = payloads[0]
        self.offset += len(payloads[0])
        self.window.seen(self.offset, now)
        self.patience_s, self._since_s = max(PATIENCE_S, PATIENT * (now - self._since_s)), now

    def chunk(self, request: StateRequest) -> tuple[StateChunk, bytes] | None:
        """Return the chunk that another worker asks for; None: it is not here yet."""
        if self.total is None or self.offset < min(self.total, request.offset + request.nbytes):
            return None
        part = bytes(self.data()[request.offset : request.offset + request.nbytes])
        return StateChunk(request.offset, self.total, self.have), part

    def data(self) -> memoryview:
        return self.buffer


def _window(offset: int) -> Window:
    return Window(CHUNK_NBYTES, limit_nbytes=UNDER_WAY * CHUNK_NBYTES, nbytes=FIRST_NBYTES, offset=offset, done=offset)


class StateTransfer:
    """One worker's part, as donor and as newcomer. ``send`` is to another worker. ``wanted``: the training thread is to
    make a snapshot. ``phase``: this worker's; a state is of one phase, and a request for that of a later one is answered
    when this worker is there. ``fetches``: the newcomer asks for the state; else the strategy gives it."""

    def __init__(self, status: RunStatus, send: Send, limit_nbytes: int) -> None:
        self._status, self._send, self._limit_nbytes = status, send, limit_nbytes
        self.wanted = False
        self.phase = 0
        self._ahead: dict[int, StateRequest] = {}
        self._donation = Donation()
        self._asked: Counter[int] = Counter()  # snapshots, per worker
        self.fetches = True
        self._fetch: Fetch | None = None
        self._fetched = False
        self._followers: dict[int, tuple[Fetch, list[StateRequest]]] = {}  # they take what this worker is taking

    # ------------------------------------------------------------------------------------------------ giving

    def asked(self, sender: int, request: StateRequest) -> None:
        """Answer a request for the state, or for more of it."""
        if request.phase > self.phase:
            self._ahead[sender] = request
        if request.phase != self.phase:
            return
        if self._passes_on(sender, request):
            return
        self._count(sender, request)
        answer = self._donation.request(sender, request)
        if answer is not None:
            self._give(sender, *answer)
        elif self._donation.waiting:
            self.wanted = True
            self._status.note()

    def _passes_on(self, sender: int, request: StateRequest) -> bool:
        """Pass on the state that this worker is taking, or took when ``sender`` first asked; return whether it does."""
        if sender not in self._followers:
            if self._fetch is None or request.offset:
                return False
            self._followers[sender] = (self._fetch, [])
        fetch, waiting = self._followers[sender]
        answer = fetch.chunk(request)
        if answer is None:
            waiting.append(request)
            del waiting[:-MOST_WAITING]
        else:
            self._give(sender, *answer)
        return True

    def _pass_on(self) -> None:
        """Answer the followers that waited for what has come now."""
        for sender, (fetch, waiting) in self._followers.items():
            requests, waiting[:] = waiting[:], []
            for request in requests:
                answer = fetch.chunk(request)
                if answer is None:
                    waiting.append(request)
                else:
                    self._give(sender, *answer)

    def _count(self, sender: int, request: StateRequest) -> None:
        """Count the snapshots that ``sender`` asks for: each costs the training thread time, and a newcomer needs few."""
        donation = self._donation
        if request.offset == 0 and sender not in donation.granted and sender not in donation.waiting:
            self._asked[sender] += 1
            if self._asked[sender] > MOST_SNAPSHOTS:
                raise MalformedMessage(f"the state was asked for {self._asked[sender]} times")

    def grant(self, state: Snapshot, have: dict[int, int]) -> None:
        """Give a new snapshot, which contains the updates ``have``, to those that wait for one."""
        for rank, chunk, payload in self._donation.grant(pack(state), have):
            self._give(rank, chunk, payload)

    def _give(self, to: int, chunk: StateChunk, payload: bytes) -> None:
        self._send(to, msgspec.structs.replace(chunk, phase=self.phase), [payload])

    def enter(self, phase: int) -> None:
        """Go to another phase: what was given and taken of a state in the one before is void."""
        self.phase, self.wanted, self._donation = phase, False, Donation()
        self._fetch, self._fetched, self._followers = None, False, {}
        ahead, self._ahead = self._ahead, {}
        for sender, request in ahead.items():
            self.asked(sender, request)

    def forget(self, rank: int) -> None:
        """Drop what is kept for worker ``rank``: it has the state, or is gone."""
        self._ahead.pop(rank, None)
        self._followers.pop(rank, None)
        self._donation.forget(rank)

    # ------------------------------------------------------------------------------------------------ taking

    def arrived(self, sender: int, chunk: StateChunk, payloads: Sequence[bytes], protocol: Links, now: float) -> None:
        """Take a part of the state, and ask for the next."""
        if self._fetch is not None and chunk.phase == self.phase:
            self._fetch.arrived(sender, chunk, payloads, now)
            self._pass_on()
            self.go_on(protocol, now)

    def go_on(self, protocol: Links, now: float) -> None:
        """Go on fetching the donor's state, if there is a donor and every neighbour holds its updates for this worker; or
        found the run, as soon as they do."""
        donor = self._status.donor
        if self._fetch is not None and donor != self._fetch.donor:
            self._fetch, self._followers = None, {}  # those who took what came of it are told to begin anew
        if self._fetched or donor is None:
            return
        if donor < 0:  # the initial state is the run's; others may be founders, too, and must hold their updates for us
            self._fetched = protocol.attached()
            if self._fetched:
                self._status.note(founds=True)
            return
        if not self.fetches:
            return
        if self._fetch is None:
            self._fetch = Fetch(donor, self._limit_nbytes)
        if self._fetch.complete:
            self._fetched = True
            took_s, megabytes = now - self._fetch.began_s, self._fetch.offset / 1e6
            log.info("the run's state was here after %.2f s (%.1f MB)", took_s, megabytes)
            self._status.note(state=(self._fetch.data(), self._fetch.have))
            self._fetch = None  # the training thread alone holds the state now, and lets it go when it is in the model
        elif protocol.attached() and donor in protocol.links:
            for request in self._fetch.due(now):
                self._send(donor, msgspec.structs.replace(request, phase=self.phase), ())
