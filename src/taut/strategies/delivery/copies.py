"""A vector that goes to the same receiver again and again, as a codec writes what has changed since the last time.

    sender      q = Q(x - y);    y  <-  y + d q          y: what the receiver has
    receiver                     y  <-  y + d q          the same bits

d = 1, below that for a codec without bias (``VectorCoder.damping``). What q leaves out is in the next difference, so that
y follows x and nothing is lost (EF21; for the way back from a server, DoubleSqueeze).

A *stamp* names a state of y. The receiver says which one it has (0: none), the sender which one its message makes of it.
If that is not the one that the sender knows of, it sends x whole: after a start, a death, a move, or an answer that came
too late. So no side ever has to be told what the other one lost. Where all messages arrive, in order, and none is taken
for another (``follow``), the sender knows what the receiver has, and stamps need not travel.
Papers: Tang et al. 2019, "DoubleSqueeze"; Richtarik et al. 2021, "EF21".
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.local import Vector, VectorCoder

RANKS = 1 << 16  # stamps of different senders differ
PLAIN_BITS = 32.0


def shortens(coder: VectorCoder | None) -> VectorCoder | None:
    """Return the codec, if what it writes of a vector is shorter than float32; with one that leaves nothing out a run is
    as with none.

    >>> shortens(None)
    """
    return coder if coder is not None and coder.bits < PLAIN_BITS else None


class Written(NamedTuple):
    """A message about a vector: ``stamp``: of what the receiver has then; ``whole``: it is the vector itself."""

    payload: bytes
    stamp: float
    whole: bool


@dataclass
class SentCopies:
    """What each receiver has, as its sender, worker ``rank``, knows."""

    rank: int
    copies: dict[Hashable, tuple[float, Vector]] = field(default_factory=dict)
    serial: int = 0

    def write(self, receiver: Hashable, has: float, x: Vector, coder: VectorCoder) -> Written:
        """Return what to send of x to a receiver that has the state ``has``."""
        self.serial += 1
        stamp = float(self.serial * RANKS + self.rank % RANKS)
        known, copy = self.copies.get(receiver, (0.0, x))
        difference = x - copy if known and known == has else None
        if difference is None or not np.isfinite(difference).all():  # a receiver refuses what is not finite
            self.copies[receiver] = (stamp, x.copy())
            return Written(x.tobytes(), stamp, True)
        payload = coder.difference(difference)
        coder.add(payload, copy, coder.damping)
        self.copies[receiver] = (stamp, copy)
        return Written(payload, stamp, False)

    def follow(self, receiver: Hashable, x: Vector, coder: VectorCoder) -> Written:
        """Return what to send of x to a receiver that reads all that was written for it, in order."""
        return self.write(receiver, self.copies.get(receiver, (0.0, x))[0], x, coder)

    def copy(self, receiver: Hashable) -> Vector:
        """Return what the receiver has. Not to be changed."""
        return self.copies[receiver][1]

    def forget(self, receivers: Iterable[Hashable]) -> None:
        for receiver in receivers:
            self.copies.pop(receiver, None)


@dataclass
class HeldCopy:
    """What a receiver has of one sender's vector.

    >>> from taut.codecs import parse
    >>> from taut.codecs.vector_codec import VectorCodec
    >>> sender, receiver, coder = SentCopies(0), HeldCopy(), VectorCodec(parse("topk:density=0.25"), 4)
    >>> for x in ([0, 0, 0, 0], [1, 2, 3, 4], [1, 2, 3, 4]):
    ...     x = np.float32(x)
    ...     sent = sender.write(7, receiver.stamp, x, coder)
    ...     print(sent.whole, receiver.read(sent, x.nbytes, coder).tolist())
    True [0.0, 0.0, 0.0, 0.0]
    False [0.0, 0.0, 0.0, 4.0]
    False [0.0, 0.0, 3.0, 4.0]
    """

    stamp: float = 0.0
    x: Vector | None = None

    def read(self, sent: Written, nbytes: int, coder: VectorCoder) -> Vector:
        """Take a message over; return the copy, which is not to be changed. Raise ``MalformedMessage``, and change
        nothing, if it is no such message."""
        if sent.whole:
            if len(sent.payload) != nbytes:
                raise MalformedMessage(f"a vector of {len(sent.payload)} bytes; here it has {nbytes}")
            x = np.frombuffer(sent.payload, np.float32).copy()
            if not np.isfinite(x).all():
                raise MalformedMessage("a vector with numbers that are not finite")
            self.x = x
        else:
            if self.x is None:
                raise MalformedMessage("a difference from a vector that is not here")
            coder.check(sent.payload, len(self.x))
            coder.add(sent.payload, self.x, coder.damping)
        self.stamp = sent.stamp
        return self.x
