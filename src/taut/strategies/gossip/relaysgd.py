"""RelaySGD: models are summed along a tree, hop by hop, so that each worker gets all models, at equal weight.

    to neighbour j:  m_ij = x_i + sum of the m_ki of the round before, over neighbours k other than j;  c_ij = 1 + their c
    then             x_i <- (x_i + sum_j m_ji) / (1 + sum_j c_ji)

with x_i after the local step. A tree has one path between any two workers, so every x is in the sum once, as old as the
path is long. After as many rounds as the tree's diameter, x_i is the mean of all, uniform however badly the graph mixes;
this is why it works where workers see different data. Before that the counts say how many models are in the sum.
The optimizer's moments are not exchanged; momentum helps. When the members change, sums start anew on the new tree.

**With a quantizer** each neighbour keeps a copy of the sum that goes to it, of which only the changes are sent, and the
whole sum when the number of models in it changes (``neighbour_copies.py``). It must be a fine one: no neighbour moves the
opposite way here, so that what a message leaves out moves the mean of all. ``async`` on the same topology relays
compressed updates.
Paper: Vogels et al. 2021, "RelaySum for decentralized deep learning on heterogeneous data".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_copies import NeighbourCopies, copies_for
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, check_length, tell_all

NOT_CONSERVED = (
    "relays do not conserve the mean, so that what a message leaves out would move it: take async on this topology, "
    "which relays compressed updates"
)


@dataclass
class RelaySGDState(NeighbourState):
    """A worker's state. ``heard``: each tree neighbour's last sum, and the number of models in it."""

    tree: list[int] = field(default_factory=list)
    heard: dict[int, tuple[m.Vector, int]] = field(default_factory=dict)
    copies: NeighbourCopies | None = None  # of the sums
    counts: dict[int, int] = field(default_factory=dict)  # of the models in the sums that the neighbours have


@dataclass(frozen=True)
class RelaySGD(NeighbourRounds[RelaySGDState]):
    """``--strategy relaysgd --topology ring``: along a spanning tree of any connected graph.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(RelaySGD(), [np.full(1, float(rank), np.float32) for rank in range(4)], topology="line")
    >>> world.run(40)
    >>> bool(world.spread() < 1e-3)
    True
    """

    name = "relaysgd"
    info = m.StrategyInfo(
        m.Completeness.NEIGHBOURS, (m.Variant(topologies=("tree",)),), coded_kinds=("x",), limited=NOT_CONSERVED
    )
    codecs = ("dense", m.ANY_FINE)
    paper = "Vogels et al. 2021"
    directed = True  # channels go both ways, even over directed edges

    def start(self, membership: m.Membership, local: m.Local) -> RelaySGDState:
        copies = copies_for(membership, local, alike=False)
        return RelaySGDState(local, membership, tree=tree_neighbours(membership), copies=copies)

    def outward(self, state: RelaySGDState) -> list[int]:
        return state.tree

    inward = outward

    def send(self, state: RelaySGDState) -> list[m.MethodAction]:
        x = state.local.x
        actions: list[m.MethodAction] = []
        for other in state.tree:
            if other in state.left:
                continue
            relayed = [state.heard[k] for k in state.tree if k != other and k in state.heard]
            total, count = x.copy(), 1
            for vector, models in relayed:
                total += vector
                count += models
            if state.copies is None:
                actions += tell_all(state, [other], total.tobytes(), [count])
                continue
            if state.counts.get(other) != count:
                state.copies.sent.forget([(other, 0)])
            state.counts[other] = count
            actions += state.copies.tell(state, [other], [total], [count])
        return actions

    def check(self, state: RelaySGDState, heard: m.Heard) -> None:
        if state.copies is not None:
            state.copies.check(heard, state.local)
        else:
            check_length(heard, state.local)
        numbers = heard.note.numbers
        if len(numbers) != 1 or not (1 <= numbers[0] < 2**31 and numbers[0] == int(numbers[0])):
            raise MalformedMessage(f"relay counts {numbers}; one whole number from 1 was expected")

    def merge(self, state: RelaySGDState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        x, copies = state.local.x, state.copies
        came = {one.sender: copies.read(one, x.nbytes) if copies else [_sum(one)] for one in heard}
        counts = {one.sender: int(one.note.numbers[0]) for one in heard}
        state.heard = {sender: (vectors[0], counts[sender]) for sender, vectors in came.items() if vectors}
        count = 1
        for vector, models in state.heard.values():
            x += vector
            count += models
        x /= np.float32(count)

    def restart(self, state: RelaySGDState) -> None:
        state.tree = tree_neighbours(state.membership)
        state.heard.clear()
        state.counts.clear()
        if state.copies is not None:
            state.copies.restart()


def _sum(heard: m.Heard) -> m.Vector:
    return np.frombuffer(heard.payload, np.float32)


def tree_neighbours(membership: m.Membership) -> list[int]:
    """Return this worker's neighbours in a spanning tree that all members compute alike."""
    return membership.shape.union(membership.members).spanning_tree().neighbours(membership.rank)
