"""What one worker keeps in a run with parameter servers (``server.py``): as a client, and for shards that it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from taut.strategies.method import Heard, Local, Place
from taut.strategies.server_ending import ServerEnding
from taut.strategies.shard import Shard

if TYPE_CHECKING:
    from taut.strategies.method import Vector


@dataclass
class Pulling:
    """A pull of one shard that is under way. ``mark``: the worker's x as of the last push before it, so that the
    difference to x is what the answer does not contain. ``answer``: what came."""

    asked: int
    mark: Vector
    answer: Vector | None = None


@dataclass
class Serving:
    """A worker's state. ``base``: x as of its last push; ``holders``: who holds which shard; ``shards``: those that this
    worker holds itself."""

    local: Local
    place: Place
    base: Vector
    holders: list[int]
    ending: ServerEnding
    shards: dict[int, Shard] = field(default_factory=dict)
    heirs: dict[int, int] = field(default_factory=dict)  # of this worker, which leaves: who gets which of them
    pulling: dict[int, Pulling] = field(default_factory=dict)
    early: list[Heard] = field(default_factory=list)  # for a shard that this worker is about to take over
    steps: int = 0
    unpushed: int = 0  # steps since the last push
    rate: float = 0.0
    draining: bool = False
    finished: bool = False
    pushes: int = 0
    pulls: int = 0
    elections: int = 0
