"""DiLoCo: local training for H steps, then one step of Nesterov momentum along the mean change.

    D      =  theta - sum_i n_i x_i / sum_i n_i         the outer gradient; n_i: samples since the last round
    m      <- mu m + D
    theta  <- theta - eta (D + mu m)                    x_i <- theta

theta is common; the inner optimizer (AdamW in the paper) and its moments are not exchanged. Exchanged: x, every H steps.
Two more vectors per worker (theta and m). With eta = 1 and mu = 0 this is ``averaging``.

**Streaming** (``fragments=k``): the vector is cut into k fragments that take turns, one every H / k steps, so each is
exchanged every H steps and the peak traffic is k times lower. With ``overlap=t`` the worker trains on while the average
is under way and includes it t steps later: x <- a x + (1 - a) theta on that fragment, a being ``mixing``.

**Eager updates** (``eager=true``): a round goes on while the worker trains its next H steps; see ``eager.py``.

**Decoupled** (``quorum=K``): K workers are enough for a round, and whoever is late loses nothing; see ``decoupled.py``.

**Delayed Nesterov** (``delayed=true``): no worker waits; see ``diloco_delayed.py``.

**Held up**, a worker trains on, and x <- theta + d (or, streaming, a x_then + (1 - a) theta + d) when the round is over;
d = x - x_then: its steps since the round was held up (``overlapped_round.py``). The outer step is of the x contributed.

theta and m become common in a worker's first round: for all members, a round with a newcomer is a plain average (theta
<- mean, m <- 0). So is the first round of a run.
Papers: Douillard et al. 2023, "DiLoCo"; Douillard et al. 2025, "Streaming DiLoCo with overlapping communication".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.specs import check_from_zero, check_share, check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.difference_group import DifferenceGroup, group_of
from taut.strategies.allreduce.group import Group
from taut.strategies.allreduce.quorum_group import QuorumGroup
from taut.strategies.periodic.decoupled import Fragment, LateWork, pressed
from taut.strategies.periodic.diloco_forms import check_codec, check_forms
from taut.strategies.periodic.eager import EagerView
from taut.strategies.periodic.nesterov import nesterov
from taut.strategies.periodic.periodic import Periodic, PeriodicState
from taut.strategies.server.diloco_delayed import Delayed, DelayedState

CHUNK = 1 << 16  # elements that are moved at a time: temporaries of this length stay in the cache


@dataclass
class DiLoCoState(PeriodicState):
    theta: m.Vector = None  # type: ignore[assignment]  # set by start, as all vectors here
    momentum: m.Vector = None  # type: ignore[assignment]
    scratch: m.Vector = None  # type: ignore[assignment]  # a fragment of the mean
    fragments: list[Fragment] = field(default_factory=list)
    agreed: int = 0  # rounds in a row in which all were draining
    eager: EagerView | None = None
    late_work: LateWork | None = None  # with a quorum

    @property
    def of_quorum(self) -> QuorumGroup | None:
        """Return the group, if it is one of a quorum."""
        group: object = self.group
        return group if isinstance(group, QuorumGroup) else None

    @property
    def knows_turn(self) -> bool:
        """Return whether this worker knows which fragment is next; a newcomer learns it in its first round."""
        return len(self.fragments) == 1 or self.rounds > 0


@dataclass(frozen=True)
class DiLoCo(Periodic):
    """``--strategy diloco:every=100,outer_rate=0.7,outer_momentum=0.9``.

    ``every``: H. ``outer_rate``: eta. ``outer_momentum``: mu. ``fragments``, ``overlap``, ``mixing``: the streaming form
    (1 and 0: not streaming). ``eager``: no worker waits for the round under way. ``quorum``: so many workers are enough
    for a round (0: all). ``delayed``: the asynchronous form. ``robust``: ``median``, ``trimmed`` or ``clip`` in place of
    the mean, against workers whose weights are wrong: all count alike then, and send to all (robust_group.py).

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(DiLoCo(every=4, fragments=2), [np.zeros(5, np.float32) for _ in range(3)])
    >>> world.run(8); world.finish()
    >>> world.spread()
    0.0
    """

    name = "diloco"
    info = m.StrategyInfo(m.Completeness.SELDOM, (m.Variant("every=50"),), short="every=5", coded_kinds=("share",))
    paper = "Douillard et al. 2023"
    concurrent = True  # an overlapped average goes on while the worker trains
    keeps_common = ("theta", "momentum", "fragments")

    every: int = 100
    outer_rate: float = 0.7
    outer_momentum: float = 0.9
    fragments: int = 1
    overlap: int = 0
    mixing: float = 0.5
    eager: bool = False
    quorum: int = 0
    delayed: bool = False
    robust: str = "none"

    def __post_init__(self) -> None:
        check_whole(self, "every", 1, "the paper takes 500, small models do well with 20 to 100")
        check_share(self, "outer_rate", high=10.0)
        check_from_zero(self, "outer_momentum")
        check_whole(self, "fragments", 1, "1 is the whole vector at once")
        check_whole(self, "overlap", 0, "0 waits for the average")
        check_from_zero(self, "mixing", remedy="0 keeps no x")
        check_whole(self, "quorum", 0, "0 waits for all")
        check_forms(self)

    def check_codec(self, codec: str) -> None:
        super().check_codec(codec)
        check_codec(self, codec)

    @property
    def summed_numbers(self) -> int:
        return super().summed_numbers + 1

    @property
    def shares_speeds(self) -> bool:
        return self.robust == "none" and not self.delayed and not self.quorum

    def start(self, membership: m.Membership, local: m.Local) -> DiLoCoState | DelayedState:
        if self.delayed:
            return self._delayed.start(membership, local)
        length = len(local.x)
        size = -(-length // self.fragments)
        parts = [Fragment(min(lo, length), min(lo + size, length)) for lo in range(0, size * self.fragments, size or 1)]
        return DiLoCoState(
            local,
            membership,
            self._group(membership, local, size),
            theta=local.x.copy(),
            momentum=np.zeros_like(local.x),
            scratch=np.zeros(size, np.float32),
            fragments=parts or [Fragment(0, 0)],
            eager=EagerView(local.x.copy(), np.zeros_like(local.x)) if self.eager else None,
            late_work=LateWork() if self.quorum else None,
        )

    def _group(self, membership: m.Membership, local: m.Local, size: int) -> Any:
        if self.quorum:
            return QuorumGroup(membership, size, self.quorum)
        return group_of(membership, local, robust=self.robust) if self.fragments == 1 else Group(membership, size)

    @property
    def _delayed(self) -> Delayed:
        return Delayed(self.every, self.outer_rate, self.outer_momentum)

    def on(self, state: Any, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        if isinstance(state, DelayedState):
            return self._delayed.on(state, event, now)
        actions = super().on(state, event, now)
        if self.quorum and not state.finished:
            actions += pressed(state, event)
            self._go_on(state, actions)
        return actions

    def owing(self, state: Any) -> bool:
        if isinstance(state, DelayedState):
            return self._delayed.owing(state)
        late = self.quorum and not state.finished and len(state.membership.members) > 1
        return super().owing(state) or bool(late and any(fragment.samples for fragment in state.fragments))

    def drifting(self, state: Any) -> bool:
        return self._delayed.drifting(state) if isinstance(state, DelayedState) else super().drifting(state)

    def dispensable(self, state: Any) -> bool:
        return self._delayed.dispensable(state) if isinstance(state, DelayedState) else super().dispensable(state)

    def rounds_over(self, state: Any) -> int:
        return self._delayed.rounds_over(state) if isinstance(state, DelayedState) else super().rounds_over(state)

    def figures(self, state: Any) -> dict[str, float]:
        if isinstance(state, DelayedState):
            return self._delayed.figures(state)
        return super().figures(state) | ({"late": state.group.dropped} if self.quorum else {})

    def map_groups(self, state: Any, made: Callable[[Any], Any]) -> None:
        if not (self.delayed or self.quorum):  # else shards or a coordinator are asked: there is no all-reduce
            super().map_groups(state, made)

    def due(self, state: DiLoCoState) -> bool:
        return state.steps >= self.every // self.fragments

    def wants(self, state: DiLoCoState) -> bool:
        if self._new(state):
            return False
        return super().wants(state) or bool(state.of_quorum and state.of_quorum.owed)  # it takes what it missed

    def holds(self, state: DiLoCoState, actions: list[m.MethodAction]) -> bool:
        if self._new(state) and super().wants(state):
            actions += state.group.introduce()
            return not state.group.agreed
        return False

    def _new(self, state: DiLoCoState) -> bool:
        """Return whether a quorum's worker does not know the round yet."""
        return self.quorum > 0 and not state.rounds and not state.group.agreed

    def waits(self, state: DiLoCoState) -> bool:
        return state.moved >= (self.every if self.eager else self.overlap)

    @property
    def _gives_x(self) -> bool:
        """Return whether x itself is contributed: all of it, and it stays until the round is over."""
        return self.fragments == 1 and not (self.overlap or self.eager or self.quorum)

    def hold(self, state: DiLoCoState) -> m.Vector:
        return super().hold(state) if self._gives_x else state.local.x.copy()

    def join(self, state: DiLoCoState) -> list[m.Tell]:
        late, behind = state.late_work, bool(state.of_quorum and state.of_quorum.owed)
        steps = state.steps if late is None else late.join(state.steps, behind)
        for fragment in state.fragments:
            fragment.count(state.samples, steps)
        if behind:
            state.lent = True
            return state.group.begin(state.scratch, 0.0, state.draining)
        if late is None and not state.knows_turn:
            return state.group.begin(state.scratch, 0.0, state.draining, (1.0, 0.0, 1.0, *self.speed_of(state)))
        fragment = state.fragments[state.group.completed % self.fragments]
        values = state.local.x
        if state.eager is not None:
            values = state.eager.contribution(values, state.theta)
            workers = len(state.membership.members)
            state.eager.advance(state.local.x, state.theta, self.outer_rate, self.outer_momentum, workers)
        elif not self._gives_x:
            values = np.zeros_like(state.scratch)
            values[: fragment.hi - fragment.lo] = state.local.x[fragment.lo : fragment.hi]
        samples, steps = fragment.take()
        weight = float(samples)
        if late is not None:
            late.given, weight = (samples, steps), late.weight(samples, steps)
        return self.begin(state, values, weight, float(not fragment.common), keeps=True)

    def conclude(self, state: DiLoCoState) -> None:
        fragment, late = state.fragments[(state.group.completed - 1) % self.fragments], state.late_work
        missed = late is not None and late.missed(state.of_quorum)
        if late is not None:
            state.steps += late.conclude(fragment, state.of_quorum)
        if not state.group.mean(state.scratch):
            return  # all members are newcomers, without a fragment
        mean, joined = state.scratch[: fragment.hi - fragment.lo], state.group.extra[2] > 0.0
        if missed and not (joined or fragment.common):
            return  # the mean follows on a theta that this worker has never had
        for lo in range(fragment.lo, fragment.hi, CHUNK):
            part = slice(lo, min(lo + CHUNK, fragment.hi))
            of_mean = mean[part.start - fragment.lo : part.stop - fragment.lo]
            self._move(state, part, of_mean, joined, missed)
        fragment.common = fragment.common or joined
        if isinstance(state.group, DifferenceGroup):
            state.group.rebase(state.theta)
        all_drain = state.group.ending == state.group.contributors
        # A newcomer has not counted earlier rounds, so the others start counting again, too.
        state.agreed = (0 if state.newcomers else state.agreed) + 1 if all_drain else 0
        if state.eager is not None and all_drain:
            state.eager.settle(state.local.x, state.theta)

    def _move(self, state: DiLoCoState, part: slice, mean: m.Vector, joined: bool, missed: bool) -> None:
        """Move a part of theta and x. ``joined``: some member has another theta for this fragment; ``missed``: this
        worker's change is not in the mean."""
        theta, momentum, x = state.theta[part], state.momentum[part], state.local.x[part]
        if missed:
            x -= theta
        if joined:
            theta[:], momentum[:] = mean, 0.0
        elif state.trained:
            nesterov(theta, momentum, theta - mean, self.outer_rate, self.outer_momentum)
        if missed:
            x += theta
        elif state.eager is not None:
            pass
        elif state.moved:
            x *= np.float32(self.mixing)
            x += np.float32(1.0 - self.mixing) * theta
        else:
            x[:] = theta

    def agreed(self, state: DiLoCoState) -> bool:
        """Return whether all fragments have been averaged since every member stopped training."""
        return state.agreed >= self.fragments
