"""Federated averaging: in each round, a few chosen workers train, and all workers take their mean.

    S_r: max(1, C p) workers drawn at random        x  <-  sum_{i in S_r} n_i x_i / sum_{i in S_r} n_i

n_i: the samples that i trained on in this round. A worker that is not chosen waits for the mean, and keeps its leases
until it is chosen. (The very first step of a run is made before any worker is chosen, and counts with its samples.) When
none of the chosen had data, as towards the end of a run, all workers with data are chosen for the next round. While a
round is held up all workers train, and contribute this to the next round. Exchanged: the weights. The optimizer's moments
are not exchanged and go on from the mean; a client of the paper starts with fresh ones, the same for its plain SGD.

``robust``: the median, say, of the chosen workers' weights, instead of their mean (``robust_group.py``). All workers draw
the chosen ones; none can claim to be chosen. So training by a worker that was not chosen (a round was held up) is not in
the mean yet: the worker adds it to the mean until it is chosen.

``clients``: K of them, of which the fraction C is drawn for a round; the workers train the drawn ones, one after the
other, each from the round's first weights (``client_rounds.py``, and ``worker/clients`` for what a worker does). A worker
gives the mean of its clients' weights, by their samples, so the mean over the workers is that over all drawn clients.
``clip`` and ``noise``: what of a client shows in the mean is bounded (``client_noise.py``).

``masked``: workers see the sum of a round and no part of it (``masked_round.py``).

Paper: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data".
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from taut.collectives import named
from taut.errors import Misuse
from taut.specs import check_share, check_whole
from taut.strategies.allreduce.difference_group import group_of
from taut.strategies.allreduce.group import OWN_NUMBERS
from taut.strategies.allreduce.masked_group import MaskedGroup
from taut.strategies.allreduce.robust_group import RobustGroup
from taut.strategies.allreduce.robust_mean import check_robust
from taut.strategies.api import Completeness, Local, Membership, MethodAction, StrategyInfo, Tell, Vector
from taut.strategies.periodic.client_noise import NoiseLedger, check_privacy
from taut.strategies.periodic.client_rounds import ClientPart, ClientRound, dealt, drawn_clients
from taut.strategies.periodic.masked_round import check_enough, check_left, check_masked, take_withheld
from taut.strategies.periodic.periodic import Periodic, PeriodicState

if TYPE_CHECKING:
    from taut.topologies.shape import Shape

FEWEST = 3  # so many that a median can outvote one


@dataclass
class FedAvgState(PeriodicState):
    """A worker's state. ``chosen``: how many rounds it was chosen for; ``idle_round``: no worker trained in the last
    round. If robust or masked: ``common``, the last round's mean; ``gave``: steps and samples of the round under way.
    If masked: ``withheld``, how many rounds this worker had something for that was not taken; ``kept``: steps and samples
    that still wait for a round. With clients: ``part``, what this worker has trained for the round, once it is complete;
    ``opening``: it asks for the next round's clients; ``trained_clients`` and ``lost_clients``, of all workers' rounds so
    far; ``ledger``: of the noise in them."""

    chosen: int = 0
    idle_round: bool = False
    common: Vector | None = None
    gave: tuple[int, int] | None = None
    withheld: int = 0
    kept: tuple[int, int] = (0, 0)
    part: ClientPart | None = None
    opening: bool = False
    trained_clients: int = 0
    lost_clients: int = 0
    ledger: NoiseLedger = field(default_factory=NoiseLedger)


@dataclass(frozen=True)
class FedAvg(Periodic):
    """``--strategy fedavg:fraction=0.5,steps=20``.

    ``fraction``: of the workers that train in a round (C). ``steps``: local steps in a round. ``samples``: local samples
    in a round, instead of ``steps``; E local epochs over n samples and p workers are ``samples = E n / p``. ``seed``: all
    workers draw alike from it, the round's number and the members. ``robust``: ``median``, ``trimmed`` or ``clip`` of the
    chosen, at least three: all of them count alike then, and every worker sends to every other. ``clients``: how many
    there are, where ``worker.rounds`` trains clients and ``fraction`` is of them; 0: each worker is one. ``clip``: the
    norm that no client's update exceeds. ``noise``: its standard deviation, as a multiple of ``clip``; ``delta``: the
    probability for which the run's epsilon is reported. ``masked``: whether the all-reduce is of masked integers.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(FedAvg(fraction=0.5, steps=4), [np.zeros(1, np.float32) for _ in range(4)])
    >>> world.run(8, ends=True); world.finish()
    >>> world.spread()
    0.0
    """

    name = "fedavg"
    info = StrategyInfo(Completeness.SELDOM, (), coded_kinds=("share",))  # it is meant for data that stays where it is
    paper = "McMahan et al. 2017"

    fraction: float = 0.5
    steps: int = 20
    samples: int = 0
    seed: int = 0
    schedule: str = "ring"
    robust: str = "none"
    clients: int = 0
    clip: float = math.inf
    noise: float = 0.0
    delta: float = 1e-5
    masked: bool = False

    def __post_init__(self) -> None:
        check_share(self, "fraction")
        check_whole(self, "steps", 1, "so many local steps make a round")
        check_whole(self, "samples", 0, "0 counts steps instead")
        check_whole(self, "seed", 0)
        named(self.schedule)
        check_robust(self, schedule=self.schedule)
        check_whole(self, "clients", 0, "0: each worker is one client")
        if self.clients and (self.samples or self.robust != "none"):
            other = f"samples={self.samples}" if self.samples else f"robust={self.robust}"
            remedy = (
                "a round ends when its clients are trained, and a worker gives the mean of several: leave one of them out"
            )
            raise Misuse(f"fedavg:clients={self.clients},{other}", "clients, or the other", remedy)
        check_privacy(self.clip, self.noise, self.delta)
        check_masked(self.masked, self.robust)

    def check_shape(self, shape: Shape, workers: int) -> None:
        if self.masked:
            check_enough(workers, self._chosen(self.clients or workers))
        if self.clip < math.inf and not self.clients:
            remedy = "with --clients 100, say, and worker.rounds in the script"
            raise Misuse(f"fedavg:clip={self.clip:g} without clients", "clients, whose updates are clipped", remedy)
        count = self._chosen(workers)
        if self.robust != "none" and count < FEWEST:
            share = f"fraction={self.fraction:g} of {workers} workers: {count} in a round"
            expected = f"at least {FEWEST}, so that one can be outvoted"
            raise Misuse(f"fedavg: robust={self.robust} with {share}", expected, "take a larger fraction")

    @property
    def summed_numbers(self) -> int:
        return super().summed_numbers + (self.robust != "none") + (1 + self._chosen(self.clients) if self.clients else 0)

    @property
    def takes_newcomers(self) -> bool:
        return not self.noise  # one would begin with the weights of a worker that trains, and add no noise

    def shown(self, state: FedAvgState) -> Vector | None:
        return state.common if self.masked else None

    def check_codec(self, codec: str) -> None:
        super().check_codec(codec)
        if self.noise and codec != "dense":
            given = f"codec {codec!r} with fedavg:noise={self.noise:g}"
            raise Misuse(given, "dense: the noise is in the sum of whole updates", "leave noise out, or the codec")
        if self.masked and codec != "dense":
            given = f"codec {codec!r} with fedavg:masked=on"
            raise Misuse(given, "dense: masks are added to whole vectors of integers", "leave masked out, or the codec")

    @property
    def shares_speeds(self) -> bool:
        # else a round has as many samples of each worker, or its clients', or nobody is told of one worker
        return self.robust == "none" and not (self.samples or self.clients or self.masked)

    def start(self, membership: Membership, local: Local) -> FedAvgState:
        group = group_of(membership, local, self.schedule, self.robust, self._voters, masked=self.masked)
        remembers = self.masked or self.robust != "none"
        state = FedAvgState(local, membership, group, common=local.x.copy() if remembers else None)
        if isinstance(group, MaskedGroup):
            group.common = state.common
        return state

    def _voters(self, members: Collection[int], completed: int, says: Sequence[float]) -> Collection[int]:
        """Return the chosen workers; all, in the last round or if most say that no worker trained in the last round."""
        _, ending, contributors = says[:OWN_NUMBERS]
        idle = says[OWN_NUMBERS + 2]
        all_vote = 2 * idle > contributors or ending == contributors
        return members if all_vote else self.draw(tuple(members), completed)

    def _chosen(self, workers: int) -> int:
        return max(1, int(self.fraction * workers + 0.5))

    def draw(self, members: tuple[int, ...], round: int) -> set[int]:
        """Return the workers that train in this round, the same everywhere.

        >>> sorted(FedAvg(fraction=0.5).draw((0, 1, 2, 3), round=7)) == sorted(FedAvg().draw((0, 1, 2, 3), round=7))
        True
        >>> len(FedAvg(fraction=0.01).draw((0, 1, 2, 3), round=7))
        1
        """
        return set(random.Random(f"{self.seed} {round}").sample(members, self._chosen(len(members))))

    def open(self, state: FedAvgState) -> None:
        """Ask for the next round's clients: the next turn lasts until all members agree on the round's number."""
        state.opening = True

    def round_of(self, state: FedAvgState) -> ClientRound:
        """Return the round that comes next, with the clients that this worker trains in it. A newcomer has the weights of
        a worker that may be training a client: it trains none in its first round, and takes the mean."""
        drawn, membership = self._drawn(state), state.membership
        late = state.rounds == 0 and state.group.founder is False
        mine = () if late else dealt(drawn, membership.members, membership.rank)
        return ClientRound(state.group.completed, drawn, mine)

    def _drawn(self, state: FedAvgState) -> tuple[int, ...]:
        return drawn_clients(self.clients, self.fraction, self.seed, state.group.completed, poisson=self.noise > 0.0)

    def give(self, state: FedAvgState, part: ClientPart) -> None:
        """Note that this worker's clients are trained: x is their mean, and the next turn joins the round."""
        state.part = part

    def holds(self, state: FedAvgState, actions: list[MethodAction]) -> bool:
        if not state.opening:
            return False
        actions += state.group.introduce()
        state.opening = not (state.group.agreed or state.ended)
        return state.opening

    def wants(self, state: FedAvgState) -> bool:
        if self.clients:  # a turn without samples says nothing: rounds begin and end with one
            return self.due(state) or (state.idle and state.ended)
        return super().wants(state)

    def held_up(self, state: FedAvgState) -> bool:
        return not self.clients and super().held_up(state)  # nobody trains on: the next clients begin with the mean

    def due(self, state: FedAvgState) -> bool:
        if self.clients:
            return state.part is not None
        if state.samples >= self.samples if self.samples else state.steps >= self.steps:
            return True
        return not state.idle_round and state.membership.rank not in self.draw(
            state.membership.members, state.group.completed
        )

    def join(self, state: FedAvgState) -> list[Tell]:
        if self.masked:
            check_left(state)
        if self.clients:
            return self._join_clients(state)
        state.chosen += state.steps > 0
        (steps, samples), state.kept = state.kept, (0, 0)
        steps, samples = state.steps + steps, state.samples + samples
        state.gave = (steps, samples) if samples else None
        idle = (float(state.idle_round),) if self.robust != "none" else ()
        return self.begin(state, state.local.x, float(samples), *idle, keeps=True)

    def _join_clients(self, state: FedAvgState) -> list[Tell]:
        part, state.part = state.part or ClientPart(), None
        state.chosen += bool(part.trained)
        values = state.local.x if part.noisy is None else part.noisy
        if self.noise and part.noisy is None:
            values = np.zeros_like(values)
        counts = part.counts(self._drawn(state))
        return self.begin(state, values, part.weight, part.noise_share, *counts, keeps=True)

    def _take_clients(self, state: FedAvgState) -> None:
        """Note who was in the round, and take the mean; or add the sum of updates, where there is noise in it."""
        share, *times = state.group.extra[2:]
        state.trained_clients += round(sum(times))
        state.lost_clients += times.count(0.0)
        if not self.noise:
            state.group.mean(state.local.x)
            return
        state.ledger.note(self.noise, share, times)
        mean = np.empty_like(state.local.x)
        weight = state.group.mean(mean)
        state.local.x += mean * np.float32(weight / (self.fraction * self.clients))

    def conclude(self, state: FedAvgState) -> None:
        if isinstance(state.group, MaskedGroup) and state.group.withheld:
            take_withheld(state, state.group, clients=self.clients > 0)
            return
        if self.clients and (state.trained or self.noise):
            if state.trained:
                self._take_clients(state)
            if state.common is not None:
                state.common[:] = state.local.x
            return
        state.idle_round = not state.trained
        if isinstance(state.group, RobustGroup) and state.common is not None:
            self._take(state, state.group, state.common)
        elif state.trained or state.newcomers:
            state.group.mean(state.local.x)
            if state.common is not None:
                state.common[:] = state.local.x

    def _take(self, state: FedAvgState, group: RobustGroup, common: Vector) -> None:
        """Set x to the mean, plus this worker's changes if the mean should contain them and does not yet."""
        x, last = state.local.x, group.ending == group.contributors
        if not (state.trained or state.newcomers or last):
            return
        later = x - common if state.gave and state.membership.rank not in group.voted and not last else None
        if group.mean(x):
            common[:] = x
            if later is not None and state.gave is not None:
                x += later
                state.steps += state.gave[0]
                state.samples += state.gave[1]

    def spare(self, state: FedAvgState) -> bool:
        """Return whether this worker was not chosen and waits while the chosen train."""
        return state.begun and state.lent

    def figures(self, state: FedAvgState) -> dict[str, float]:
        found = {**super().figures(state), "rounds_trained": state.chosen}
        if isinstance(state.group, MaskedGroup):
            found |= {"withheld": state.withheld, "unusable": state.group.unusable}
        if self.clients:
            found |= {"clients_trained": state.trained_clients, "clients_lost": state.lost_clients}
        if state.ledger.epsilon is not None:
            noisy = sum(state.ledger.rounds.values())
            found |= {"epsilon": state.ledger.epsilon, "delta": self.delta, "noisy_rounds": noisy}
        return found
