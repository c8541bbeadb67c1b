"""Copies that neighbours keep of each other's vectors, kept up with by what a codec writes of the changes.

    q_ij = Q(x_i - h_ij);      h_ij  <-  h_ij + d q_ij                  at worker i, and at its neighbour j
    x_i  <-  x_i + gamma sum_j W_ij (h_ji - h_ij)                       W doubly stochastic

h_ij is what j has of x_i, the same bits at both. What q leaves out is in the next difference, so that h follows x. Each
change of x_i has its opposite at a neighbour, made of the same floats: the mean over all workers is conserved. Where all
neighbours hear every round, they have the same copy of x_i, and one payload goes to all (CHOCO's public copy). Where
partners differ from round to round, each pair has its own: memory for two vectors per partner.

gamma is ``VectorCoder.pace``, d is ``VectorCoder.damping``. With gamma = 1 and h = x this is plain averaging. CHOCO's
theory is of one symmetric W. Where edges have directions, or partners vary, a codec that states no bound (``sign``,
``onebit``, ``powersgd``, ``terngrad``) diverged at gamma = pace in probes of 8 workers and 400 elements, and not at half
of it: there it is a quarter.

The first message to a neighbour is x whole (kind *whole*), and again after the members have changed: messages under way
were dropped then. No copy is needed of a neighbour that is gone.

Papers: Koloskova, Stich, Jaggi 2019 (CHOCO); Taheri et al. 2020, "Quantized decentralized stochastic learning over
directed graphs" (push-sum); Zhao et al. 2022, "BEER" (of x and of the tracked gradient).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies import api as m
from taut.strategies.delivery.copies import HeldCopy, SentCopies, Written, shortens
from taut.strategies.gossip.neighbour_rounds import NeighbourState, check_finite, tell_all

WHOLE = "whole"
CAREFUL = 0.25  # of the pace
ALL = -1  # the receiver for which the copy is kept that all neighbours have alike


@dataclass
class NeighbourCopies:
    """One worker's side. ``alike``: all neighbours have the same copy. ``vectors``: how many of one length, of each
    worker. ``symmetric``: W is, and is the same in every round."""

    coder: m.VectorCoder
    alike: bool
    vectors: int = 1
    symmetric: bool = True
    sent: SentCopies = field(default_factory=lambda: SentCopies(0))
    held: dict[int, list[HeldCopy]] = field(default_factory=dict)
    _told: list[int] = field(default_factory=list)  # whose copies have moved in this round

    @property
    def gamma(self) -> float:
        """Return the share of the way towards the neighbours' copies."""
        return self.coder.pace if self.symmetric or self.coder.bounded else CAREFUL * self.coder.pace

    def tell(
        self, state: NeighbourState, receivers: Sequence[int], vectors: Sequence[m.Vector], numbers: Sequence[float] = ()
    ) -> list[m.MethodAction]:
        """Return this round's messages, each with the lengths of its parts, if there are several, and ``numbers``."""
        actions: list[m.MethodAction] = []
        self._told = [ALL] if self.alike else list(receivers)
        for key in self._told:
            parts = self._written(key, vectors)
            lengths = [float(len(part.payload)) for part in parts[1:]]
            payload, kind = b"".join([part.payload for part in parts]), WHOLE if parts[0].whole else "x"
            to = receivers if self.alike else [key]
            actions += tell_all(state, to, payload, [*numbers, *lengths], kind)
        return actions

    def _written(self, key: int, vectors: Sequence[m.Vector]) -> list[Written]:
        parts = [self.sent.follow((key, n), x, self.coder) for n, x in enumerate(vectors)]
        if len({part.whole for part in parts}) > 1:  # the change of one is not finite
            self.sent.forget([(key, n) for n in range(len(vectors))])
            parts = [self.sent.follow((key, n), x, self.coder) for n, x in enumerate(vectors)]
        return parts

    def shown(self, receiver: int, n: int = 0) -> m.Vector:
        """Return what the receiver has of this worker's vector ``n``."""
        return self.sent.copy((ALL if self.alike else receiver, n))

    def parts(self, heard: m.Heard) -> list[bytes]:
        """Return the payload's parts, one for each vector."""
        more = self.vectors - 1
        lengths = heard.note.numbers[-more:] if more else []
        if len(lengths) != more or not all(0 <= length < 2**53 and length == int(length) for length in lengths):
            raise MalformedMessage(f"the lengths {lengths} of {more} parts more")
        first = len(heard.payload) - int(sum(lengths))
        if first < 0:
            raise MalformedMessage(f"parts of {lengths} bytes in a message of {len(heard.payload)}")
        ends = accumulate([first, *(int(length) for length in lengths)], initial=0)
        return [heard.payload[lo:hi] for lo, hi in pairwise(ends)]

    def check(self, heard: m.Heard, local: m.Local) -> None:
        """Raise ``MalformedMessage`` unless the message can be read."""
        for part in self.parts(heard):
            if heard.note.kind != WHOLE:
                self.coder.check(part, local.x.size)
            elif len(part) != local.x.nbytes:
                raise MalformedMessage(f"a vector of {len(part)} bytes; for this model it would have {local.x.nbytes}")
        if heard.note.kind == WHOLE:
            check_finite(heard)

    def read(self, heard: m.Heard, nbytes: int) -> list[m.Vector]:
        """Take a message over, which was checked; return the copies of the sender's vectors, which are not to be changed.
        There are none if the message is a change of what was refused."""
        whole = heard.note.kind == WHOLE
        if whole:
            self.held[heard.sender] = [HeldCopy() for _ in range(self.vectors)]
        held = self.held.get(heard.sender, [])
        written = [Written(part, 1.0, whole) for part in self.parts(heard)]
        return [copy.read(part, nbytes, self.coder) for copy, part in zip(held, written, strict=False)]

    def mix(self, vectors: Sequence[m.Vector], row: Mapping[int, float], heard: Sequence[m.Heard], gamma: float) -> None:
        """Take the round's messages over, and move the vectors by ``gamma`` times what averaging would move them.
        ``row``: this worker's of the mixing matrix."""
        theirs = {one.sender: self.read(one, vectors[0].nbytes) for one in heard}
        for n, mine in enumerate(vectors):
            for other, copies in sorted(theirs.items()):
                if copies:
                    mine[:] += np.float32(gamma * row[other]) * (copies[n] - self._own(other, n, mine))

    def _own(self, other: int, n: int, x: m.Vector) -> m.Vector:
        """Return the copy to compare the neighbour's with: the one that it has of this worker's vector. If its edge has
        a direction, it may have none: then the mean of those that this round's receivers have."""
        keys = [key for key in self._told if key == other] or self._told
        copies = [self.sent.copy((key, n)) for key in keys]
        return x if not copies else copies[0] if len(copies) == 1 else np.mean(copies, axis=0, dtype=np.float32)

    def restart(self) -> None:
        """Forget all copies: the members have changed."""
        self.sent.copies.clear()
        self.held.clear()
        self._told = []


def copies_for(membership: m.Membership, local: m.Local, vectors: int = 1, alike: bool = True) -> NeighbourCopies | None:
    """Return the copies of a worker whose codec shortens vectors; None if it has none such. ``alike``: in each round all
    neighbours hear the same, as far as the method goes; where the topology varies they do not."""
    coder = shortens(local.coder)
    if coder is None:
        return None
    alike = alike and not membership.shape.varies
    return NeighbourCopies(coder, alike, vectors, symmetric=alike and not membership.graph().directed)
