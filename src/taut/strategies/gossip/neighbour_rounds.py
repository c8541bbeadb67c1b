"""Rounds between neighbours: everybody sends to those it is wired to, hears those wired to it, merges, and goes on.

The ground under the synchronous gossip methods. A worker waits for its neighbours' messages of its own round and for
nothing else. Rounds are counted from the last change of the members, and every message carries the version of the
members and the round, so that all count alike, also where the wiring varies from round to round. When the members
change, whoever waits goes on with what it has, all begin to count again, and what comes of an older version is dropped.

A round may be held up, by a neighbour that has died or is cut off: then the worker trains on (``overlapped_round.py``),
and takes part in no other round before that one is over, or the members have changed. Its own message of the round was
sent: nobody waits for more of it than that. So all rounds are those that they would have been, and mixing conserves what
it does.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import numpy as np

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import (
    Draining,
    Finished,
    Heard,
    HeldUp,
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
from taut.strategies.periodic.overlapped_round import OverlappedRound

if TYPE_CHECKING:
    from taut.strategies.api import Vector

BYE = "bye"
MOST_ROUNDS = 16  # that a leaving worker stays for
MOST_EARLY = 64  # messages of one neighbour for versions of the members that this worker has not been told of


@dataclass
class Neighbourhood:
    """A worker's state. ``turn``: the step that waits for the round's messages; None while the worker trains. ``given``:
    what is in the round: the samples since the last one, and the sum of the steps' learning rates. ``inbox``: None where
    a message came and was refused."""

    local: Local
    place: MemberPlace
    round: int = 0
    turn: Stepped | None = None
    given: Stepped = field(default_factory=lambda: Stepped(0))
    drift: OverlappedRound = field(default_factory=OverlappedRound)
    inbox: dict[tuple[int, int, int], Heard | None] = field(default_factory=dict)  # by version, round, sender
    owed: set[tuple[int, int]] = field(default_factory=set)  # rounds and senders that are still to come
    left: set[int] = field(default_factory=set)  # those who said good-bye; ranks are never used twice
    taken_leave: set[int] = field(default_factory=set)  # those to whom this worker said it
    draining: bool = False
    rounds: int = 0  # over all versions
    steps: int = 0  # since the last round was begun, as the next two
    samples: int = 0
    rate: float = 0.0
    dropped: int = 0  # messages of rounds that a change of the members ended
    untold: bool = False  # it trained since it last sent something
    told: int = -MOST_ROUNDS  # in which of ``rounds`` it sent what it had last trained


S = TypeVar("S", bound=Neighbourhood)


class NeighbourRounds(Method, Generic[S]):
    """What a method of this family says: whom it sends what to (``send``), and how it merges what came (``merge``).

    ``overlap``: how many rounds late a message may be without being waited for. ``every``: local steps between two
    rounds; a worker without data takes part in each at once, for the others' sake.
    """

    drifts: ClassVar[bool] = True

    overlap: int = 0
    every: int = 1

    @abstractmethod
    def send(self, state: S) -> list[MethodAction]:
        """This round's messages, made with ``tell``. Nobody who has ``left`` needs any."""

    @abstractmethod
    def merge(self, state: S, given: Stepped, heard: Sequence[Heard]) -> None:
        """Change x: all that was waited for has come. From whoever said good-bye nothing may have. ``given``: what this
        worker did before the round."""

    def mixed(self, state: S) -> Sequence[Vector]:
        """What ``merge`` mixes."""
        return (state.local.x,)

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
        return {"rounds": float(state.rounds), "dropped": float(state.dropped), **state.drift.figures()}

    def drifting(self, state: S) -> bool:
        return state.drift.under_way and not self._complete(state)

    def rounds_over(self, state: S) -> int:
        return state.rounds

    # ---------------------------------------------------------------------------------------------- the rounds

    def on(self, state: S, event: MethodEvent, now: float) -> list[MethodAction]:
        actions: list[MethodAction] = []
        match event:
            case Heard(sender, note):  # by far the most
                if note.kind == BYE:
                    state.left.add(sender)
                else:
                    self._take(state, event, actions)
            case Stepped():
                self._step(state, event, actions)
            case HeldUp() if state.turn is not None and not (state.draining or state.drift.under_way):
                state.drift.begin([x.copy() for x in self.mixed(state)])
                self._proceed(state, actions)
            case Placed(place):
                if place.version != state.place.version:
                    self._move(state, place, actions)
            case Draining():
                state.draining = True
            case Ended() | HeldUp():
                pass  # it goes on taking turns, for the others' sake
        if state.draining:
            self._drain(state, actions)
        elif state.turn is not None:
            self._go_on(state, actions)
        return actions

    def _step(self, state: S, turn: Stepped, actions: list[MethodAction]) -> None:
        state.turn = turn
        if turn.samples:
            state.steps += 1
            state.samples += turn.samples
            state.rate += turn.rate
            state.untold = True
            state.drift.stepped()
        if not state.drift.under_way:
            self._join(state, actions)

    def _join(self, state: S, actions: list[MethodAction]) -> None:
        """A turn: begin a round, unless it is not time for one yet."""
        assert state.turn is not None
        if state.turn.samples and state.steps < self.every and not state.draining:
            self._proceed(state, actions)
            return
        if state.untold:
            state.told, state.untold = state.rounds, False
        state.given = Stepped(state.samples, state.rate)
        state.steps, state.samples, state.rate = 0, 0, 0.0
        state.owed |= {(state.round, sender) for sender in self.inward(state)}
        actions += self.send(state)

    def _go_on(self, state: S, actions: list[MethodAction]) -> None:
        """Whatever can be done in this turn."""
        while state.turn is not None and self._complete(state):
            drifted = state.drift.under_way
            with state.drift.kept(*self.mixed(state)):
                self.merge(state, state.given, self._fold(state))
            state.round += 1
            state.rounds += 1
            if drifted:
                self._join(state, actions)  # the steps that it made meanwhile
            else:
                self._proceed(state, actions)
        if state.drift.under_way and state.turn is not None and state.turn.samples:
            self._proceed(state, actions)

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

    def _move(self, state: S, place: MemberPlace, actions: list[MethodAction]) -> None:
        state.place = place
        stale = [key for key in state.inbox if key[0] < place.version]
        for key in stale:
            del state.inbox[key]
        state.dropped += len(stale)
        state.round = 0
        state.untold = self.owing(state)  # what was sent last may have been dropped
        state.owed.clear()
        state.drift.drop()
        state.samples, state.rate = 0, 0.0
        self.restart(state)
        if state.turn is not None:
            self._proceed(state, actions)

    def _drain(self, state: S, actions: list[MethodAction]) -> None:
        """Good-bye, once, to everybody, newcomers too; and go when everybody has said it."""
        fresh = [other for other in state.place.others if other not in state.taken_leave]
        actions += [Tell(other, Note(BYE)) for other in fresh]
        state.taken_leave.update(fresh)
        mine = sorted(key for key in state.inbox if key[0] == state.place.version)
        if mine or state.turn is not None:  # a turn that is cut short is told of, too: its share is sent
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
