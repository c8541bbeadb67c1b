"""A state from a donor to a newcomer, as the communication thread sees to it at either end; state_chunks.py has the
rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from taut.core.messages import StateChunk, StateRequest
from taut.errors import MalformedMessage
from taut.strategies.broadcast.state import BroadcastState
from taut.strategies.delivery.channels import ChannelsState
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.state_chunks import Donation, Fetch
from taut.worker.model.snapshot import Snapshot, pack

MOST_SNAPSHOTS = 16  # that one worker may ask for

Links = BroadcastState | ChannelsState
Send = Callable[[int, StateRequest | StateChunk, Sequence[bytes]], object]


class StateTransfer:
    """``send`` is to another worker. ``wanted``: the training thread is to make a snapshot. ``phase``: this worker's; a
    state is of one phase, and who asks for a later one is answered when this worker is there."""

    def __init__(self, facts: RunStatus, send: Send, limit_nbytes: int) -> None:
        self._facts, self._send, self._limit_nbytes = facts, send, limit_nbytes
        self.wanted = False
        self.phase = 0
        self._ahead: dict[int, StateRequest] = {}
        self._donation = Donation()
        self._asked: Counter[int] = Counter()  # snapshots, per worker
        self.fetches = True  # else the strategy sees to the state
        self._fetch: Fetch | None = None
        self._fetched = False

    # ------------------------------------------------------------------------------------------------ giving

    def asked(self, sender: int, request: StateRequest) -> None:
        """For the state, or for more of it."""
        if request.phase > self.phase:
            self._ahead[sender] = request
        if request.phase != self.phase:
            return
        self._count(sender, request)
        answer = self._donation.request(sender, request)
        if answer is not None:
            self._give(sender, *answer)
        elif self._donation.waiting:
            self.wanted = True
            self._facts.note()

    def _count(self, sender: int, request: StateRequest) -> None:
        """A snapshot costs the training thread time, and a newcomer needs one, or another where its donor died."""
        donation = self._donation
        if request.offset == 0 and sender not in donation.granted and sender not in donation.waiting:
            self._asked[sender] += 1
            if self._asked[sender] > MOST_SNAPSHOTS:
                raise MalformedMessage(f"the state was asked for {self._asked[sender]} times")

    def grant(self, state: Snapshot, have: dict[int, int]) -> None:
        """A snapshot was made, which contains the updates ``have``."""
        for rank, chunk, payload in self._donation.grant(pack(state), have):
            self._give(rank, chunk, payload)

    def _give(self, to: int, chunk: StateChunk, payload: bytes) -> None:
        self._send(to, msgspec.structs.replace(chunk, phase=self.phase), [payload])

    def enter(self, phase: int) -> None:
        """This worker is in another phase: what it gave and took of a state in the one before is void."""
        self.phase, self.wanted, self._donation = phase, False, Donation()
        self._fetch, self._fetched = None, False
        ahead, self._ahead = self._ahead, {}
        for sender, request in ahead.items():
            self.asked(sender, request)

    def forget(self, rank: int) -> None:
        """It has the state, or is gone."""
        self._ahead.pop(rank, None)
        self._donation.forget(rank)

    # ------------------------------------------------------------------------------------------------ taking

    def arrived(self, sender: int, chunk: StateChunk, payloads: Sequence[bytes], protocol: Links, now: float) -> None:
        """A part of the state: ask for the next."""
        if self._fetch is not None and chunk.phase == self.phase:
            self._fetch.arrived(sender, chunk, payloads)
            self.go_on(protocol, now)

    def go_on(self, protocol: Links, now: float) -> None:
        """With taking over the donor's state, if there is one to take and every neighbour holds for us."""
        donor = self._facts.donor
        if self._fetched or not self.fetches or donor is None or donor < 0:
            return
        if self._fetch is None or self._fetch.donor != donor:
            self._fetch = Fetch(donor, self._limit_nbytes)
        if self._fetch.complete:
            self._fetched = True
            self._facts.note(state=(self._fetch.data(), self._fetch.have))
            self._fetch = None  # the training thread alone holds the state now, and lets it go when it is in the model
        elif protocol.attached() and donor in protocol.links:
            request = self._fetch.due(now)
            if request is not None:
                self._send(donor, msgspec.structs.replace(request, phase=self.phase), ())
