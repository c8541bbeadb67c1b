"""CHOCO-SGD: gossip with compressed messages that still reaches full consensus.

    q_i = C(x_i - h_i);   send q_i to the neighbours;   h_i += q_i, and every neighbour adds it to its copy of h_i
    x_i <- x_i + gamma sum_j W_ij (h_j - h_i)

h_i is the public copy of x_i: the same bits at all neighbours. Only differences from it are compressed (C: the run's
codec, without feedback), and the part that a message omits is in the next difference, so that h follows x and the error
vanishes. W is symmetric, so the mean is conserved. A worker holds one copy per neighbour. Moments are not exchanged.

C must be a contraction, |C(v) - v|^2 <= (1 - delta) |v|^2. An unbiased compressor of variance omega becomes one when its
output is scaled by delta = 1 / (1 + omega).

When the members change (and at the start) every worker sends its x whole, once: h = x.
Paper: Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with compressed
communication"; Koloskova et al. 2020, "Decentralized deep learning with arbitrary communication compression".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from taut.errors import Misuse
from taut.specs import check_share
from taut.strategies import api as m
from taut.strategies.gossip.neighbour_rounds import NeighbourRounds, NeighbourState, check_length, tell_all
from taut.topologies.mixing import row_of

if TYPE_CHECKING:
    from taut.topologies.shape import Shape

WHOLE = "whole"


@dataclass
class ChocoState(NeighbourState):
    """A worker's state. ``copies``: h of itself and of its neighbours, by rank. ``said``: its payload of this round."""

    coder: m.VectorCoder = field(kw_only=True)
    copies: dict[int, m.Vector] = field(default_factory=dict)
    said: bytes | None = None

    def add(self, payload: bytes, copy: m.Vector) -> None:
        self.coder.add(payload, copy, self.coder.damping)


@dataclass(frozen=True)
class Choco(NeighbourRounds[ChocoState]):
    """``--strategy choco --topology ring --codec topk:density=0.01``, or any other compressor. ``gamma``: how far to go
    towards the neighbours' copies, above 0 and up to 1. 0: twice the stated delta, but no more than it is on normal
    numbers. Too much makes the errors of the copies grow: in probes (ring of 8) 2 to 4 times delta was best for top-k
    and 10 times diverged, and random-k diverged at twice."""

    name = "choco"
    info = m.StrategyInfo(m.Completeness.NEIGHBOURS, (m.Variant(topologies=("ring", "torus")),), coded_kind="x")
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
        return ChocoState(local, membership, coder=local.coder)

    def check_shape(self, shape: Shape, workers: int) -> None:
        if shape.varies:
            expected = "a topology that stays the same, as neighbours keep copies of each other"
            raise Misuse(f"choco on {shape.name}", expected, "try --topology ring, torus or exponential:directed=no")

    def send(self, state: ChocoState) -> list[m.MethodAction]:
        receivers = self.receivers(state)
        x, rank = state.local.x, state.membership.rank
        if state.round == 0:
            state.copies[rank] = x.copy()
            payload = x.tobytes() if receivers else b""
            return tell_all(state, receivers, payload, kind=WHOLE)
        state.said = state.coder.difference(x - state.copies[rank])
        return tell_all(state, receivers, state.said)

    def check(self, state: ChocoState, heard: m.Heard) -> None:
        if heard.note.round == 0:
            check_length(heard, state.local)
        else:
            state.coder.check(heard.payload, state.local.x.size)

    def merge(self, state: ChocoState, given: m.Stepped, heard: Sequence[m.Heard]) -> None:
        membership, copies = state.membership, state.copies
        if state.said is not None:
            state.add(state.said, copies[membership.rank])
            state.said = None
        for one in heard:
            if state.round == 0:
                copies[one.sender] = np.frombuffer(one.payload, np.float32).copy()
            elif one.sender in copies:  # else its whole x was refused, and differences are useless
                state.add(one.payload, copies[one.sender])
        row, mine = row_of(membership.graph(), membership.rank, "metropolis"), copies[membership.rank]
        x, step = state.local.x, self.gamma or state.coder.pace
        for other in sorted({one.sender for one in heard if one.sender in copies}):
            x += np.float32(step * row[other]) * (copies[other] - mine)

    def restart(self, state: ChocoState) -> None:
        state.copies.clear()
        state.said = None
