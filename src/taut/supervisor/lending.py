"""Answers lease requests, and keeps those that can only be answered later. Pure; cluster.py drives it."""

from __future__ import annotations

from dataclasses import dataclass

from taut.core.messages import Expulsion, LeaseRequest, NoLease
from taut.errors import Misuse
from taut.supervisor.leases import HOLD
from taut.supervisor.membership import Worker
from taut.supervisor.roll import Roll

MOST_HELD = 4  # requests of one worker: more than it makes ahead


@dataclass(slots=True)
class Lending:
    """The counter at which data are dealt. ``sharers``: how many workers share them. While somebody has not said where it
    stands, since the supervisor came back, nobody is told that all is dealt: what it held may have to be dealt again."""

    roll: Roll
    sharers: int = 1

    def request(self, worker: Worker, request: LeaseRequest, now: float) -> None:
        """Answer now, or hold the request. Another length than the first worker's costs the place in the
        run."""
        roll = self.roll
        if roll.ending.begun:
            roll.outbox.send(worker.connection, NoLease(max(request.epoch, request.until - 1)))
            return
        final = max(request.epoch, request.until - 1)
        try:
            epoch = roll.leases.earliest(request.epoch, final)
            answer = roll.leases.request(
                worker.rank,
                epoch,
                request.length,
                batch=request.batch,
                live_workers=self.sharers,
                last=request.last,
                least=request.least,
                after=(final - epoch) * request.length,
                final=final,
            )
        except Misuse as error:
            roll.failed(worker, str(error), now)
            roll.outbox.send(worker.connection, Expulsion(worker.reason))
            return
        if answer == HOLD or (answer is None and roll.awaited):
            held = roll.held.setdefault(worker.rank, [])
            if len(held) < MOST_HELD:
                held.append(request)
        else:
            roll.outbox.send(worker.connection, answer or NoLease(final))

    def serve(self, now: float) -> None:
        """Try the held requests again: somebody may be done, or gone, or the run is being drained."""
        held = dict(self.roll.held)
        self.roll.held.clear()
        for rank, requests in held.items():
            for request in requests:
                self.request(self.roll.members.workers[rank], request, now)
