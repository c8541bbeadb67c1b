"""State of a relay (``relay.py``): updates to include, updates to publish, and updates that wait to cross its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.core.staleness_counts import StalenessCounts
from taut.errors import MalformedMessage
from taut.strategies.api import CodedLocal, Heard, Membership, MethodAction, Note, Proceed, Tell
from taut.strategies.delivery.payload_batch import PayloadBatch
from taut.strategies.tree.clocks import CLOCK, TreeClocks
from taut.strategies.tree.edge_messages import EdgeMessage, EdgeMessages
from taut.strategies.tree.relay_ending import RelayEnding
from taut.strategies.tree.spanning_tree import SpanningTree
from taut.strategies.tree.unacknowledged import UnacknowledgedMessages

RETUNE_STEPS = 64
WAITING_SHARE = 2  # waiting payloads are merged beyond this fraction of a dense update


@dataclass
class EdgeOutbox:
    """The updates that wait to cross one edge. Steps are this worker's own."""

    waiting: PayloadBatch
    since: int = 0  # the step at which the oldest update came here
    busy: bool = False
    sent: int = 0  # the step at which the message under way left
    delay: int = 0  # how many steps its oldest update had waited by then


@dataclass
class RelayState:
    """A worker's state. ``arrivals`` wait for the end of the step; ``early`` messages, for news of their members."""

    local: CodedLocal
    membership: Membership
    tree: SpanningTree
    ending: RelayEnding
    edges: EdgeMessages
    unacknowledged: UnacknowledgedMessages = field(default_factory=UnacknowledgedMessages)
    outboxes: dict[int, EdgeOutbox] = field(default_factory=dict)
    arrivals: PayloadBatch = field(default_factory=lambda: PayloadBatch(b"".join, 0))
    early: list[Heard] = field(default_factory=list)
    draining: bool = False
    leaving: set[int] | None = None  # workers that were told *going*
    steps: int = 0
    included: int = 0  # updates, its own included
    refused: int = 0
    clocks: TreeClocks | None = None  # where the delay is bounded
    clocks_of_others: dict[int, Heard] = field(default_factory=dict)  # the last from each that is in another tree
    hop: float = 0.5  # own steps that an update takes over one edge, smoothed
    late: StalenessCounts = field(default_factory=StalenessCounts)  # what ``staleness`` would be by each crossing alone

    @property
    def staleness(self) -> float:
        """Return the steps until an update has reached another worker, on average over the others."""
        return self.staleness_by(self.hop)

    def staleness_by(self, hop: float) -> float:
        """Return the staleness if every edge took so many steps."""
        return 0.5 + self.tree.distance * hop

    def empty_batch(self) -> PayloadBatch:
        return PayloadBatch(self.local.merge, self.local.x.nbytes // WAITING_SHARE)

    def root(self, tree: SpanningTree) -> None:
        """Use ``tree`` from now on."""
        self.tree = tree
        self.outboxes = {other: EdgeOutbox(self.empty_batch()) for other in tree.neighbours}
        self.edges.root(tree)
        if self.clocks is not None:
            self.clocks.root(tree.neighbours)
            for event in [self.clocks_of_others.pop(other, None) for other in tree.neighbours]:
                if event is not None and event.note.round == tree.key:
                    self.clocks.hear(event.sender, event.note.numbers)
        self.local.retune(len(tree.members), self.staleness)

    def stepped(self, samples: int) -> list[MethodAction]:
        """Include the others' updates, then put this worker's own update into every outbox. Let the worker go on, if its
        clock does; in a turn without data always."""
        if not samples and self.clocks is not None:
            self.include()
            self.clocks.rest()
            return [Proceed()]
        self.steps += 1
        self.include()
        payload = self.local.emit()
        if payload is not None:
            self.publish(payload)
        if self.steps % RETUNE_STEPS == 0:
            self.local.retune(len(self.tree.members), self.staleness)
        return [Proceed()] if self.clocks is None or self.clocks.step() else []

    def count_no_more(self) -> None:
        """Let no worker wait for this one's clock."""
        if self.clocks is not None:
            self.clocks.end()

    def hear_clock(self, event: Heard, clocks: TreeClocks) -> None:
        """Note what a neighbour told of the clocks; keep it, if that is of a tree that this worker is not in (yet)."""
        if event.note.round == self.tree.key:
            clocks.hear(event.sender, event.note.numbers)
        else:
            self.clocks_of_others[event.sender] = event

    def tell_clocks(self, actions: list[MethodAction]) -> None:
        """Tell the neighbours what is news of the clocks, and let this worker go on if it waited for that."""
        clocks = self.clocks
        if clocks is None:
            return
        actions += [Tell(other, Note(CLOCK, self.tree.key, 0, told)) for other, told in clocks.due()]
        if clocks.waiting and clocks.may_go:
            clocks.waiting = False
            self.include()
            actions.append(Proceed())

    def publish(self, payload: bytes) -> None:
        """Put an update of this worker's own into every outbox."""
        self.included += 1
        for box in self.outboxes.values():
            self.put(box, payload, 1)

    def publish_again(self, payloads: Sequence[bytes]) -> None:
        """Publish payloads that were made under an earlier rank, which the donor's weights lack."""
        for payload in payloads:
            self.arrivals.put(payload, 1)
            self.publish(payload)

    def flush(self) -> None:
        """Publish what is still worth sending: this worker makes no more steps."""
        self.include()
        for payload in self.local.flush():
            self.publish(payload)

    def put(self, box: EdgeOutbox, payload: bytes, count: int) -> None:
        """Add a payload with ``count`` updates to the outbox."""
        if not box.waiting:
            box.since = self.steps
        box.waiting.put(payload, count)

    def include(self) -> None:
        """Add the updates that arrived to the weights."""
        for payload in self.arrivals.payloads:
            try:
                self.local.absorb(payload)
            except MalformedMessage:
                self.refused += 1
        self.arrivals = self.empty_batch()

    def pump(self, actions: list[MethodAction], everything: bool = False) -> None:
        """Send all that waits to cross an edge as one message, over each edge that has none under way.
        ``everything``: over the others, too, since this tree is used no more."""
        for other, box in self.outboxes.items():
            if not box.waiting or (box.busy and not everything):
                continue
            box.busy, box.sent, box.delay = other not in self.edges.going, self.steps, self.steps - box.since
            message = EdgeMessage(self.tree.key, self.membership.rank, box.waiting.count, list(box.waiting.payloads))
            box.waiting.clear()
            actions += self.edges.send(other, message)
