"""Relayed asynchronous training: every update crosses every edge of a spanning tree once, merged with others on the way.

    b  <-  b + every update of everybody       as in ``async``, but each worker talks to its neighbours in a tree only

Updates add, so each edge has an outbox in which all that comes from elsewhere is gathered while a message is under way
there, and added up when it gets much; when the other side says *got*, it goes out as one message. A slow edge or worker
makes messages rarer, not queues longer. Nobody waits. A worker relays while it trains, and includes what came when its
step is over.

This is what ``--strategy async`` becomes on a topology that is not complete. When members change, so does the tree:
messages carry the key of the tree that they belong to and go on along it, around those who are gone
(``edge_messages.py``). A worker that leaves in order takes nothing with it. What a dead relay had not passed on is lost
to those behind it; the replicas then differ, which the end finds out and mends (``relay_ending.py``).
Papers: Strom 2015 (the updates); the relaying is ours, cf. Vogels et al. 2021 (RelaySGD) for relays along trees.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    Leaving,
    Local,
    MemberPlace,
    Method,
    MethodAction,
    MethodEvent,
    Placed,
    Proceed,
    Refuse,
    Stepped,
    Tell,
)
from taut.strategies.delivery.payload_batch import unbind
from taut.strategies.info import ANY_CODEC, Completeness, StrategyInfo
from taut.strategies.tree.edge_messages import EdgeMessage, EdgeMessages
from taut.strategies.tree.relay_ending import ENDING_KINDS, Relayed, RelayEnding
from taut.strategies.tree.relay_state import (
    Relaying,
    flush,
    include,
    publish_again,
    pump,
    put,
    root,
    send_waiting,
    sheaf,
    stepped,
)
from taut.strategies.tree.spanning_tree import SpanningTree, plant, towards
from taut.strategies.tree.unacknowledged import KINDS, TOOK, UnacknowledgedEdge, Unsent


@dataclass(frozen=True)
class Relay(Method):
    """``--strategy async --topology ring`` (or any but ``complete``).

    >>> Relay().codecs[:3]
    ('tether', 'threshold', 'dense')
    """

    name: ClassVar[str] = "relay"
    info: ClassVar[StrategyInfo] = StrategyInfo(Completeness.UNBOUNDED, ())  # as async on other topologies
    paper: ClassVar[str] = "Strom 2015, relayed along a tree"
    returns: ClassVar[Literal["sum", "mix", "take"]] = "sum"
    consensus: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    lockstep: ClassVar[bool] = False
    directed: ClassVar[bool] = True  # a channel goes both ways, whatever its edge says
    codecs: ClassVar[tuple[str, ...]] = ("tether", ANY_CODEC)
    streams: ClassVar[bool] = True

    def start(self, place: MemberPlace, local: Local) -> Relaying:
        tree = plant(place)
        relayed = cast(Relayed, local)
        state = Relaying(relayed, place, tree, RelayEnding(tree, relayed), EdgeMessages(place))
        state.arrivals = sheaf(state)
        root(state, tree)
        return state

    def on(self, state: Relaying, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Stepped():
                stepped(state)
                actions.append(Proceed())
            case Heard():
                _heard(state, event, actions)
            case Placed(place):
                _placed(state, place, actions)
            case Draining() if not state.draining:
                state.draining = True
                flush(state)
                actions += state.ending.ask_again()
            case Leaving():
                flush(state)
                send_waiting(state, actions)
                state.leaving = set()
            case Ended() | Draining():
                pass
        if state.draining or state.leaving is not None:
            for crossing in state.doubts.end():
                publish_again(state, crossing.payloads)
        pump(state, actions)
        if state.leaving is not None:
            _say_going(state, state.leaving, actions)
        elif state.draining:
            idle = [rank for rank, box in state.outboxes.items() if not box.waiting]
            owed = state.crossings.astray or state.doubts.open
            actions += state.ending.go_on([] if owed else idle, lambda: include(state))
            if state.ending.news:
                state.ending.news = False
                actions.append(Finished())
        return actions

    def owing(self, state: Relaying) -> bool:
        return state.crossings.owed or bool(state.doubts.open)

    def unsent(self, state: Relaying, gone: Collection[int]) -> list[Unsent]:
        """What waits to cross the edge towards those who are still in the run: what this worker made, and what came from
        behind it; and what is under way there, of which this worker does not know whether it came."""
        hop = towards(state.place, set(state.place.members) - set(gone) - {state.place.rank})
        waiting = state.outboxes[hop].waiting.payloads if hop is not None and hop in state.outboxes else []
        under_way = state.crossings.under_way.get(hop, []) if hop is not None else []
        doubtful = [UnacknowledgedEdge(state.place.rank, hop, each) for each in under_way if hop is not None]
        doubts, taken = state.doubts, state.crossings.taken
        return [Unsent(state.place.rank, list(waiting), doubtful + doubts.open, taken, doubts.former)]

    def welcomed(self, state: Relaying, unsent: Sequence[Unsent]) -> list[MethodAction]:
        actions: list[MethodAction] = []
        for each in unsent:
            state.doubts.bring(each)
            publish_again(state, each.waiting)
        actions += state.doubts.ask(state.place.others)
        pump(state, actions)
        return actions

    def figures(self, state: Relaying) -> dict[str, float]:
        return {
            "updates_included": float(state.included),
            "staleness": state.staleness,
            "repaired": float(state.ending.repaired),
            "refused": float(state.refused),
        }


def _heard(state: Relaying, event: Heard, actions: list[MethodAction]) -> None:
    note = event.note
    tree = state.crossings.tree(note.round)
    if note.kind == "tree":
        state.crossings.introduce(event)
    elif note.kind == "going":
        actions += state.crossings.goes(event.sender)
        if event.sender in state.outboxes:
            state.outboxes[event.sender].busy = False
    elif note.kind == "got":
        _confirm(state, event)
    elif note.kind == TOOK:
        actions.append(state.doubts.answer(event, state.place.rank, state.crossings.taken))
    elif note.kind in KINDS:
        missed = state.doubts.answered(event)
        publish_again(state, missed.payloads if missed is not None else [])
    elif tree is None:
        state.early.append(event)  # of members that this worker has not been told of yet
    elif note.kind == "update":
        _take(state, event, tree, actions)
    elif note.round != state.tree.key:
        pass  # about a tree that is no more
    elif note.kind in ENDING_KINDS:
        actions += state.ending.heard(event)


def _take(state: Relaying, event: Heard, tree: SpanningTree, actions: list[MethodAction]) -> None:
    if state.leaving is not None:
        return  # who sent it was told, and sends it around this worker
    via = state.crossings.take(event, tree)
    actions.append(Tell(event.sender, Note("got", tree.key)))
    _pass_on(state, event, tree, via, actions)


def _confirm(state: Relaying, event: Heard) -> None:
    box = state.outboxes.get(event.sender)
    found = state.crossings.confirmed(event.sender, event.note.round)
    if found is not None and found.key == state.tree.key and box is not None:
        box.busy = False
        state.hop += 0.1 * (box.delay + (state.steps - box.sent) / 2 - state.hop)


def _pass_on(state: Relaying, event: Heard, tree: SpanningTree, via: int, actions: list[MethodAction]) -> None:
    if state.ending.drained:
        return  # from an earlier tree, too late: the sums have been compared
    try:
        payloads = unbind(event.payload)
        for payload in payloads:
            state.local.check(payload)
    except MalformedMessage as error:
        state.refused += 1
        actions.append(Refuse(event.sender, str(error)))
        return
    state.included += event.note.part
    for payload in payloads:
        state.arrivals.put(payload, 1)
    for other in tree.neighbours:
        if other == via:
            continue
        if tree.key == state.tree.key:
            for number, payload in enumerate(payloads):
                put(state, state.outboxes[other], payload, 0 if number else event.note.part)
        else:
            actions += state.crossings.send(other, EdgeMessage(tree.key, state.place.rank, event.note.part, payloads))


def _placed(state: Relaying, place: MemberPlace, actions: list[MethodAction]) -> None:
    """Another tree. What waits to cross the edges of this one still goes, as it belongs to it."""
    changed = place.members != state.place.members
    state.place = place
    state.crossings.placed(place)
    if not changed:
        return
    actions += state.doubts.ask(place.others)
    send_waiting(state, actions)
    root(state, plant(place))
    state.ending.restart(state.tree)
    if state.draining:
        actions += state.ending.ask_again()
    early, state.early = state.early, []
    for event in early:
        if event.note.kind == "update" or event.sender in place.members:
            try:
                _heard(state, event, actions)
            except MalformedMessage as error:
                actions.append(Refuse(event.sender, str(error)))


def _say_going(state: Relaying, told: set[int], actions: list[MethodAction]) -> None:
    """After all that this worker had to pass on: it takes nothing more."""
    for other in sorted(set(state.place.others) - told):
        told.add(other)
        actions.append(Tell(other, Note("going", state.tree.key)))
