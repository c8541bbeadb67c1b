"""Elastic averaging: workers train on their own, and are pulled towards a center that follows their mean.

    e  =  a (x_i - c)        x_i <- x_i - e        c <- c + e        every tau steps of worker i, whenever it gets there

So sum_i x_i + c changes by the local steps alone. Workers explore more than with averaging, and none waits for others.
The center is sharded over the members (``center.py``) and is the final model. Exchanged: x one way, c the other; the
optimizer's moments are not exchanged. One more vector per worker (the view of c). With a compressor: forces one way,
changes of c the other (``compressed_center.py``).

**EAMSGD** is this with Nesterov momentum d in the local steps: ``momentum=d`` adds it to a plain SGD (v <- d v + g, step
with g + d v); a script whose optimizer has momentum already runs EAMSGD without it, and must not set it.
Paper: Zhang, Choromanska, LeCun 2015, "Deep learning with Elastic Averaging SGD".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.errors import MalformedMessage, Misuse
from taut.specs import check_from_zero, check_whole
from taut.strategies.api import ANY_COMPRESSOR, Completeness, Local, Membership, StrategyInfo, Tell, Vector
from taut.strategies.delivery.copies import shortens
from taut.strategies.gossip.momentum import check_optimizer
from taut.strategies.server.center import MOST_SHARDS, SHARDS, Center
from taut.strategies.server.center_method import CenterMethod, CenterState
from taut.strategies.server.compressed_center import CompressedCenter, compressed_center

STIFFNESS = 0.9  # the sum of all a, as in the paper's experiments


@dataclass
class Spring:
    """The exchange rule. Holder and worker compute the same e from the same floats, so the sum is conserved."""

    local: Local

    def serve(self, shard: int, center: Vector, values: Vector, number: float) -> Vector:
        """Set c <- c + a (x - c), and return the old c."""
        if not 0.0 < number < 1.0:
            raise MalformedMessage(f"a spring of {number}")
        before = center.copy()
        center += np.float32(number) * (values - center)
        return before

    def take(self, part: slice, answer: Vector, number: float) -> Vector:
        """Set x <- x - a (x - c), and return the new c."""
        x = self.local.x[part]
        e = np.float32(number) * (x - answer)
        x -= e
        return answer + e


@dataclass
class EASGDState(CenterState):
    """A worker's state; ``velocity``: only with ``momentum``."""

    velocity: Vector | None = None


@dataclass(frozen=True)
class EASGD(CenterMethod):
    """``--strategy easgd:every=10``.

    ``every``: tau. ``alpha``: a; 0 means 0.9 / p, p being the number of workers at the moment. ``momentum``: for EAMSGD.
    ``shards``: of the center.

    >>> import numpy as np
    >>> from taut.testing.worlds.method_world import MethodWorld
    >>> world = MethodWorld(EASGD(every=1, alpha=0.5), [np.full(1, 4.0, np.float32), np.full(1, 4.0, np.float32)])
    >>> world.run(3); world.finish()
    >>> [x.tolist() for x in world.vectors()]
    [[4.0], [4.0]]
    """

    name = "easgd"
    info = StrategyInfo(Completeness.SELDOM, short="every=4", coded_kinds=("ask", "moved"))
    codecs = ("dense", ANY_COMPRESSOR)
    paper = "Zhang et al. 2015"
    keeps_own = ("velocity",)

    every: int = 10
    alpha: float = 0.0
    momentum: float = 0.0
    shards: int = SHARDS

    def __post_init__(self) -> None:
        check_whole(self, "every", 1, "10 is the paper's")
        check_from_zero(self, "alpha", remedy="0 means 0.9 / workers")
        check_from_zero(self, "momentum", remedy="try 0.9")
        check_whole(self, "shards", 1, f"{SHARDS} suit any number of workers")
        if self.shards > MOST_SHARDS:
            raise Misuse(
                f"easgd: shards={self.shards}", f"at most {MOST_SHARDS}", f"{SHARDS} serve any number of workers"
            )
        # Only with momentum, since it costs a copy of the gradients.
        object.__setattr__(self, "shapes_gradient", self.momentum > 0.0)

    def check_optimizer(self, optimizer: str, settings: Mapping[str, Any]) -> None:
        if self.momentum:
            check_optimizer(f"easgd:momentum={self.momentum}", optimizer, settings)

    def start(self, membership: Membership, local: Local) -> EASGDState:
        coder = shortens(local.coder)
        center: Center
        if coder is not None:
            center = compressed_center(membership, local, coder, self.shards)
        else:
            center = Center(local, membership, Spring(local), local.x.copy(), self.shards)
        return EASGDState(local, center, velocity=np.zeros_like(local.x) if self.momentum else None)

    def exchange(self, state: EASGDState) -> list[Tell]:
        alpha = self.alpha or STIFFNESS / len(state.center.membership.members)
        center = state.center
        return center.push(alpha) if isinstance(center, CompressedCenter) else center.ask(state.local.x, alpha)

    def shape_gradient(self, state: EASGDState, gradient: Vector, rate: float) -> None:
        """Add Nesterov momentum: v <- d v + g; g <- g + d v."""
        assert state.velocity is not None
        state.velocity *= np.float32(self.momentum)
        state.velocity += gradient
        gradient += np.float32(self.momentum) * state.velocity
