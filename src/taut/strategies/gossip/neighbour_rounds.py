"""Rounds between neighbours: each worker sends to its neighbours, hears from its neighbours, merges, and goes on.

Base of the synchronous gossip methods. A worker waits only for its neighbours' messages of its own round. Rounds are
counted from the last change of the members, and every message carries the version of the members and the round, so that
all count alike, also where the wiring varies from round to round. When the members change, a waiting worker goes on with
the messages that it has, all begin to count again, and messages of an older version are dropped.

A round may be held up by a neighbour that has died or is cut off: then the worker trains on (``overlapped_round.py``),
and takes part in no other round before this one is over, or the members have changed. Its own message of the round was
sent, and no neighbour waits for another. So the rounds are the same as without a delay, and mixing conserves the mean.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies import api as m
from taut.strategies.periodic.overlapped_round import OverlappedRound

BYE = "bye"
MOST_ROUNDS = 16  # that a leaving worker stays for
MOST_EARLY = 64  # messages of one neighbour for versions of the members that this worker has not been told of


@dataclass
class NeighbourState:
    """A worker's state. ``turn``: the step that waits for the round's messages; None while the worker trains.
    ``given``: its samples in the round, and the sum of its steps' rates. ``inbox``: None for a refused message."""

    local: m.Local
    membership: m.Membership
    round: int = 0
    turn: m.Stepped | None = None
    given: m.Stepped = field(default_factory=lambda: m.Stepped(0))
    drift: OverlappedRound = field(default_factory=OverlappedRound)
    inbox: dict[tuple[int, int, int], m.Heard | None] = field(default_factory=dict)  # by version, round, sender
    owed: set[tuple[int, int]] = field(default_factory=set)  # (round, sender) of messages to come
    left: set[int] = field(default_factory=set)  # workers that said good-bye; ranks are never used twice
    taken_leave: set[int] = field(default_factory=set)  # workers to whom this one said good-bye
    draining: bool = False
    rounds: int = 0  # over all versions
    steps: int = 0  # since the last round began, as the next two
    samples: int = 0
    rate: float = 0.0
    dropped: int = 0  # messages of rounds that a change of the members ended
    untold: bool = False  # this worker trained since its last message
    told: int = -MOST_ROUNDS  # the round (of ``rounds``) in which it sent its last training


S = TypeVar("S", bound=NeighbourState)


class NeighbourRounds(m.Method, Generic[S]):
    """A method in rounds between neighbours; subclasses define ``send`` and ``merge``.

    ``overlap``: how many rounds late a message may come before the others wait for it. ``every``: local steps between
    two rounds; a worker without data takes part in each round at once.
    """

    drifts = True
    returns = "mix"

    overlap: int = 0
    every: int = 1

    @abstractmethod
    def send(self, state: S) -> list[m.MethodAction]:
        """Return this round's messages to ``receivers``, made with ``tell``."""

    @abstractmethod
    def merge(self, state: S, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        """Merge the round's messages into x; some may be missing. ``given``: this worker's training before the round."""

    def mixed(self, state: S) -> Sequence[m.Vector]:
        """Return the vectors that ``merge`` mixes."""
        return (state.local.x,)

    def outward(self, state: S) -> list[int]:
        """Return the workers that this round's messages go to."""
        return state.membership.graph(state.round).outward(state.membership.rank)

    def inward(self, state: S) -> list[int]:
        """Return the workers that this round's messages come from."""
        return state.membership.graph(state.round).inward(state.membership.rank)

    def receivers(self, state: S) -> list[int]:
        return [other for other in self.outward(state) if other not in state.left]

    def check(self, state: S, heard: m.Heard) -> None:
        """Raise ``MalformedMessage`` unless this is a message of this method."""
        check_length(heard, state.local)

    def restart(self, state: S) -> None:
        """Reset the method's state: the members have changed, and rounds count from 0 again."""

    def late(self, state: S, heard: Sequence[m.Heard]) -> None:
        """Handle messages for rounds in which this worker takes no part any more: it drains."""

    def owing(self, state: S) -> bool:
        """Return whether neighbours may not have merged this worker's last training, which it sent in round ``told``.
        They have when they take part in the next round; with directed edges, when news of that has come around."""
        around = (
            min(len(state.membership.members), MOST_ROUNDS - 3) if state.membership.graph(state.round).directed else 0
        )
        alone = state.left >= set(state.membership.others)
        return not alone and (state.untold or state.rounds < state.told + 2 + min(self.overlap, 1) + around)

    def figures(self, state: S) -> dict[str, float]:
        return {"rounds": state.rounds, "dropped": state.dropped, **state.drift.figures()}

    def drifting(self, state: S) -> bool:
        return state.drift.under_way and not self._complete(state)

    def rounds_over(self, state: S) -> int:
        return state.rounds

    def on(self, state: S, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Heard():  # by far the most
                if event.note.kind == BYE:
                    state.left.add(event.sender)
                else:
                    self._take(state, event, actions)
            case m.Stepped():
                self._step(state, event, actions)
            case m.HeldUp() if state.turn is not None and not (state.draining or state.drift.under_way):
                state.drift.begin([x.copy() for x in self.mixed(state)])
                self._proceed(state, actions)
            case m.MembersChanged(membership):
                if membership.version != state.membership.version:
                    self._move(state, membership, actions)
            case m.Draining():
                state.draining = True
            case m.Ended() | m.HeldUp():
                pass  # the worker goes on taking turns, since others wait for them
        if state.draining:
            self._drain(state, actions)
        elif state.turn is not None:
            self._go_on(state, actions)
        return actions

    def _step(self, state: S, turn: m.Stepped, actions: list[m.MethodAction]) -> None:
        state.turn = turn
        if turn.samples:
            state.steps += 1
            state.samples += turn.samples
            state.rate += turn.rate
            state.untold = True
            state.drift.stepped()
        if not state.drift.under_way:
            self._join(state, actions)

    def _join(self, state: S, actions: list[m.MethodAction]) -> None:
        """Begin a round, unless it is not time for one yet."""
        assert state.turn is not None
        if state.turn.samples and state.steps < self.every and not state.draining:
            self._proceed(state, actions)
            return
        if state.untold:
            state.told, state.untold = state.rounds, False
        state.given = m.Stepped(state.samples, state.rate)
        state.steps, state.samples, state.rate = 0, 0, 0.0
        state.owed |= {(state.round, sender) for sender in self.inward(state)}
        actions += self.send(state)

    def _go_on(self, state: S, actions: list[m.MethodAction]) -> None:
        while state.turn is not None and self._complete(state):
            drifted = state.drift.under_way
            with state.drift.kept(*self.mixed(state)):
                self.merge(state, state.given, self._fold(state))
            state.round += 1
            state.rounds += 1
            if drifted:
                self._join(state, actions)  # with the steps made meanwhile
            else:
                self._proceed(state, actions)
        if state.drift.under_way and state.turn is not None and state.turn.samples:
            self._proceed(state, actions)

    def _take(self, state: S, heard: m.Heard, actions: list[m.MethodAction]) -> None:
        version = heard.note.part
        if version < state.membership.version:
            state.dropped += 1
            return
        key = (version, heard.note.round, heard.sender)
        if version == state.membership.version and heard.note.round < state.round - self.overlap:
            actions.append(m.Refuse(heard.sender, f"a message for round {heard.note.round}, which is over"))
            return
        if state.inbox.get(key) is not None:
            raise MalformedMessage(f"a second message of worker {heard.sender} for round {heard.note.round}")
        self._check_ahead(state, heard)
        try:
            self.check(state, heard)
        except MalformedMessage as error:
            # The round goes on without it: workers must not wait for a neighbour that sends nothing usable.
            actions.append(m.Refuse(heard.sender, str(error)))
            state.inbox[key] = None
            return
        state.inbox[key] = heard

    def _check_ahead(self, state: S, heard: m.Heard) -> None:
        """Raise ``MalformedMessage`` for a message too far ahead, so that the inbox stays bounded: no worker can be
        further ahead than there are workers to wait for one another."""
        sender, version, members = heard.sender, heard.note.part, state.membership.members
        if version == state.membership.version:
            if not state.draining and heard.note.round > state.round + (1 + self.overlap) * len(members) + 2:
                raise MalformedMessage(f"a message for round {heard.note.round}; this is round {state.round}")
        elif sum(1 for key in state.inbox if key[0] > state.membership.version and key[2] == sender) >= MOST_EARLY:
            raise MalformedMessage(f"more than {MOST_EARLY} messages for members that are not known yet")

    def _complete(self, state: S) -> bool:
        version, due, left, inbox = state.membership.version, state.round - self.overlap, state.left, state.inbox
        if len(inbox) < len(state.owed) and not left and not self.overlap:
            return False  # a quick check for the usual case
        for round, sender in state.owed:
            if round <= due and (version, round, sender) not in inbox and sender not in left:
                return False
        return True

    def _fold(self, state: S) -> list[m.Heard]:
        """Take the owed messages that have come out of the inbox, in an order that is the same in every run."""
        version, inbox = state.membership.version, state.inbox
        found = sorted([(round, sender) for round, sender in state.owed if (version, round, sender) in inbox])
        if len(found) == len(state.owed):
            state.owed.clear()
        else:
            state.owed -= {(round, sender) for round, sender in state.owed if sender in state.left} | set(found)
        came = [inbox.pop((version, round, sender)) for round, sender in found]
        return [heard for heard in came if heard is not None]

    def _move(self, state: S, membership: m.Membership, actions: list[m.MethodAction]) -> None:
        state.membership = membership
        stale = [key for key in state.inbox if key[0] < membership.version]
        for key in stale:
            del state.inbox[key]
        state.dropped += len(stale)
        state.round = 0
        state.untold = self.owing(state)  # the last message may have been dropped
        state.owed.clear()
        state.drift.drop()
        state.samples, state.rate = 0, 0.0
        self.restart(state)
        if state.turn is not None:
            self._proceed(state, actions)

    def _drain(self, state: S, actions: list[m.MethodAction]) -> None:
        """Say good-bye, once, to all workers, newcomers too; finish when all have said it."""
        say_goodbye(state, actions)
        mine = sorted(key for key in state.inbox if key[0] == state.membership.version)
        if mine or state.turn is not None:  # a turn that is cut short counts, too: its messages were sent
            came = [state.inbox.pop(key) for key in mine]
            self.late(state, [heard for heard in came if heard is not None])
        if state.turn is not None:
            self._proceed(state, actions)
        if state.left >= set(state.membership.others):
            actions.append(m.Finished())

    def _proceed(self, state: S, actions: list[m.MethodAction]) -> None:
        state.turn = None
        actions.append(m.Proceed())


def say_goodbye(state: Any, actions: list[m.MethodAction]) -> None:
    """Say good-bye to all workers that this one has not said it to."""
    fresh = [other for other in state.membership.others if other not in state.taken_leave]
    actions += [m.Tell(other, m.Note(BYE)) for other in fresh]
    state.taken_leave.update(fresh)


def finish(state: Any, actions: list[m.MethodAction]) -> None:
    """Say good-bye, and finish when all workers have said it."""
    say_goodbye(state, actions)
    if state.left >= set(state.membership.others):
        actions.append(m.Finished())


def tell_all(
    state: NeighbourState, receivers: Sequence[int], payload: bytes, numbers: Sequence[float] = (), kind: str = "x"
) -> list[m.MethodAction]:
    """Return a message of the present round to each of the receivers."""
    note = m.Note(kind, state.round, state.membership.version, list(numbers))
    return [m.Tell(other, note, payload) for other in receivers]


def check_length(heard: m.Heard, local: m.Local, vectors: int = 1) -> None:
    """Raise ``MalformedMessage`` unless the payload holds so many vectors."""
    expected = vectors * local.x.nbytes
    if len(heard.payload) != expected:
        raise MalformedMessage(f"a message of {len(heard.payload)} bytes; for this model it would have {expected}")
    check_finite(heard)


def check_finite(heard: m.Heard) -> None:
    """Raise ``MalformedMessage`` if a float32 number is not finite: one would spoil the whole mean."""
    values = np.frombuffer(heard.payload, np.float32)
    # A finite sum of squares, one pass without a copy, proves that all are finite; otherwise look at each. Unlike dot,
    # vdot does not warn of an overflow.
    if not math.isfinite(np.vdot(values, values)) and not np.isfinite(values).all():
        raise MalformedMessage(f"numbers of worker {heard.sender} that are not finite")
