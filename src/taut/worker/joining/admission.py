"""Being admitted to a run under one rank: from the first word to the run's state.

A run in phases does not wait for a worker that is only joining. Where it goes on to another phase before this worker is
ready, the supervisor names that as the worker's first one, in a roster. The communication thread begins anew in it at
once, so that the others find this worker there; the training thread follows when it comes by (``passed``), and what it
has taken over of the previous phase until then is dropped: no other worker has it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taut.codecs.kernels.cpu.compilation import compile_missing
from taut.core.callbacks import do_nothing
from taut.core.messages import PROTOCOL_VERSION, Hello, Ready, Statistics, Welcome
from taut.worker.checkpoints.resume import Resumption, resumption
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.phase_protocols import PhaseProtocol, Protocol
from taut.worker.joining.connection import Connector
from taut.worker.joining.rejoin import RejoinState
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.platform import platform_of
from taut.worker.model.snapshot import unpack
from taut.worker.phases import Phases

if TYPE_CHECKING:
    from taut.worker.joining.island_member import IslandMember


class JoinHandshake:
    """Joins a run once. ``comm`` and ``phases`` belong to the rank that the worker gets, and end with it. ``state`` is as
    the supervisor knows it; ``merged``: the run's state is in the model. ``codec``: the script's wish; ``statistics``: of
    this worker; ``member``: of an island, if it is one."""

    phases: Phases
    welcome: Welcome
    _protocol: PhaseProtocol  # in which it takes the run's state
    resumption: Resumption | None = None  # the checkpoint that the run continues, if it does
    late = False  # it comes in mid-run, and the strategy gives it the state when it starts

    def __init__(
        self,
        connector: Connector,
        params: FlatParams,
        codec: str | None,
        statistics: Callable[[], Statistics],
        member: IslandMember | None = None,
    ) -> None:
        self._member = member
        self._connector, self.params, self._codec, self._statistics = connector, params, codec, statistics
        self.settings: dict[str, Any] = {}
        self.state, self.merged = "joining", False
        state_nbytes = 4 * params.size + len(params.still_bytes())
        self.comm: CommThread = connector.comm(
            self._strategy, statistics=self._count, sketch=self._sketch, state_limit_nbytes=8 * state_nbytes + (256 << 20)
        )

    def ask(self, was: int) -> None:
        """Say hello until the supervisor says welcome; ``was``: the rank of this process before, or -1."""
        comm, connector = self.comm, self._connector
        hello = Hello(
            PROTOCOL_VERSION,
            self.params.specs(),
            connector.address,
            connector.public_key,
            connector.host,
            connector.pid,
            was,
            platform_of(self.params),
            self.params.digest(),
        )
        comm.say(hello)
        comm.wait(lambda status: status.welcome is not None, do_nothing, again=lambda: comm.say(hello))
        assert comm.status.welcome is not None
        self.welcome = comm.status.welcome
        self.settings = json.loads(self.welcome.settings)
        comm.supervisor.patience_s = float(self.settings.get("patience_s", comm.supervisor.patience_s))
        compile_missing(self.phases.kernels(), _say)
        self._begin()
        self.resumption = self._resumed()

    def take_over(self, carried: RejoinState | None) -> None:
        """Take over the run's state: a donor's, with what was ``carried`` from an earlier rank, or the founder's own."""
        comm = self.comm
        while True:
            while self.passed:
                self._move_on()
            if self.late:
                self.phases.exchange.lacks_state = True
                comm.synced(self._protocol, {}, ())
                return
            comm.wait(lambda status: status.founds or status.state is not None or self.passed, do_nothing)
            came = comm.status.state
            if not self.passed and (came is not None or comm.status.founds):
                break
        if came is None:
            self._found()
        else:
            with comm.status.changed:
                if comm.status.state is came:  # else it is another phase's by now
                    comm.status.state = None  # its bytes are in the model soon
            self._join(*came, carried)
        self.merged = True
        self.get_ready()

    def _join(self, data: memoryview, have: dict[int, int], carried: RejoinState | None) -> None:
        replica, state = self.phases.replica, unpack(data)
        tail = list(state.tail)
        if carried is not None and carried.phase == self.phases.number:
            tail += carried.merge(replica, state, have, self.gone())
            have = {**have, **{item.origin: item.hi for item in tail}}
        else:
            replica.join(state, self._workers)
        if self.resumption is not None:
            self.resumption.joined(replica, self._workers)
        self.phases.exchange.joined(have)
        self.comm.synced(self._protocol, have, tail)
        self.phases.joined(state)

    @property
    def passed(self) -> bool:
        """Return whether the run has gone on to another phase before this worker was ready: it is to begin there."""
        return self.comm.phase_protocol.phase != self._protocol.phase

    def _begin(self) -> None:
        self._protocol = self.comm.phase_protocol
        self.phases.enter(self._protocol.phase)
        self.late = self.phases.hands_over(self.phases.number) and (self.welcome.started or self.phases.number > 0)
        self.phases.begin(self.comm, self._connector.watch)

    def _move_on(self) -> None:
        self.phases.exchange.abandon()
        self.state, self.merged = "joining", False
        self.resumption = None  # of another phase: it takes what any joiner does
        self._begin()

    def get_ready(self) -> None:
        """Tell the others to count on this worker."""
        if self.state == "joining":
            self.state = "ready"
            self.comm.say(Ready(self.phases.number))

    def gone(self) -> list[int]:
        """Return the ranks of those who were in the run, and are gone."""
        roster = self.comm.status.roster
        return [] if roster is None else [each.rank for each in roster.gone]

    @property
    def _workers(self) -> int:
        return max(1, self.welcome.workers)

    def _found(self) -> None:
        if self.resumption is not None:
            self.resumption.founded(self.phases.replica, self._workers)
        else:
            self.phases.replica.found(self._workers)
        self.comm.synced(self._protocol, {}, ())

    def _resumed(self) -> Resumption | None:
        resumed = self.settings.get("resume")
        if resumed is None or self.comm.rank >= self.welcome.workers or self.phases.number:
            return None  # who joins in mid-run takes what any joiner does
        rank = self.comm.rank if self._member is None else self._member.file_under(self.comm.rank)
        return resumption(resumed, rank, self._workers, self.phases.choice, self.params, self._member)

    # ------------------------------------------------------------------ asked for by the communication thread

    def _strategy(self, welcome: Welcome) -> Protocol:
        """Return what the communication thread runs; asked again where the run has gone on to another phase."""
        if not hasattr(self, "phases"):
            settings = json.loads(welcome.settings)
            if settings.get("link"):
                self._connector.limit(self.comm, settings["link"])  # before any other worker is known
            self.phases = Phases(settings, self.params, self._codec)
            self.phases.growths = welcome.growths
            self.phases.enter(welcome.phase)
        self.comm.transfer.fetches = not (welcome.started and self.phases.hands_over(welcome.phase))
        return self.phases.protocol(welcome.phase)

    def _count(self) -> Statistics:
        return self._statistics() if self.merged else Statistics()

    def _sketch(self) -> list[float]:
        return self.phases.replica.sketch if hasattr(self, "phases") and self.phases.begun else []


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
