"""The end of a relayed run: drain until *final* has come over every edge, then compare the sums b and repair them.

1. A draining worker sends *final* over an edge once it has received *final* over all its other edges (leaves begin) and
   no update waits to cross this one.
2. With *final* from all edges, no update is missing. Digests of b go up to the root, the lowest rank, merged on the way.
3. The root's verdict goes down. If all are equal, the run is over. If not (a relay died with updates that some lack, a
   worker joined in mid-run, the codec rounds), one worker's b goes to all along the tree: that of the lowest rank, unless
   some worker had finished before the members changed; then that worker's, since its model may have been used already.

When members change, all this starts again on the new tree. *again* asks a neighbour to repeat its messages about the end
over this edge, since it may have sent them before this worker knew the new members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.api import CodedLocal, Heard, Note, Tell
from taut.strategies.tree.spanning_tree import SpanningTree

ENDING_KINDS = ("final", "report", "verdict", "state", "again")
ALIKE = 0  # a verdict; any other is 1 + the rank whose b all take


class RelayEnding:
    """One worker's part in the end. ``drained``: no update is missing; ``agreed``: its b is the run's, for good."""

    def __init__(self, tree: SpanningTree, local: CodedLocal) -> None:
        self.local = local
        self.agreed = False
        self.news = False  # it has just agreed, anew after a change of members
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
        """Return the messages to send now. ``idle``: edges over which nothing waits; ``include`` brings b up to date."""
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
        """Report one digest for all workers behind this one, empty if they differ; at the root, decide the verdict."""
        digests = {_digest(self.local)} | {digest for digest, _ in self.reports.values()}
        digest = digests.pop() if len(digests) == 1 else b""
        sources = [source for _, source in self.reports.values() if source]
        if self.agreed:
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
            self._agree()
        elif verdict == 1 + self.tree.rank:
            payload = self.local.shared.tobytes()
            for other in self.tree.neighbours:
                self._say(other, "state", tells, 0, payload)
            self._agree()

    def _adopt(self, sender: int, payload: bytes) -> list[Tell]:
        if len(payload) != self.local.shared.nbytes:
            raise MalformedMessage(f"weights of {len(payload)} bytes; this model has {self.local.shared.nbytes}")
        tells: list[Tell] = []
        if self.verdict is None:
            return tells  # a state comes only after a verdict: this one is unasked for
        for other in self.tree.neighbours:
            if other != sender:
                self._say(other, "state", tells, 0, payload)
        self.local.adopt(np.frombuffer(payload, np.float32))
        self.repaired += 1
        self._agree()
        return tells

    def _agree(self) -> None:
        self.over = self.agreed = self.news = True


def _digest(local: CodedLocal) -> bytes:
    shared = np.ascontiguousarray(local.shared)
    return hashlib.blake2b(shared.view(np.uint8).data, digest_size=16).digest()
