"""A worker and its node, turn by turn: include what arrived, iterate, hand the update over, keep the accounts."""

from __future__ import annotations

from taut.errors import MalformedMessage
from taut.worker.comm.comm_thread import CommThread
from taut.worker.standalone.worker import Worker
from taut.worker.time_split import Stopwatch


class StreamTurns:
    """Drives ``worker`` on ``node``. All its methods belong to the training thread."""

    def __init__(self, worker: Worker, node: CommThread, watch: Stopwatch | None = None) -> None:
        self.worker, self.node = worker, node
        self.watch = watch or Stopwatch()
        self.have: dict[int, int] = {}  # included, per origin
        self.published = 0
        self.included = 0

    def merge(self) -> dict[int, int]:
        """Include all that has arrived; the positions that were reached."""
        positions: dict[int, int] = {}
        for item in self.node.take():
            try:
                if item.payload:  # else it was refused when it came
                    self.worker.absorb(item.payload, item.origin, item.checked)
            except MalformedMessage as error:
                # Everybody refuses the same bytes, so replicas still agree without it.
                self.node.refusals.add(item.origin, str(error))
            positions[item.origin] = item.hi
            self.included += 1
        self.have.update(positions)
        return positions

    def turn(self) -> None:
        """One whole turn."""
        self.node.pump(receive=True)
        self.watch.charge("send")
        positions = self.merge()
        self.watch.charge("merge")
        self.hand_over(self.worker.emit(), positions)

    def hand_over(self, payload: bytes | None, positions: dict[int, int]) -> None:
        self.watch.charge("encode")
        if payload is not None:
            self.published += 1
        self.node.publish(payload, positions)
        self.node.pump(receive=False)
        if self.node.snapshot_wanted:
            self.snapshot()
        self.watch.charge("send")

    def idle(self) -> None:
        """While waiting: go on including, and serve whoever joins."""
        positions = self.merge()
        if positions:
            self.node.taken(positions)
        if self.node.snapshot_wanted:
            self.snapshot()

    def snapshot(self) -> None:
        """Give the state to whoever asked. Everything received is included first (see ``Broadcast``)."""
        self.node.taken(self.merge())
        self.node.grant(self.worker.state(), {**self.have, self.node.rank: self.published})

    def drain(self) -> None:
        """Publish no more, and wait until everything of everybody is here."""
        self.watch.charge("compute")
        self.node.end()
        self.node.wait(lambda facts: facts.drained, self.idle)
        self.idle()
        self.watch.charge("wait")
