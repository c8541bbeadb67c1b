"""What one worker keeps of a relay (``relay.py``): what it includes, what it publishes, what waits to cross its edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.errors import MalformedMessage
from taut.strategies.api import Heard, MemberPlace, MethodAction
from taut.strategies.delivery.payload_batch import PayloadBatch
from taut.strategies.tree.edge_messages import EdgeMessage, EdgeMessages
from taut.strategies.tree.relay_ending import Relayed, RelayEnding
from taut.strategies.tree.spanning_tree import SpanningTree
from taut.strategies.tree.unacknowledged import UnacknowledgedMessages

RETUNE_STEPS = 64
WAITING_SHARE = 2  # what waits is merged beyond this fraction of a dense update


@dataclass
class Outbox:
    """What waits to cross one edge. Steps are this worker's own."""

    waiting: PayloadBatch
    since: int = 0  # the step at which the oldest came here
    busy: bool = False
    sent: int = 0  # the step at which the message under way left
    delay: int = 0  # how many steps its oldest had waited by then


@dataclass
class Relaying:
    """A worker's state. ``arrivals`` wait for the end of the local step; ``early`` for the members that they tell of."""

    local: Relayed
    place: MemberPlace
    tree: SpanningTree
    ending: RelayEnding
    crossings: EdgeMessages
    doubts: UnacknowledgedMessages = field(default_factory=UnacknowledgedMessages)
    outboxes: dict[int, Outbox] = field(default_factory=dict)
    arrivals: PayloadBatch = field(default_factory=lambda: PayloadBatch(b"".join, 0))
    early: list[Heard] = field(default_factory=list)
    draining: bool = False
    leaving: set[int] | None = None  # those who were told that this worker goes
    steps: int = 0
    included: int = 0  # updates, its own among them
    refused: int = 0
    hop: float = 0.5  # own steps that an update takes over one edge, smoothed

    @property
    def staleness(self) -> float:
        """Own steps until an update has reached another worker, on average over the others."""
        return 0.5 + self.tree.distance * self.hop


def sheaf(state: Relaying) -> PayloadBatch:
    """An empty one, for payloads of this model."""
    return PayloadBatch(state.local.merge, state.local.x.nbytes // WAITING_SHARE)


def root(state: Relaying, tree: SpanningTree) -> None:
    """This is the tree from now on."""
    state.tree = tree
    state.outboxes = {other: Outbox(sheaf(state)) for other in tree.neighbours}
    state.crossings.root(tree)
    state.local.retune(len(tree.members), state.staleness)


def stepped(state: Relaying) -> None:
    """The worker's own update goes into every outbox, after what the others sent went into the worker."""
    state.steps += 1
    include(state)
    payload = state.local.emit()
    if payload is not None:
        publish(state, payload)
    if state.steps % RETUNE_STEPS == 0:
        state.local.retune(len(state.tree.members), state.staleness)


def publish(state: Relaying, payload: bytes) -> None:
    """An update of this worker's own goes out over every edge."""
    state.included += 1
    for box in state.outboxes.values():
        put(state, box, payload, 1)


def publish_again(state: Relaying, payloads: Sequence[bytes]) -> None:
    """Of this worker's last place. The donor's weights, which it has now, are without it."""
    for payload in payloads:
        state.arrivals.put(payload, 1)
        publish(state, payload)


def flush(state: Relaying) -> None:
    """This worker makes no more steps: publish what is still worth sending."""
    include(state)
    for payload in state.local.flush():
        publish(state, payload)


def put(state: Relaying, box: Outbox, payload: bytes, count: int) -> None:
    """``count`` updates wait to cross this edge."""
    if not box.waiting:
        box.since = state.steps
    box.waiting.put(payload, count)


def include(state: Relaying) -> None:
    """What came goes into the weights, which are ours for the moment."""
    for payload in state.arrivals.payloads:
        try:
            state.local.absorb(payload)
        except MalformedMessage:
            state.refused += 1
    state.arrivals = sheaf(state)


def pump(state: Relaying, actions: list[MethodAction]) -> None:
    """One message at a time over each edge."""
    for other, box in state.outboxes.items():
        if box.waiting and not box.busy:
            send(state, other, box, actions)


def send_waiting(state: Relaying, actions: list[MethodAction]) -> None:
    """All that waits to cross an edge goes now: nothing more will come this way."""
    for other, box in state.outboxes.items():
        if box.waiting:
            send(state, other, box, actions)


def send(state: Relaying, other: int, box: Outbox, actions: list[MethodAction]) -> None:
    """All that waits in this box goes, as one message."""
    box.busy, box.sent, box.delay = other not in state.crossings.going, state.steps, state.steps - box.since
    crossing = EdgeMessage(state.tree.key, state.place.rank, box.waiting.count, list(box.waiting.payloads))
    box.waiting.clear()
    actions += state.crossings.send(other, crossing)
