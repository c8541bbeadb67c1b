"""Codistillation: each worker trains a model of its own, and also to agree with its peers' predictions.

    loss_i = task loss + weight * agreement(f(x; w_i), mean over peers j of f(x; w_j as they were))

Peers' weights are sent to the neighbours in the topology only every ``every`` steps; in between, their predictions come
from stale copies, which the paper found to cost nothing. Replicas never become equal: they agree in their predictions,
not in their weights, so the end takes the best of them (``--finish best``). ``burn_in``: steps on the task alone, until
the peers' predictions are useful. ``worker/exchange/distillation.py`` computes the agreement.

**With a compressor** the first weights go whole, and then what has changed of them since the last time (``copies.py``).
What a message leaves out is in the next one; a teacher is that much older, in the weights that changed least.
Paper: Anil et al. 2018, "Large scale distributed neural network training through online distillation".
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.specs import check_choice, check_share, check_whole
from taut.strategies import api as m
from taut.strategies.delivery.copies import HeldCopy, SentCopies, Written, shortens

MOST_UNSEEN = 2


@dataclass(frozen=True)
class Teacher:
    """A peer's weights as they were after ``steps`` of its steps; they came at step ``since`` of this worker's."""

    weights: m.Vector = field(repr=False)
    steps: int
    since: int


@dataclass
class CodistillationState:
    local: m.Local
    membership: m.Membership
    teachers: dict[int, Teacher] = field(default_factory=dict)
    steps: int = 0
    sent: int = 0
    withheld: int = 0  # from neighbours that had not seen the last ones
    agreement: float = 0.0  # in the last step, for the statistics
    unseen: Counter[int] = field(default_factory=Counter)  # by receiver: weights sent and not seen yet
    coder: m.VectorCoder | None = None
    shown: SentCopies = field(default_factory=lambda: SentCopies(0))  # with a coder: what the learners have
    held: dict[int, HeldCopy] = field(default_factory=dict)  # and what this worker has of its teachers


@dataclass(frozen=True)
class Codistillation(m.Method):
    """``--strategy codistillation:every=50,weight=1,burn_in=100``. ``loss``: ``kl`` between the softmaxes of the outputs
    (over their last dimension), ``mse`` between the outputs, ``auto``: kl for outputs of two or more columns, else mse.

    >>> method = Codistillation(every=2, burn_in=4)
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(method, [np.full(2, float(rank), np.float32) for rank in range(3)])
    >>> world.run(4)
    >>> state = world.actors[0].method_state
    >>> method.active(state), sorted(state.teachers), state.teachers[2].weights.tolist()
    (True, [1, 2], [2.0, 2.0])
    """

    name = "codistillation"
    info = m.StrategyInfo(
        m.Completeness.SELDOM, (), finish="best", one_model=False, short="every=5", coded_kinds=("moved",)
    )  # models of their own, which agree in what they say, not in their weights
    codecs = ("dense", m.ANY_COMPRESSOR)
    paper = "Anil et al. 2018"
    returns = "mix"
    lockstep = False
    directed = True

    every: int = 50
    weight: float = 1.0
    burn_in: int = 0
    loss: str = "auto"

    def __post_init__(self) -> None:
        check_whole(self, "every", 1)
        check_whole(self, "burn_in", 0)
        check_share(self, "weight", 0.0, float("inf"))
        check_choice(self, "loss", ("auto", "kl", "mse"))

    def start(self, membership: m.Membership, local: m.Local) -> CodistillationState:
        return CodistillationState(local, membership, coder=shortens(local.coder))

    def on(self, state: CodistillationState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples, _):
                if samples:
                    state.steps += 1
                    if state.steps % self.every == 0:
                        actions += self._show(state)
                actions.append(m.Proceed())
            case m.Heard(sender, m.Note(kind="weights" | "moved", round=steps)):
                weights = _read(state, event)
                if sender in state.membership.members:
                    actions.append(m.Tell(sender, m.Note("seen")))
                    state.teachers[sender] = Teacher(weights, steps, state.steps)
            case m.Heard(sender, m.Note(kind="seen")):
                state.unseen[sender] = max(0, state.unseen[sender] - 1)
            case m.MembersChanged(membership):
                gone = set(state.membership.members) - set(membership.members)
                state.shown.forget(gone)
                state.held = {rank: held for rank, held in state.held.items() if rank not in gone}
                state.membership = membership
                state.teachers = {rank: t for rank, t in state.teachers.items() if rank in membership.members}
            case m.Draining():
                actions.append(m.Finished())
            case m.Heard() | m.Ended():
                pass
        return actions

    def _show(self, state: CodistillationState) -> list[m.Tell]:
        """Send this worker's weights to its neighbours, except those that have not seen the last ``MOST_UNSEEN``."""
        graph = state.membership.graph(state.steps // self.every)
        learners = graph.outward(state.membership.rank)
        others = [rank for rank in learners if state.unseen[rank] < MOST_UNSEEN]
        state.withheld += len(learners) - len(others)
        state.unseen.update(others)
        state.sent += len(others)
        if state.coder is not None:
            return [_moved(state, other, state.coder) for other in others]
        payload = state.local.x.tobytes() if others else b""
        return [m.Tell(other, m.Note("weights", state.steps), payload) for other in others]

    def active(self, state: CodistillationState) -> bool:
        """Return whether the worker is to agree with its teachers yet."""
        return bool(state.teachers) and state.steps >= self.burn_in

    def figures(self, state: CodistillationState) -> dict[str, float]:
        ages = [state.steps - teacher.since for teacher in state.teachers.values()]
        return {
            "teachers": len(ages),
            "teacher_age_steps": float(np.mean(ages)) if ages else 0.0,
            "agreement": state.agreement,
            "weights_sent": state.sent,
        }


def _moved(state: CodistillationState, learner: int, coder: m.VectorCoder) -> m.Tell:
    written = state.shown.follow(learner, state.local.x, coder)
    return m.Tell(learner, m.Note("weights" if written.whole else "moved", state.steps), written.payload)


def _read(state: CodistillationState, heard: m.Heard) -> m.Vector:
    """Return the weights that a peer shows."""
    if state.coder is not None:
        held, nbytes = state.held.get(heard.sender, HeldCopy()), state.local.x.nbytes
        weights = held.read(Written(heard.payload, 1.0, heard.note.kind == "weights"), nbytes, state.coder)
        state.held[heard.sender] = held
        return weights
    if heard.note.kind != "weights" or len(heard.payload) != state.local.x.nbytes:
        raise MalformedMessage(f"weights of {len(heard.payload)} bytes; this model has {state.local.x.nbytes}")
    return np.frombuffer(heard.payload, np.float32)
