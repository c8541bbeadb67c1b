"""AD-PSGD: asynchronous pairwise averaging. No worker ever waits.

    i, after its step:       pick a random neighbour j, send x_i, train on
    j, when x_i arrives:     d = (x_i - x_j) / 2;   x_j += d;   answer d
    i, when d arrives:       x_i -= d

The two changes cancel, so the sum over all workers is conserved, whatever steps both made meanwhile. The gradient that i
adds in between was taken at the older copy, as published. The paper makes each averaging atomic and splits the workers
into an active and a passive half, lest two wait for each other; here no worker holds a lock or waits for the answer, so
any graph will do. At most one question of a worker's own is under way. The optimizer's moments are not exchanged.

**With a compressor** both keep a copy of what the other has of x, and send what has changed of it (``copies.py``):

    i:  moves h_i by q_i = Q(x_i - h_i), sends q_i        j:  moves h_j by q_j, x_j += d, answers q_j        i:  x_i -= d

with d = gamma (h_i - h_j) / 2, which both know to the last bit: CHOCO's exchange, for two workers at a time. A worker
that is asked before its own question is answered remembers the h_i that it asked with.
Papers: Lian et al. 2018, "Asynchronous decentralized parallel stochastic gradient descent"; Koloskova et al. 2019,
"Decentralized stochastic optimization and gossip algorithms with compressed communication".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.core.splitmix import hash_bits
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.delivery.copies import HeldCopy, SentCopies, Written, shortens
from taut.strategies.gossip.neighbour_rounds import check_length, finish

WHOLE = "whole-"  # before the kind of a message that has a vector itself, and not what has changed of it


@dataclass
class PairCopies:
    """What partners have of this worker's x, and this worker of theirs. ``asked``: what the worker that was asked last
    had of x, by that question."""

    coder: m.VectorCoder
    sent: SentCopies = field(default_factory=lambda: SentCopies(0))
    held: dict[int, HeldCopy] = field(default_factory=dict)
    asked: m.Vector | None = None

    def tell(self, to: int, kind: str, number: int, x: m.Vector) -> m.Tell:
        written = self.sent.follow(to, x, self.coder)
        return m.Tell(to, m.Note(WHOLE + kind if written.whole else kind, number), written.payload)

    def read(self, sender: int, note: m.Note, payload: bytes, nbytes: int) -> m.Vector:
        held = self.held.get(sender, HeldCopy())
        copy = held.read(Written(payload, 1.0, note.kind.startswith(WHOLE)), nbytes, self.coder)
        self.held[sender] = held
        return copy

    def half(self, theirs: m.Vector, own: m.Vector) -> m.Vector:
        """Return d: what the worker that asked, showing ``theirs``, gives to the one that answered, showing ``own``."""
        half: m.Vector = (theirs - own) * np.float32(0.5 * self.coder.pace)
        return half


@dataclass
class ADPSGDState:
    """A worker's state. ``asked``: the neighbour whose answer is under way, and the number of the question."""

    local: m.Local
    membership: m.Membership
    turns: int = 0
    asked: tuple[int, int] | None = None
    left: set[int] = field(default_factory=set)
    taken_leave: set[int] = field(default_factory=set)
    draining: bool = False
    averaged: int = 0
    forgotten: int = 0  # questions to workers that are gone
    apart: bool = False  # this worker trained since it last asked
    leaving: bool = False
    copies: PairCopies | None = None  # with a compressor


@dataclass(frozen=True)
class ADPSGD(m.Method):
    """``--strategy adpsgd --topology ring``. ``every``: ask after every so many steps. ``seed``: of the random choices.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(ADPSGD(), [np.full(1, float(rank), np.float32) for rank in range(4)], topology="ring")
    >>> world.run(60)
    >>> round(float(world.mean()[0]), 5)
    1.5
    """

    name = "adpsgd"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=("ring", "")),), coded_kinds=("ask", "answer"))
    codecs = ("dense", m.ANY_COMPRESSOR)
    paper = "Lian et al. 2018"
    returns = "mix"
    lockstep = False
    every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "every", 1)
        check_whole(self, "seed", 0)

    def start(self, membership: m.Membership, local: m.Local) -> ADPSGDState:
        coder = shortens(local.coder)
        return ADPSGDState(local, membership, copies=None if coder is None else PairCopies(coder))

    def on(self, state: ADPSGDState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples):
                state.apart = state.apart or samples > 0
                self._ask(state, actions)
                actions.append(m.Proceed())
            case m.Leaving():
                state.leaving = True
            case m.Heard(sender, m.Note(kind="bye"), _):
                state.left.add(sender)
            case m.Heard():
                self._heard(state, event, actions)
            case m.MembersChanged(membership):
                self._forget(state, set(state.membership.members) - set(membership.members))
                state.membership = membership
                if state.asked is not None and state.asked[0] not in membership.members:
                    state.asked = None
                    state.forgotten += 1
                    state.apart = True
            case m.Draining():
                state.draining = True
            case m.Ended():
                pass  # others may still ask
        if state.leaving and state.apart:
            self._ask(state, actions)
        if state.draining and state.asked is None:
            finish(state, actions)
        return actions

    def _heard(self, state: ADPSGDState, heard: m.Heard, actions: list[m.MethodAction]) -> None:
        x, copies, sender, note = state.local.x, state.copies, heard.sender, heard.note
        if copies is None:
            check_length(heard, state.local)
            theirs = np.frombuffer(heard.payload, np.float32)
        else:
            theirs = copies.read(sender, note, heard.payload, x.nbytes)
        if note.kind.removeprefix(WHOLE) == "ask":
            if copies is None:
                half = (theirs - x) * np.float32(0.5)
                answer = m.Tell(sender, m.Note("answer", note.round), half.tobytes())
            else:
                answer = copies.tell(sender, "answer", note.round, x)
                half = copies.half(theirs, copies.sent.copy(sender))
            x += half
            actions.append(answer)
        elif state.asked == (sender, note.round):
            x -= theirs if copies is None or copies.asked is None else copies.half(copies.asked, theirs)
            state.asked = None
            state.averaged += 1

    def _forget(self, state: ADPSGDState, gone: set[int]) -> None:
        if state.copies is not None:
            state.copies.sent.forget(gone)
            for other in gone:
                state.copies.held.pop(other, None)

    def _ask(self, state: ADPSGDState, actions: list[m.MethodAction]) -> None:
        state.turns += 1
        if state.asked is not None or state.draining or (state.turns % self.every and not state.leaving):
            return
        membership = state.membership
        partners = [other for other in membership.neighbours(state.turns) if other not in state.left]
        if partners:
            partner = partners[hash_bits(self.seed, membership.rank, state.turns) % len(partners)]
            state.asked = (partner, state.turns)
            state.apart = False
            if state.copies is None:
                actions.append(m.Tell(partner, m.Note("ask", state.turns), state.local.x.tobytes()))
            else:
                actions.append(state.copies.tell(partner, "ask", state.turns, state.local.x))
                state.copies.asked = state.copies.sent.copy(partner).copy()

    def owing(self, state: ADPSGDState) -> bool:
        """Return whether no neighbour has taken half of this worker's last training."""
        return (
            state.apart and bool(set(state.membership.neighbours(state.turns)) - state.left)
        ) or state.asked is not None

    def figures(self, state: ADPSGDState) -> dict[str, float]:
        return {"averaged": state.averaged, "forgotten": state.forgotten}
