"""The supervisor's one thread: it owns the socket and the store, and drives the cluster's state machine."""

from __future__ import annotations

import math
import threading
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from taut.core.clock import Clock
from taut.core.failure_detector import HEARTBEAT_S
from taut.core.messages import WorkerMessage
from taut.errors import MalformedMessage, Superseded
from taut.supervisor.control import Control, ThreadCalls
from taut.supervisor.data.progress import progress
from taut.supervisor.run import actions as act
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.send_queue import SendQueue
from taut.supervisor.storage.background_files import BackgroundFiles
from taut.supervisor.storage.journal import Journal, Persistence
from taut.supervisor.storage.run_lock import RunLock
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import ClusterView
from taut.transport.framing import decode
from taut.transport.transport import Announcer, ServerSocket

TICK_S = 0.1
LATE_S = 1.0  # a tick this late means that the process was stopped, asleep or busy with the model
LINGER_S = 0.5
PROGRESS_EVERY_S = 1.0  # in the store


@dataclass(kw_only=True)
class Loop:
    """The thread's state. ``over`` is set when there is an outcome, ``view`` is the run as of a moment ago: any
    thread may read those, set ``stopping``, and add ``calls``. ``announcer``: only if this supervisor came back at
    another address."""

    clock: Clock
    socket: ServerSocket
    cluster: Cluster
    journal: Journal
    persistence: Persistence
    files: BackgroundFiles
    calls: ThreadCalls
    control: Control
    lock: RunLock
    announcer: Announcer | None = None
    over: threading.Event = field(default_factory=threading.Event)
    stopping: bool = False
    closed: bool = False
    superseded: bool = False  # another supervisor took over while this one was away

    def __post_init__(self) -> None:
        now = self.clock.now()
        self._send_queue = SendQueue(self.socket)
        self._outgoing: deque[act.SendMessage] = deque()  # to be sent at the end of the round
        self._ticked_s = self._viewed_s = now
        self._compared_s, self._distance = now, 0.0
        self._progress_s, self._state = -math.inf, self.cluster.state
        self.view = self._look(now)

    def serve(self) -> None:
        """Serve until ``stopping``."""
        try:
            heard_s = self.clock.now()
            while not self.stopping:
                arrived = self.socket.receive(TICK_S)
                now = self.clock.now()
                if now - heard_s > LATE_S:
                    self.cluster.paused(now - heard_s, now)
                heard_s = now
                self._round(arrived, now)
        except Superseded as error:
            self.journal.superseded(str(error), self.clock.now())
            self.superseded = self.closed = True  # no worker is told: the run is the other supervisor's
            self.over.set()
            self.files.close()
            self.socket.close(0.0)
            self.journal.close()
            self.lock.release()
        except Exception as error:  # a bug of ours: no worker may wait for ever for a dead thread
            now = self.clock.now()
            self.journal.record("error", traceback.format_exc(), now)
            self._carry_out(self.cluster.stop(f"the supervisor failed: {error!r}", now), now)
            self._tell(now)
        finally:
            self.close()

    def close(self) -> None:
        """End now: a run that is not over fails, and its workers are told. For ``serve``, or if that never began."""
        if self.closed:
            return
        self.closed = True
        self.files.close()
        self.files.clear()
        now = self.clock.now()
        self._carry_out(self.cluster.stop("the run was stopped", now), now)
        self._tell(now)
        self.view = self._look(now)
        self.over.set()
        self.socket.close(LINGER_S)
        if self.announcer is not None:
            self.announcer.close()
        self.journal.close()
        self.lock.release()

    def _round(self, arrived: Iterable[tuple[bytes, list[bytes]]], now: float) -> None:
        for connection, frames in arrived:
            self._carry_out(self._heard(connection, frames, now), now)
        for connection in self.socket.take_closed():
            self.cluster.closed(connection, now)
        while self.socket.orders:
            connection, frames = self.socket.orders.popleft()
            answer, actions = self.control.obey(frames, now)
            self._carry_out(actions, now)
            self.socket.send(connection, answer)
        for call in self.calls.take():
            self._carry_out(call(now), now)
        if now - self._ticked_s >= TICK_S / 2:
            self._ticked_s = now
            self._tick(now)
        self._tell(now)
        if now - self._viewed_s >= TICK_S:
            self._viewed_s, self.view = now, self._look(now)
            if now - self._progress_s >= PROGRESS_EVERY_S or self.cluster.state != self._state:
                self._keep_progress(now)

    def _keep_progress(self, now: float) -> None:
        """Write the view's progress to the store."""
        self._progress_s, self._state = now, self.cluster.state
        self.journal.write(now, partial(StoreWriter.progressed, view=self.view))

    def _heard(self, connection: bytes, frames: list[bytes], now: float) -> list[act.Action]:
        try:
            message, payloads = decode(frames, WorkerMessage)
        except MalformedMessage as error:
            return self.cluster.malformed(connection, str(error), now)
        try:
            return self.cluster.heard(connection, message, payloads, now)  # type: ignore[arg-type]  # of this family
        except Exception:  # a bug of ours on one worker's message must not end the run
            return self.cluster.mishandled(connection, message, traceback.format_exc(), now)

    def _tick(self, now: float) -> None:
        self._carry_out(self.cluster.tick(now), now)
        for connection, excess in self.socket.take_excess().items():
            self._carry_out(self.cluster.flooded(connection, excess, now), now)
        self._send_queue.retry(self._reachable)
        self.persistence.now_and_then(now)
        self._knock()
        if not self.lock.taken and self.lock.try_take():  # the previous supervisor is gone now
            self.lock.say("supervising")

    def _reachable(self, connection: bytes) -> bool:
        worker = self.cluster.members.find(connection)
        return worker is not None and (worker.live or worker.expelled)

    def _knock(self) -> None:
        if self.announcer is not None:
            self.announcer.announce(self.socket.address, self.cluster.term, sorted(self.cluster.admission.awaited))
            if not self.cluster.recovering:
                self.announcer.close()
                self.announcer = None

    def _carry_out(self, actions: Iterable[act.Action], now: float) -> None:
        for action in actions:
            match action:
                case act.SendMessage():
                    self._outgoing.append(action)
                case act.Record(kind, text):
                    self.journal.record(kind, text, now)
                case act.Kept():
                    self._keep(action, now)
                case act.ExpectModel():
                    self.files.expect_model()
                case act.Save() | act.TakeModel() | act.SaveIndex() | act.SaveCheckpoint() | act.DropCheckpoint():
                    self.files.write(action)
                case act.RunFinished(outcome):
                    self.view = self._look(now)
                    self._keep_progress(now)
                    self.journal.finished(outcome, now)
                    self.over.set()

    def _keep(self, action: act.Kept, now: float) -> None:
        """Write what an action asks to keep into the store."""
        match action:
            case act.Joined(rank, host, pid):
                self.journal.write(now, partial(StoreWriter.joined, rank=rank, host=host, pid=pid))
            case act.Paused(rank, paused):
                self.journal.write(now, partial(StoreWriter.paused, rank=rank, paused=paused))
            case act.Departed(rank, reason):
                self.journal.write(now, partial(StoreWriter.departed, rank=rank, reason=reason))
            case act.KeepStatistics(rank, statistics, final):
                self.journal.write(now, partial(StoreWriter.measured, rank=rank, statistics=statistics, final=final))
            case act.KeepMetrics(rank, points):
                self.journal.write(now, partial(StoreWriter.logged, rank=rank, points=points))
            case act.KeepImage(rank, step, name, png):
                self.journal.write(now, partial(StoreWriter.pictured, rank=rank, step=step, name=name, png=png))
            case act.KeepHostUse(host, use):
                self.journal.write(now, partial(StoreWriter.host_used, host=host, use=use))

    def _tell(self, now: float) -> None:
        """Send the messages of this round, after writing down all state that must not be lost."""
        while True:
            self.persistence.ahead(now)
            letters, self._outgoing = self._outgoing, deque()
            for send in letters:
                if not self._send_queue.send(send.connection, send.message, send.payloads):
                    self._carry_out(self.cluster.unreachable(send.connection, now), now)
            if not self._outgoing:
                return

    def _look(self, now: float) -> ClusterView:
        cluster = self.cluster
        rows = cluster.members.rows(now)
        made = [row.statistics for row in rows if row.state != "gone"]
        passes = progress(cluster.leases, cluster.lease_server.epochs, made)
        started_s = cluster.ledger.started_s
        return ClusterView(
            run=cluster.plan.run,
            state=cluster.state,
            expected=cluster.lifecycle.expected,
            workers=rows,
            consensus=self._apart(now),
            epoch=passes.epoch,
            samples_done=passes.done,
            samples_total=passes.total,
            events=tuple(self.journal.events),
            wall_s=now - self.journal.began_s,
            train_s=0.0 if started_s is None else now - started_s,
            wanted=cluster.lifecycle.needed,
            epochs=passes.epochs,
            samples_trained=passes.trained,
            samples_left=passes.left,
            unit=passes.unit,
            rate=cluster.ledger.rate,
            slack=cluster.ledger.slack,
            tethered=cluster.plan.tethered,
        )

    def _apart(self, now: float) -> float:
        """Return the distance between replicas, by heartbeat: comparing a thousand sketches more often takes a core."""
        if now - self._compared_s >= HEARTBEAT_S or self.cluster.outcome is not None:
            self._compared_s, self._distance = now, self.cluster.ending.distance()
        return self._distance
