"""Relayed asynchronous training: every update crosses every edge of a spanning tree once, merged with others on the way.

    b  <-  b + every update of every worker     as in ``async``, but each sends to its neighbours in a tree only

Updates add. So each edge has an outbox that collects updates while a message is under way over the edge, and merges them
when they get large; when the neighbour answers *got*, the outbox goes out as one message. A slow edge or worker makes
messages rarer, not queues longer. No worker waits. A worker relays while it trains, and includes updates between steps.

This is what ``--strategy async`` becomes on a topology that is not complete. When members change, so does the tree:
messages carry the key of their tree and go on along it, around workers that are gone (``edge_messages.py``). No update is
lost when a worker leaves in order. Updates that a dead relay had not passed on are lost to the workers behind it; the
replicas then differ, which is detected and repaired at the end (``relay_ending.py``).

With ``slack`` this is what ``--strategy ssp`` becomes on such a topology: the slowest clock of each side crosses each
edge (``clocks.py``), and a worker that is more than ``slack`` iterations ahead of the slowest waits.
Papers: Strom 2015 (the updates); the relaying is ours, cf. Vogels et al. 2021 (RelaySGD) for relays along trees.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

from taut.core.staleness_counts import Counts
from taut.errors import MalformedMessage
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.delivery.payload_batch import unbind
from taut.strategies.tree.clocks import CLOCK, TreeClocks
from taut.strategies.tree.edge_messages import EdgeMessage, EdgeMessages
from taut.strategies.tree.relay_ending import ENDING_KINDS, RelayEnding
from taut.strategies.tree.relay_state import RelayState
from taut.strategies.tree.spanning_tree import SpanningTree, plant, towards
from taut.strategies.tree.unacknowledged import KINDS, TOOK, UnacknowledgedEdge, Unsent


@dataclass(frozen=True)
class Relay(m.Method):
    """``--strategy async --topology ring`` (or any but ``complete``), and ``ssp:3`` there. ``slack``: how many iterations
    a worker may be ahead of the slowest; -1: any number."""

    name = "relay"
    info = m.StrategyInfo(m.Completeness.UNBOUNDED, ())  # as async on other topologies
    paper = "Strom 2015, relayed along a tree"
    returns = "sum"
    consensus = True
    concurrent = True
    lockstep = False
    directed = True  # channels go both ways, even over directed edges
    codecs = ("tether", m.ANY_CODEC)
    streams = True

    slack: int = -1

    def __post_init__(self) -> None:
        check_whole(self, "slack", -1, "-1 is no bound")
        # A class attribute elsewhere. A worker that waits for data takes turns, since others wait for its clock.
        object.__setattr__(self, "lockstep", self.slack >= 0)

    def start(self, membership: m.Membership, local: m.Local) -> RelayState:
        tree = plant(membership)
        relayed = cast(m.CodedLocal, local)
        state = RelayState(relayed, membership, tree, RelayEnding(tree, relayed), EdgeMessages(membership))
        state.arrivals = state.empty_batch()
        state.clocks = TreeClocks(self.slack) if self.slack >= 0 else None
        state.root(tree)
        return state

    def on(self, state: RelayState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples):
                actions += state.stepped(samples)
            case m.Heard():
                _heard(state, event, actions)
            case m.MembersChanged(membership):
                _members_changed(state, membership, actions)
            case m.Draining() if not state.draining:
                state.draining = True
                state.flush()
                actions += state.ending.ask_again()
            case m.Leaving():
                state.count_no_more()
                state.flush()
                state.pump(actions, everything=True)
                state.leaving = set()
            case m.Ended():
                state.count_no_more()
        if state.draining or state.leaving is not None:
            for message in state.unacknowledged.end():
                state.publish_again(message.payloads)
        state.pump(actions)
        state.tell_clocks(actions)
        if state.leaving is not None:
            _say_going(state, state.leaving, actions)
        elif state.draining:
            idle = [rank for rank, box in state.outboxes.items() if not box.waiting]
            owed = state.edges.astray or state.unacknowledged.open
            actions += state.ending.go_on([] if owed else idle, state.include)
            if state.ending.news:
                state.ending.news = False
                actions.append(m.Finished())
        return actions

    def owing(self, state: RelayState) -> bool:
        return state.edges.owed or bool(state.unacknowledged.open)

    def dispensable(self, state: RelayState) -> bool:
        return True  # it waits for clocks alone

    def unsent(self, state: RelayState, gone: Collection[int]) -> list[Unsent]:
        """Return the updates that wait to cross the edge towards workers still in the run (this worker's own and
        those that it relays), and those under way there, which may or may not have arrived."""
        hop = towards(state.membership, set(state.membership.members) - set(gone) - {state.membership.rank})
        waiting = state.outboxes[hop].waiting.payloads if hop is not None and hop in state.outboxes else []
        under_way = state.edges.under_way.get(hop, []) if hop is not None else []
        doubtful = [UnacknowledgedEdge(state.membership.rank, hop, each) for each in under_way if hop is not None]
        unacknowledged, taken = state.unacknowledged, state.edges.taken
        return [
            Unsent(state.membership.rank, list(waiting), doubtful + unacknowledged.open, taken, unacknowledged.previous)
        ]

    def welcomed(self, state: RelayState, unsent: Sequence[Unsent]) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        for each in unsent:
            state.unacknowledged.bring(each)
            state.publish_again(each.waiting)
        actions += state.unacknowledged.ask(state.membership.others)
        state.pump(actions)
        return actions

    def figures(self, state: RelayState) -> dict[str, float]:
        return {
            "updates_included": state.included,
            "staleness": state.staleness,
            "repaired": state.ending.repaired,
            "refused": state.refused,
        }

    def staleness_counts(self, state: RelayState) -> Counts:
        return state.late.taken()


def _heard(state: RelayState, event: m.Heard, actions: list[m.MethodAction]) -> None:
    note = event.note
    tree = state.edges.tree(note.round)
    if note.kind == "tree":
        state.edges.introduce(event)
    elif note.kind == "going":
        actions += state.edges.goes(event.sender)
        if event.sender in state.outboxes:
            state.outboxes[event.sender].busy = False
    elif note.kind == "got":
        _confirm(state, event)
    elif note.kind == TOOK:
        actions.append(state.unacknowledged.answer(event, state.membership.rank, state.edges.taken))
    elif note.kind in KINDS:
        missed = state.unacknowledged.answered(event)
        state.publish_again(missed.payloads if missed is not None else [])
    elif note.kind == CLOCK and state.clocks is not None:
        state.hear_clock(event, state.clocks)
    elif tree is None:
        state.early.append(event)  # its tree has members that this worker does not know yet
    elif note.kind == "update":
        _take(state, event, tree, actions)
    elif note.round != state.tree.key:
        pass  # about an earlier tree
    elif note.kind in ENDING_KINDS:
        actions += state.ending.heard(event)


def _take(state: RelayState, event: m.Heard, tree: SpanningTree, actions: list[m.MethodAction]) -> None:
    if state.leaving is not None:
        return  # the sender was told, and sends it around this worker
    via = state.edges.take(event, tree)
    actions.append(m.Tell(event.sender, m.Note("got", tree.key)))
    _pass_on(state, event, tree, via, actions)


def _confirm(state: RelayState, event: m.Heard) -> None:
    box = state.outboxes.get(event.sender)
    found = state.edges.confirmed(event.sender, event.note.round)
    if found is not None and found.key == state.tree.key and box is not None:
        box.busy = False
        hop = box.delay + (state.steps - box.sent) / 2
        state.hop += 0.1 * (hop - state.hop)
        state.late.add(state.staleness_by(hop))


def _pass_on(state: RelayState, event: m.Heard, tree: SpanningTree, via: int, actions: list[m.MethodAction]) -> None:
    if state.ending.drained:
        return  # from an earlier tree, and too late: the digests have been compared
    try:
        payloads = unbind(event.payload)
        for payload in payloads:
            state.local.check(payload)
    except MalformedMessage as error:
        state.refused += 1
        actions.append(m.Refuse(event.sender, str(error)))
        return
    state.included += event.note.part
    for payload in payloads:
        state.arrivals.put(payload, 1)
    for other in tree.neighbours:
        if other == via:
            continue
        if tree.key == state.tree.key:
            for number, payload in enumerate(payloads):
                state.put(state.outboxes[other], payload, 0 if number else event.note.part)
        else:
            actions += state.edges.send(other, EdgeMessage(tree.key, state.membership.rank, event.note.part, payloads))


def _members_changed(state: RelayState, membership: m.Membership, actions: list[m.MethodAction]) -> None:
    """Change to the new members' tree. Messages that wait to cross edges of the old tree still go out, along it."""
    changed = membership.members != state.membership.members
    state.membership = membership
    state.edges.members_changed(membership)
    if not changed:
        return
    actions += state.unacknowledged.ask(membership.others)
    state.pump(actions, everything=True)
    state.root(plant(membership))
    state.ending.restart(state.tree)
    if state.draining:
        actions += state.ending.ask_again()
    early, state.early = state.early, []
    for event in early:
        if event.note.kind == "update" or event.sender in membership.members:
            try:
                _heard(state, event, actions)
            except MalformedMessage as error:
                actions.append(m.Refuse(event.sender, str(error)))


def _say_going(state: RelayState, told: set[int], actions: list[m.MethodAction]) -> None:
    """Tell the others that this worker takes no more messages, after all that it had to pass on."""
    for other in sorted(set(state.membership.others) - told):
        told.add(other)
        actions.append(m.Tell(other, m.Note("going", state.tree.key)))
