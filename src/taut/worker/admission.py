"""Being admitted to a run: from the first word to the run's state, for one place in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from taut.core.messages import PROTOCOL_VERSION, Hello, Ready, Statistics, Welcome
from taut.worker.arena import Arena
from taut.worker.checkpoints.resumption import Resumption
from taut.worker.entrance import Entrance
from taut.worker.node.node import Node
from taut.worker.node.stage import Protocol
from taut.worker.phases import Phases
from taut.worker.returning import Carried
from taut.worker.state import unpack


class Admission:
    """``node`` and ``phases`` belong to this place, and end with it. ``state`` is as the supervisor knows it; ``merged``:
    the run's state is in the model. ``codec``: the script's wish; ``statistics``: what was done here."""

    phases: Phases
    welcome: Welcome
    resumption: Resumption | None = None  # the checkpoint that the run continues, if it does
    late = False  # it comes in mid-run, and the strategy gives it the state when it starts

    def __init__(self, entrance: Entrance, arena: Arena, codec: str | None, statistics: Callable[[], Statistics]) -> None:
        self._entrance, self.arena, self._codec, self._statistics = entrance, arena, codec, statistics
        self.settings: dict[str, Any] = {}
        self.state, self.merged = "joining", False
        state_nbytes = 4 * arena.size + len(arena.still_bytes())
        self.node: Node = entrance.node(
            self._strategy,
            statistics=self._count,
            sketch=self._sketch,
            state_limit_nbytes=8 * state_nbytes + (256 << 20),
        )

    def ask(self, was: int) -> None:
        """Until the supervisor says welcome; ``was``: the rank of this process at its last place, or -1."""
        node, entrance = self.node, self._entrance
        who = (entrance.host, entrance.pid, was)
        hello = Hello(PROTOCOL_VERSION, self.arena.specs(), entrance.address, entrance.public_key, *who)
        node.say(hello)
        node.wait(lambda facts: facts.welcome is not None, _nothing, again=lambda: node.say(hello))
        assert node.facts.welcome is not None
        self.welcome = node.facts.welcome
        self.settings = json.loads(self.welcome.settings)
        node.supervisor.patience_s = float(self.settings.get("patience_s", node.supervisor.patience_s))
        self.resumption = self._resumed()
        self.phases.begin(node, entrance.watch)

    def take_over(self, carried: Carried | None) -> None:
        """The run's state: a donor's, with what was ``carried`` from another place, or, of the founder, its own."""
        node, replica = self.node, self.phases.replica
        if self.late:
            self.phases.talk.lacks_state = True
            node.synced({}, ())
            return
        node.wait(lambda facts: facts.donor == -1 or facts.state is not None, _nothing)
        if node.facts.state is None:
            self._found()
        else:
            data, have = node.facts.state
            state = unpack(data)
            node.facts.state = None  # its bytes are in the model now
            tail = list(state.tail)
            if carried is not None:
                tail += carried.merge(replica, state, have, self.gone())
                have = {**have, **{item.origin: item.hi for item in tail}}
            else:
                replica.join(state, self._workers)
            if self.resumption is not None:
                self.resumption.joined(replica, self._workers)
            self.phases.talk.joined(have)
            node.synced(have, tail)
        self.merged = True
        self.get_ready()

    def get_ready(self) -> None:
        """Tell the others to count on this worker."""
        if self.state == "joining":
            self.state = "ready"
            self.node.say(Ready())

    def gone(self) -> list[int]:
        """Who is, of those that ever were in the run."""
        roster = self.node.facts.roster
        return [] if roster is None else [each.rank for each in roster.gone]

    @property
    def _workers(self) -> int:
        return max(1, self.welcome.workers)

    def _found(self) -> None:
        if self.resumption is not None:
            self.resumption.founded(self.phases.replica, self._workers)
        else:
            self.phases.replica.found(self._workers)
        self.node.synced({}, ())

    def _resumed(self) -> Resumption | None:
        resumed = self.settings.get("resume")
        if resumed is None or self.node.rank >= self.welcome.workers:
            return None  # who joins in mid-run takes what any joiner does
        return Resumption(Path(resumed["folder"]), self.node.rank, self._workers, self.phases.choice)

    # ------------------------------------------------------------------ asked for by the communication thread

    def _strategy(self, welcome: Welcome) -> Protocol:
        """What it runs from the welcome on."""
        self.phases = Phases(json.loads(welcome.settings), self.arena, self._codec)
        self.late = welcome.started and self.phases.hands_over
        self.node.handover.fetches = not self.late
        return self.phases.protocol()

    def _count(self) -> Statistics:
        return self._statistics() if self.merged else Statistics()

    def _sketch(self) -> list[float]:
        replica = getattr(self.phases, "replica", None) if hasattr(self, "phases") else None
        return replica.sketch if replica is not None else []


def _nothing() -> None:
    pass
