"""SGP: stochastic gradient push. Push-sum averaging on directed graphs, where doubly stochastic weights may not exist.

    z_i = x_i / w_i                      the weights that the model trains with
    x_i <- x_i - rate g(z_i)             the local step
    send (p x_i, p w_i) to each receiver, keep as much; p = 1 / (1 + number of receivers)
    x_i, w_i <- the sum of the kept share and the received ones

The shares of a worker sum to one, so the totals of x and of w are conserved, however late and in whatever order messages
come, and z tends to the mean of all. The optimizer moves z, and x by as much. Its moments are not exchanged.

**With a compressor** receivers keep copies h of z, of which only the changes are sent (``neighbour_copies.py``), and what
a worker gives away is a share of its weight, at the z that the receiver reads. For each receiver k:

    v = gamma p w_i;      x_i <- x_i - v h_ik,  w_i <- w_i - v;      x_k <- x_k + v h_ik,  w_k <- w_k + v

Both sides change by the same floats, and v travels as it is: the totals are conserved as before, and z tends to the mean.
Papers: Assran et al. 2019, "Stochastic gradient push for distributed deep learning"; Kempe, Dobra, Gehrke 2003; Taheri
et al. 2020, "Quantized decentralized stochastic learning over directed graphs".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from taut.errors import MalformedMessage, Misuse, RunFailed
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_copies import NeighbourCopies, copies_for
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, check_length, tell_all
from taut.topologies.mixing import degrees_of

if TYPE_CHECKING:
    from taut.topologies.graph import Graph
    from taut.topologies.shape import Shape

LEAST_WEIGHT = 2.0**-20  # below this, a step of the optimizer would move z by a million times its size
LARGEST_WEIGHT = 2.0**31  # no run has so many workers, and each begins with 1
LARGEST_CHECKED = 512  # workers: the check's time grows with their cube


@dataclass
class SGPState(NeighbourState):
    """A worker's state: ``x`` and ``w``; its z is ``local.x``."""

    x: m.Vector = field(default_factory=lambda: np.zeros(0, np.float32))
    w: float = 1.0
    copies: NeighbourCopies | None = None  # of z


@dataclass(frozen=True)
class SGP(NeighbourRounds[SGPState]):
    """``--strategy sgp --topology exponential``; ``sgp:overlap=1`` hides the network behind a step. ``overlap``: how many
    rounds late a message may come; it is merged when it does. 0: synchronous."""

    name = "sgp"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=("exponential",)),), coded_kinds=("x",))
    codecs = ("dense", m.ANY_COMPRESSOR)
    paper = "Assran et al. 2019"
    directed = True
    overlap: int = 0

    def __post_init__(self) -> None:
        check_whole(self, "overlap", 0, "0 waits for every round, 1 for the one before")

    def start(self, membership: m.Membership, local: m.Local) -> SGPState:
        return SGPState(local, membership, x=local.x.copy(), copies=copies_for(membership, local))

    def send(self, state: SGPState) -> list[m.MethodAction]:
        state.x += state.local.x - debiased(state)
        receivers = self.receivers(state)
        share = 1.0 / (1 + len(receivers))
        if state.copies is not None:
            return _give(state, state.copies, receivers, share * state.copies.gamma)
        state.x *= np.float32(share)
        state.w *= share
        payload = state.x.tobytes() if receivers else b""
        return tell_all(state, receivers, payload, [state.w])

    def check(self, state: SGPState, heard: m.Heard) -> None:
        if state.copies is not None:
            state.copies.check(heard, state.local)
        else:
            check_length(heard, state.local)
        numbers = heard.note.numbers
        if len(numbers) != 1 or not 0.0 < numbers[0] <= LARGEST_WEIGHT:
            raise MalformedMessage(f"push-sum weights {numbers}; one positive number, no larger than a run, was expected")

    def merge(self, state: SGPState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        for one in heard:
            weight = one.note.numbers[0]
            if state.copies is None:
                state.x += np.frombuffer(one.payload, np.float32)
            elif copies := state.copies.read(one, state.x.nbytes):
                state.x += np.float32(weight) * copies[0]
            else:
                continue  # a change of what was refused
            state.w += weight
        if state.w < LEAST_WEIGHT:
            raise RunFailed(
                f"sgp: the push-sum weight of worker {state.membership.rank} fell to {state.w:.3g}, so that its model is "
                "noise; use a topology in which each worker hears about as many as it sends to, such as exponential"
            )
        state.local.x[:] = debiased(state)

    def late(self, state: SGPState, heard: Sequence[m.Heard]) -> None:
        if state.drift.then is not None:  # its steps since go into no round any more
            state.x += state.local.x - state.drift.then[0]
            state.drift.drop()
        self.merge(state, m.Stepped(0), heard)

    def restart(self, state: SGPState) -> None:
        """Set all weights to 1: messages under way are lost, in x and in w, and no weight may stay small."""
        state.w = 1.0
        state.x[:] = state.local.x
        if state.copies is not None:
            state.copies.restart()

    def check_shape(self, shape: Shape, workers: int) -> None:
        check_weights(shape, workers)

    def figures(self, state: SGPState) -> dict[str, float]:
        return {**super().figures(state), "weight": state.w}


def _give(state: SGPState, copies: NeighbourCopies, receivers: Sequence[int], share: float) -> list[m.MethodAction]:
    """Give each receiver a share of w, at its copy of z; return the messages."""
    given = share * state.w
    actions = copies.tell(state, receivers, [debiased(state)], [given])
    for other in receivers:
        state.x -= np.float32(given) * copies.shown(other)
        state.w -= given
    return actions


def debiased(state: SGPState) -> m.Vector:
    """Return z = x / w."""
    z: m.Vector = state.x / np.float32(state.w)
    return z


def check_weights(shape: Shape, workers: int) -> None:
    """Raise ``Misuse`` if a worker's weight would tend to almost zero, for wirings that do not vary."""
    graph = shape.wire(range(workers))
    if shape.varies or len(degrees_of(graph)) == 1 or workers > LARGEST_CHECKED:
        return
    weights = limit_weights(graph)
    rank = min(weights, key=lambda one: (weights[one], one))
    if weights[rank] < LEAST_WEIGHT:
        raise Misuse(
            f"sgp on this {shape.name}: the weight of worker {rank} would tend to {weights[rank]:.3g}",
            f"weights of at least {LEAST_WEIGHT:.3g}",
            "let each worker hear about as many as it sends to, as in --topology exponential",
        )


def limit_weights(graph: Graph) -> dict[int, float]:
    """Return the limits of the weights when shares are pushed along ``graph`` for long; their sum is that of workers.

    >>> from taut.topologies.graph import Graph
    >>> chain = Graph((0, 1), {(0, 1), (1, 0)}, directed=True)
    >>> limit_weights(chain)
    {0: 1.0, 1: 1.0}
    """
    size = len(graph.members)
    matrix = graph.matrix("push") - np.eye(size)
    matrix[-1] = 1.0  # one equation of P w = w follows from the others; this one fixes the sum
    target = np.zeros(size)
    target[-1] = size
    solution = np.linalg.solve(matrix, target)
    return dict(zip(graph.members, (round(float(each), 15) for each in solution), strict=True))
