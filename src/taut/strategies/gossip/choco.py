"""CHOCO-SGD: gossip with compressed messages that still reaches full consensus.

    q_i = C(x_i - h_i);   send q_i to the neighbours;   h_i += q_i, and every neighbour adds it to its copy of h_i
    x_i <- x_i + gamma sum_j W_ij (h_j - h_i)

h_i is the public copy of x_i: the same bits at all neighbours. Only differences from it are compressed (C: the run's
codec, without feedback), and the part that a message omits is in the next difference, so that h follows x and the error
vanishes. W is symmetric, so the mean is conserved. A worker holds one copy per neighbour. Moments are not exchanged.
``neighbour_copies.py`` keeps the copies, here and in ``dpsgd`` with a compressor, which makes the same exchange: this is
its plain form, with a ``gamma`` to set.

C must be a contraction, |C(v) - v|^2 <= (1 - delta) |v|^2. An unbiased compressor of variance omega becomes one when its
output is scaled by delta = 1 / (1 + omega).

When the members change (and at the start) every worker sends its x whole, once: h = x.
Paper: Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with compressed
communication"; Koloskova et al. 2020, "Decentralized deep learning with arbitrary communication compression".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.specs import check_share
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_copies import NeighbourCopies
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState
from taut.topologies.mixing import row_of

if TYPE_CHECKING:
    from taut.topologies.shape import Shape


@dataclass(kw_only=True)
class ChocoState(NeighbourState):
    copies: NeighbourCopies


@dataclass(frozen=True)
class Choco(NeighbourRounds[ChocoState]):
    """``--strategy choco --topology ring --codec topk:density=0.01``, or any other compressor. ``gamma``: how far to go
    towards the neighbours' copies, above 0 and up to 1. 0: twice the stated delta, but no more than it is on normal
    numbers. Too much makes the errors of the copies grow: in probes (ring of 8) 2 to 4 times delta was best for top-k
    and 10 times diverged, and random-k diverged at twice."""

    name = "choco"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=("ring", "torus")),), coded_kinds=("x",))
    paper = "Koloskova et al. 2019"
    codecs = ("topk", m.ANY_COMPRESSOR)
    gamma: float = 0.0

    def __post_init__(self) -> None:
        if self.gamma != 0.0:
            check_share(self, "gamma")

    def start(self, membership: m.Membership, local: m.Local) -> ChocoState:
        self.check_shape(membership.shape, len(membership.members))
        if local.coder is None:
            raise Misuse("choco without a compressor", "a codec that is one", "try --codec topk:density=0.01")
        return ChocoState(local=local, membership=membership, copies=NeighbourCopies(local.coder, alike=True))

    def check_shape(self, shape: Shape, workers: int) -> None:
        if shape.varies:
            expected = "a topology that stays the same, as neighbours keep copies of each other"
            raise Misuse(f"choco on {shape.name}", expected, "try --topology ring, torus or exponential:directed=no")

    def send(self, state: ChocoState) -> list[m.MethodAction]:
        return state.copies.tell(state, self.receivers(state), [state.local.x])

    def check(self, state: ChocoState, heard: m.Heard) -> None:
        state.copies.check(heard, state.local)

    def merge(self, state: ChocoState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        row = row_of(state.membership.graph(), state.membership.rank, "metropolis")
        state.copies.mix([state.local.x], row, heard, self.gamma or state.copies.coder.pace)

    def restart(self, state: ChocoState) -> None:
        state.copies.restart()
