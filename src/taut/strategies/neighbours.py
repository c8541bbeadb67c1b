"""Rounds between neighbours: everybody sends to those it is wired to, hears those wired to it, merges, and goes on.

The ground under the synchronous gossip methods. A worker waits for its neighbours' messages of its own round and for
nothing else. Rounds are counted from the last change of the members, and every message carries the version of the
members and the round, so that all count alike, also where the wiring varies from round to round. When the members
change, whoever waits goes on with what it has, all begin to count again, and what comes of an older version is dropped.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.method import (
    Draining,
    Finished,
    Heard,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Place,
    Placed,
    Proceed,
    Refuse,
    Stepped,
    Tell,
)
from taut.topologies.wiring import Graph

if TYPE_CHECKING:
    from taut.topologies.shape import Shape

BYE = "bye"
MOST_ROUNDS = 16  # that a leaving worker stays for
MOST_EARLY = 64  # messages of one neighbour for versions of the members that this worker has not been told of


@dataclass
class Neighbourhood:
    """A worker's state. ``turn``: the step that waits for the round's messages; None while the worker trains. ``inbox``:
    None where a message came and was refused."""

    local: Local
    place: Place
    round: int = 0
    turn: Stepped | None = None
    inbox: dict[tuple[int, int, int], Heard | None] = field(default_factory=dict)  # by version, round, sender
    owed: set[tuple[int, int]] = field(default_factory=set)  # rounds and senders that are still to come
    left: set[int] = field(default_factory=set)  # those who said good-bye; ranks are never used twice
    taken_leave: set[int] = field(default_factory=set)  # those to whom this worker said it
    draining: bool = False
    rounds: int = 0  # over all versions
    steps: int = 0  # since the last round, where there is not one after each
    dropped: int = 0  # messages of rounds that a change of the members ended
    untold: bool = False  # it trained since it last sent something
    told: int = -MOST_ROUNDS  # in which of ``rounds`` it sent what it had last trained


S = TypeVar("S", bound=Neighbourhood)


class NeighbourRounds(Method, Generic[S]):
    """What a method of this family says: whom it sends what to (``send``), and how it merges what came (``merge``).

    ``overlap``: how many rounds late a message may be without being waited for. ``every``: local steps between two
    rounds; a worker without data takes part in each at once, for the others' sake.
    """

    overlap: int = 0
    every: int = 1

    @abstractmethod
    def send(self, state: S) -> list[MethodAction]:
        """This round's messages, made with ``tell``. Nobody who has ``left`` needs any."""

    @abstractmethod
    def merge(self, state: S, turn: Stepped, heard: Sequence[Heard]) -> None:
        """Change x: all that was waited for has come. From whoever said good-bye nothing may have."""

    def outward(self, state: S) -> list[int]:
        """Whom this round's messages go to."""
        return state.place.graph(state.round).outward(state.place.rank)

    def inward(self, state: S) -> list[int]:
        """From whom this round's messages come."""
        return state.place.graph(state.round).inward(state.place.rank)

    def check(self, state: S, heard: Heard) -> None:
        """``MalformedMessage`` for what is no message of this method."""
        check_length(heard, state.local)

    def restart(self, state: S) -> None:
        """The members have changed; rounds count from 0 again."""

    def late(self, state: S, heard: Sequence[Heard]) -> None:
        """This worker drains, and these came for rounds that it takes no part in any more."""

    def owing(self, state: S) -> bool:
        """What it did last was sent in the round ``told``. That its neighbours have merged it is seen when they take part
        in the next one; where edges have directions, and those who hear it are others, when that has come around."""
        around = min(len(state.place.members), MOST_ROUNDS - 3) if state.place.graph(state.round).directed else 0
        alone = state.left >= set(state.place.others)
        return not alone and (state.untold or state.rounds < state.told + 2 + min(self.overlap, 1) + around)

    def figures(self, state: S) -> dict[str, float]:
        return {"rounds": float(state.rounds), "dropped": float(state.dropped)}

    # ---------------------------------------------------------------------------------------------- the rounds

    def on(self, state: S, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Heard(sender, note):  # by far the most
                if note.kind == BYE:
                    state.left.add(sender)
                else:
                    self._take(state, event, actions)
            case Stepped(samples) if samples and self._trains_on(state) and not state.draining:
                state.untold = True
                actions.append(Proceed())
            case Stepped(samples):
                state.turn, state.steps = event, 0
                if samples or state.untold:
                    state.told, state.untold = state.rounds, False
                state.owed |= {(state.round, sender) for sender in self.inward(state)}
                actions += self.send(state)
            case Placed(place):
                if place.version != state.place.version:
                    self._move(state, place, actions)
            case Draining():
                state.draining = True
            case Ended():
                pass  # it goes on taking turns, for the others' sake
        if state.draining:
            self._drain(state, actions)
        elif state.turn is not None and self._complete(state):
            self.merge(state, state.turn, self._fold(state))
            state.round += 1
            state.rounds += 1
            self._proceed(state, actions)
        return actions

    def _take(self, state: S, heard: Heard, actions: list[MethodAction]) -> None:
        version = heard.note.part
        if version < state.place.version:
            state.dropped += 1
            return
        key = (version, heard.note.round, heard.sender)
        if version == state.place.version and heard.note.round < state.round - self.overlap:
            actions.append(Refuse(heard.sender, f"a message for round {heard.note.round}, which is over"))
            return
        if state.inbox.get(key) is not None:
            raise MalformedMessage(f"a second message of worker {heard.sender} for round {heard.note.round}")
        self._check_ahead(state, heard)
        try:
            self.check(state, heard)
        except MalformedMessage as error:
            # The round goes on without it: neighbours must not wait for somebody who sends nothing that is of use.
            actions.append(Refuse(heard.sender, str(error)))
            state.inbox[key] = None
            return
        state.inbox[key] = heard

    def _trains_on(self, state: S) -> bool:
        """Whether it is not time for a round yet."""
        state.steps += 1
        return state.steps < self.every

    def _check_ahead(self, state: S, heard: Heard) -> None:
        """What waits is bounded: nobody can be further ahead than there are workers to wait for one another."""
        sender, version, members = heard.sender, heard.note.part, state.place.members
        if version == state.place.version:
            if not state.draining and heard.note.round > state.round + (1 + self.overlap) * len(members) + 2:
                raise MalformedMessage(f"a message for round {heard.note.round}; this is round {state.round}")
        elif sum(1 for key in state.inbox if key[0] > state.place.version and key[2] == sender) >= MOST_EARLY:
            raise MalformedMessage(f"more than {MOST_EARLY} messages for members that are not known yet")

    def _complete(self, state: S) -> bool:
        version, due, left, inbox = state.place.version, state.round - self.overlap, state.left, state.inbox
        if len(inbox) < len(state.owed) and not left and not self.overlap:
            return False  # nothing else could have made it complete, and this is seen at once
        for round, sender in state.owed:
            if round <= due and (version, round, sender) not in inbox and sender not in left:
                return False
        return True

    def _fold(self, state: S) -> list[Heard]:
        """Take what is owed out of the inbox, as far as it has come, in an order that is the same in every run."""
        version, inbox = state.place.version, state.inbox
        found = sorted([(round, sender) for round, sender in state.owed if (version, round, sender) in inbox])
        if len(found) == len(state.owed):
            state.owed.clear()
        else:
            state.owed -= {(round, sender) for round, sender in state.owed if sender in state.left} | set(found)
        came = [inbox.pop((version, round, sender)) for round, sender in found]
        return [heard for heard in came if heard is not None]

    def _move(self, state: S, place: Place, actions: list[MethodAction]) -> None:
        state.place = place
        stale = [key for key in state.inbox if key[0] < place.version]
        for key in stale:
            del state.inbox[key]
        state.dropped += len(stale)
        state.round = 0
        state.untold = self.owing(state)  # what was sent last may have been dropped
        state.owed.clear()
        self.restart(state)
        if state.turn is not None:
            self._proceed(state, actions)

    def _drain(self, state: S, actions: list[MethodAction]) -> None:
        """Good-bye, once, to everybody, newcomers too; and go when everybody has said it."""
        fresh = [other for other in state.place.others if other not in state.taken_leave]
        actions += [Tell(other, Note(BYE)) for other in fresh]
        state.taken_leave.update(fresh)
        mine = sorted(key for key in state.inbox if key[0] == state.place.version)
        if mine:
            came = [state.inbox.pop(key) for key in mine]
            self.late(state, [heard for heard in came if heard is not None])
        if state.turn is not None:
            self._proceed(state, actions)
        if state.left >= set(state.place.others):
            actions.append(Finished())

    def _proceed(self, state: S, actions: list[MethodAction]) -> None:
        state.turn = None
        actions.append(Proceed())


def tell(state: Neighbourhood, to: int, payload: bytes, numbers: Sequence[float] = (), kind: str = "x") -> Tell:
    """A message of the present round."""
    return Tell(to, Note(kind, state.round, state.place.version, list(numbers)), payload)


def tell_all(state: Neighbourhood, receivers: Sequence[int], payload: bytes) -> list[MethodAction]:
    """The same message of the present round to several."""
    note = Note("x", state.round, state.place.version)
    return [Tell(other, note, payload) for other in receivers]


def check_length(heard: Heard, local: Local, vectors: int = 1) -> None:
    """``MalformedMessage`` unless the payload holds so many vectors."""
    expected = vectors * local.x.nbytes
    if len(heard.payload) != expected:
        raise MalformedMessage(f"a message of {len(heard.payload)} bytes; for this model it would have {expected}")
    check_finite(heard)


def check_finite(heard: Heard) -> None:
    """``MalformedMessage`` if one of the float32 numbers is not finite. One such number would spoil the whole mean."""
    values = np.frombuffer(heard.payload, np.float32)
    # The sum of squares is one pass and no copy; where it is finite all is, and else one must look.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = math.isfinite(np.dot(values, values)) or bool(np.isfinite(values).all())
    if not finite:
        raise MalformedMessage(f"numbers of worker {heard.sender} that are not finite")


def shares(graph: Graph, rank: int, kind: str) -> Mapping[int, float]:
    """The row of the mixing matrix that belongs to ``rank``, itself not in it: what others' x count in its new one.
    Worked out once for a graph.

    ``metropolis``: 1 / (1 + the larger of the two degrees). ``uniform``: 1 / (1 + degree), equal for all where the
    degrees are; a graph that lost this by a death is mixed by Metropolis weights (if directed, by what is heard).

    >>> shares(Graph((0, 1, 2), {(0, 1), (0, 2)}), 1, "metropolis")
    {0: 0.3333333333333333}
    """
    row = graph.kept.get((kind, rank))
    if row is None:
        others = graph.inward_lists[rank]
        if graph.directed or (kind == "uniform" and is_regular(graph)):
            row = dict.fromkeys(others, 1.0 / (1 + len(others)))
        else:
            row = {other: 1.0 / (1 + max(graph.degree(rank), graph.degree(other))) for other in others}
        graph.kept[kind, rank] = row
    return row


def is_regular(graph: Graph) -> bool:
    """Whether everybody sends to and hears from equally many."""
    lists = (*graph.inward_lists.values(), *graph.outward_lists.values())
    return len({len(others) for others in lists}) == 1


def check_mixing(method: Method, kind: str, shape: Shape, workers: int) -> None:
    """``Misuse`` where these weights would not keep the mean on this topology."""
    graph = shape.union(range(workers))
    if graph.directed and kind == "metropolis":
        raise Misuse(
            f"{method.name}: mixing=metropolis on {shape.name}, whose edges have directions",
            "an undirected topology",
            f"try {method.name}:mixing=uniform, or --strategy sgp",
        )
    if kind == "uniform" and not is_regular(graph):
        raise Misuse(
            f"{method.name}: mixing=uniform on {shape.name} of {workers} workers",
            "equally many neighbours for everybody",
            "try --strategy sgp" if graph.directed else f"try {method.name}:mixing=metropolis",
        )
