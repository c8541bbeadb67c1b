"""The end of a relayed run: all has come when *final* came over every edge; then the sums are compared, and mended.

1. Who drains tells *final* over an edge once it came over all its others (leaves first) and nothing waits there.
2. When it came over all edges, no update is missing. Digests of b go up to the root, the lowest rank, merged on the way.
3. The root's verdict goes down. All alike: the run is over. Not so (a relay died with updates that some lack, somebody
   joined in mid-run, the codec rounds): b of one worker goes to all, along the tree: of the lowest rank, unless a worker
   had been told that it is over before the members changed; then that one's, for its model may be out already.

When members change on the way, it starts again on the new tree. *again* asks a neighbour to repeat what it said about
the end on this edge, for it may have known the new members earlier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Local, Tell
from taut.strategies.tree.spanning_tree import SpanningTree

if TYPE_CHECKING:
    from taut.strategies.api import Vector

ENDING_KINDS = ("final", "report", "verdict", "state", "again")
ALIKE = 0  # a verdict; others are 1 + the rank whose b all take


class Relayed(Local, Protocol):
    """What a relay sees of its worker: its codec, whose payloads add."""

    def check(self, payload: bytes) -> None:
        """``MalformedMessage`` unless ``absorb`` and ``merge`` could take it."""

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        """One payload that does what these do."""

    def flush(self) -> list[bytes]:
        """The run is over: what is still worth sending."""

    def retune(self, workers: int, staleness: float) -> None:
        """How many there are, and how late updates come, in steps."""

    @property
    def shared(self) -> Vector:
        """b, the sum of all updates."""

    def adopt(self, shared: Vector) -> None:
        """Take these shared weights for one's own."""


class RelayEnding:
    """One worker's part. ``drained``: no update is missing; ``settled``: this worker's b is the run's (it stays so)."""

    def __init__(self, tree: SpanningTree, local: Relayed) -> None:
        self.local = local
        self.settled = False
        self.news = False  # it has just been settled, or asked to settle again
        self.repaired = 0
        self.restart(tree)

    def restart(self, tree: SpanningTree) -> None:
        self.tree = tree
        self.drained = False
        self.over = False
        self.finals: set[int] = set()
        self.reports: dict[int, tuple[bytes, int]] = {}
        self.verdict: int | None = None
        self.said: dict[int, list[Tell]] = {other: [] for other in tree.neighbours}
        self.told: set[tuple[int, str]] = set()

    def ask_again(self) -> list[Tell]:
        return [Tell(other, Note("again", self.tree.key)) for other in self.tree.neighbours]

    def heard(self, event: Heard) -> list[Tell]:
        note, sender = event.note, event.sender
        if sender not in self.said:
            raise MalformedMessage(f"{note.kind!r} from worker {sender}, which is no neighbour in the tree")
        match note.kind:
            case "again":
                return list(self.said[sender])
            case "final":
                self.finals.add(sender)
            case "report":
                self.reports[sender] = (event.payload, note.part)
            case "verdict" if sender == self.tree.parent and self.verdict is None:
                self.verdict = note.part
            case "state" if not self.over:
                return self._adopt(sender, event.payload)
        return []

    def go_on(self, idle: Sequence[int], include: Callable[[], None]) -> list[Tell]:
        """What can be said now. ``idle``: edges over which nothing waits; ``include`` brings b up to date."""
        tells: list[Tell] = []
        for other in idle:
            if self.finals >= set(self.tree.neighbours) - {other}:
                self._say(other, "final", tells)
        if not self.drained and self.finals >= set(self.tree.neighbours) and len(idle) == len(self.tree.neighbours):
            self.drained = True
            include()
        if self.drained and self.verdict is None and self.reports.keys() >= set(self.tree.children):
            self._compare(tells)
        if self.verdict is not None and not self.over:
            self._obey(self.verdict, tells)
        return tells

    def _say(self, other: int, kind: str, tells: list[Tell], part: int = 0, payload: bytes = b"") -> None:
        if (other, kind) not in self.told:
            self.told.add((other, kind))
            tell = Tell(other, Note(kind, self.tree.key, part), payload)
            self.said[other].append(tell)
            tells.append(tell)

    def _compare(self, tells: list[Tell]) -> None:
        """Report one digest for all that are behind this worker, empty if they differ; at the root, judge."""
        digests = {_digest(self.local)} | {digest for digest, _ in self.reports.values()}
        digest = digests.pop() if len(digests) == 1 else b""
        sources = [source for _, source in self.reports.values() if source]
        if self.settled:
            sources.append(1 + self.tree.rank)
        source = min(sources, default=0)
        if self.tree.parent is not None:
            self._say(self.tree.parent, "report", tells, source, digest)
        else:
            self.verdict = ALIKE if digest else source or 1 + self.tree.root

    def _obey(self, verdict: int, tells: list[Tell]) -> None:
        for child in self.tree.children:
            self._say(child, "verdict", tells, verdict)
        if verdict == ALIKE:
            self._settle()
        elif verdict == 1 + self.tree.rank:
            payload = self.local.shared.tobytes()
            for other in self.tree.neighbours:
                self._say(other, "state", tells, 0, payload)
            self._settle()

    def _adopt(self, sender: int, payload: bytes) -> list[Tell]:
        if len(payload) != self.local.shared.nbytes:
            raise MalformedMessage(f"weights of {len(payload)} bytes; this model has {self.local.shared.nbytes}")
        tells: list[Tell] = []
        if self.verdict is None:
            return tells  # it can only come after the verdict; this one is of nobody that we know
        for other in self.tree.neighbours:
            if other != sender:
                self._say(other, "state", tells, 0, payload)
        self.local.adopt(np.frombuffer(payload, np.float32))
        self.repaired += 1
        self._settle()
        return tells

    def _settle(self) -> None:
        self.over = self.settled = self.news = True


def _digest(local: Relayed) -> bytes:
    shared = np.ascontiguousarray(local.shared)
    return hashlib.blake2b(shared.view(np.uint8).data, digest_size=16).digest()
