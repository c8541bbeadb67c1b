"""The supervisor as a service: one thread that owns the socket and the store and drives the cluster's state
machine."""

from __future__ import annotations

import json
import platform
import queue
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path

from taut.communication.framing import decode
from taut.communication.keys import RunKeys, write_token_file
from taut.communication.knocking import Knocking
from taut.communication.zmq_server import SupervisorSocket
from taut.core.checkpoints import FOLDER
from taut.core.clock import Clock, MonotonicClock
from taut.core.messages import WorkerMessage
from taut.errors import MalformedMessage, Misuse, StorageFailed, Superseded, TautError
from taut.supervisor.actions import (
    Action,
    Departed,
    DropCheckpoint,
    Finished,
    Joined,
    Measured,
    Record,
    Save,
    SaveCheckpoint,
    SaveIndex,
    Send,
)
from taut.supervisor.ahead import pack
from taut.supervisor.checkpoint_folder import Found, Launch, drop, numbers, remember_launch, write_manifest
from taut.supervisor.cluster import Cluster
from taut.supervisor.control import Control
from taut.supervisor.former import KEYS_FILE, Former, port_of, recall_former
from taut.supervisor.journal import Journal
from taut.supervisor.memory import keep, outline, recall
from taut.supervisor.model_file import write_index, write_model
from taut.supervisor.outlet import Outlet
from taut.supervisor.roll import PATIENCE_S, RunPlan
from taut.supervisor.run_store import RunStore, plain
from taut.supervisor.view import ClusterView, Event, Outcome
from taut.written import parse_interval

TICK_S = 0.1
LATE_S = 1.0  # a tick this late was not ours to choose: the process was stopped, asleep or busy with the model
LINGER_S = 0.5
TOKEN_FILE = "token"
KEEP_CHECKPOINTS = 3
_CLOCK = MonotonicClock()
_PACKAGES = ("taut", "torch", "numpy", "pyzmq", "msgspec", "safetensors")


class Supervisor:
    """Admits workers, deals data, notices deaths, keeps statistics, writes the model.

    ``workers`` is how many the run waits for before it starts. The address and the token are known, and
    workers may connect, from construction on; they are answered after `start`. Raises Misuse for a port
    that is taken and StorageFailed when ``run_dir`` cannot be written. ``former``: its own life before this one
    (``Supervisor.recover``). ``launch``: how workers are started, for who resumes the run; ``resume``: the checkpoint
    that it goes on from.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        run_dir: Path,
        *,
        run: str,
        workers: int,
        seed: int,
        bind: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        clock: Clock = _CLOCK,
        command: str = "",
        former: Former | None = None,
        launch: Launch | None = None,
        resume: Found | None = None,
    ) -> None:
        self._checkpoints = Path(run_dir).absolute() / FOLDER
        plan = _plan(_told(settings, self._checkpoints, resume), run, workers, seed)
        keys = RunKeys.generate() if former is None else former.keys
        self.run_dir, self.token, self.settings = Path(run_dir), keys.token, settings
        self.token_file = self.run_dir / TOKEN_FILE
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(f"{run_dir}: the run's folder could not be made: {error.strerror}") from error
        write_token_file(self.token_file, keys.token)
        write_token_file(self.run_dir / KEYS_FILE, keys.text)
        self._socket = SupervisorSocket(keys, bind=bind, port=port, advertise=advertise)
        self.address, self._bound = self._socket.address, (bind, advertise or "")
        self._clock = clock
        now = clock.now()
        self._began_s = now if former is None else now - max(0.0, time.time() - former.began_at)  # the run did
        try:
            self._journal, term = _journal(
                self.run_dir, run, self._began_s, command, settings, former, resume is not None
            )
        except Superseded:
            self._socket.close()
            raise
        self._launch = remember_launch(self.run_dir, launch)
        self._knocking: Knocking | None = None
        self._superseded = False
        if former is None:
            self._cluster = Cluster(plan, now, term)
        else:
            away_s = max(0.0, time.time() - former.beat)
            self._cluster = recall(plan, former.data, former.term + 1, now, former.ahead, away_s)
            self._journal.record("back", f"the supervisor is back, in its life number {former.term + 2}", now)
            if self.address != former.address:
                self._knocking = Knocking(keys, self._cluster.members.roster().members)
        self._cluster.checkpointing.number = max(numbers(self._checkpoints), default=0)
        if resume is not None:
            self._continue(resume, now)
        self._socket.door.knows = self._cluster.members.has_key
        self._control = Control(self._cluster, self._socket.door, self.run_dir / KEYS_FILE, self._socket.came_with)
        self._outlet = Outlet(self._socket)
        self._letters: deque[Send] = deque()  # to be sent at the end of the round
        self._outline: tuple[object, ...] = ()  # of what was remembered last
        self._orders: queue.SimpleQueue[Callable[[float], list[Action]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._writer: threading.Thread | None = None
        self._completer: threading.Thread | None = None  # of the last checkpoint
        self._stopping, self._closed = False, False
        self._over = threading.Event()
        self._ticked_s = self._viewed_s = now
        self._view = self._look(now)

    @classmethod
    def recover(
        cls, run_dir: Path, *, bind: str | None = None, port: int | None = None, advertise: str | None = None
    ) -> Supervisor:
        """The supervisor of the run in ``run_dir``, which died, comes back: at its old address, or, if ``bind`` or
        ``port`` say so, at another one, which it tells the workers."""
        former = recall_former(Path(run_dir))
        settings = former.settings
        same = port is None and bind is None
        return cls(
            settings,
            Path(run_dir),
            run=former.run,
            workers=int(str(settings["workers"])),
            seed=int(str(settings["seed"])),
            bind=bind or former.bind,
            port=port_of(former.address) if same else port or 0,
            advertise=advertise or (former.advertise if bind is None else None),
            command=former.command,
            former=former,
        )

    def _continue(self, found: Found, now: float) -> None:
        """The run goes on from a checkpoint."""
        manifest = found.manifest
        self._cluster.checkpointing.resume(manifest.steps, manifest.passes, manifest.undone)
        for text in found.damaged:
            self._journal.record("checkpoint", text, now)
        self._journal.record("resumed", f"from checkpoint {manifest.number}, at step {manifest.steps}", now)

    @property
    def superseded(self) -> bool:
        """Another supervisor took over while this one was away."""
        return self._superseded

    def start(self) -> None:
        """Serve, in a thread of its own."""
        assert self._thread is None, "a supervisor starts once"
        self._thread = threading.Thread(target=self._serve, name="supervisor", daemon=True)
        self._thread.start()

    def view(self) -> ClusterView:
        """The run as of a moment ago (a tenth of a second at most). From any thread; costs nothing."""
        return self._view

    def drain(self, reason: str) -> None:
        """End the run in order: workers flush and drain, the model is written. From any thread."""
        self._order(lambda now: self._cluster.drain(reason, now))

    def exited(self, pid: int, reason: str, clean: bool) -> None:
        """The engine saw this process end; ``clean``: with exit code 0. A reason that begins with "killed
        by" is a death that the run survives; any other end that is not clean makes the run's exit code 1.
        From any thread."""
        self._order(lambda now: self._cluster.exited(pid, reason, clean, now))

    def wait(self, timeout_s: float | None) -> Outcome | None:
        """The outcome, or None when there is none in ``timeout_s``. The supervisor answers until `stop`."""
        self._over.wait(timeout_s)
        return self._cluster.outcome if self._over.is_set() else None

    def stop(self) -> None:
        """End now. A run that is not over fails, and its workers are told to stop. Stopping twice is
        harmless."""
        self._stopping = True
        if self._thread is None:
            self._close()
        else:
            self._socket.wake()
            self._thread.join()

    # ------------------------------------------------------------------------- everything below: the thread

    def _serve(self) -> None:
        try:
            heard_s = self._clock.now()
            while not self._stopping:
                arrived = self._socket.receive(TICK_S)
                now = self._clock.now()
                if now - heard_s > LATE_S:
                    self._cluster.paused(now - heard_s, now)
                heard_s = now
                self._round(arrived, now)
        except Superseded as error:
            self._journal.events.append(Event(0, self._clock.now() - self._began_s, "superseded", str(error)))
            self._superseded = self._closed = True  # nobody is told anything: the run is the other's
            self._over.set()
            self._socket.close(0.0)
            self._journal.close()
        except Exception as error:  # a bug of ours: nobody may wait for ever for a thread that is gone
            now = self._clock.now()
            self._journal.record("error", traceback.format_exc(), now)
            self._carry_out(self._cluster.stop(f"the supervisor failed: {error!r}", now), now)
            self._tell(now)
        finally:
            self._close()

    def _round(self, arrived: Iterable[tuple[bytes, list[bytes]]], now: float) -> None:
        for connection, frames in arrived:
            self._carry_out(self._heard(connection, frames, now), now)
        for connection in self._socket.take_closed():
            self._cluster.closed(connection, now)
        while self._socket.orders:
            connection, frames = self._socket.orders.popleft()
            answer, actions = self._control.obey(frames, now)
            self._carry_out(actions, now)
            self._socket.send(connection, answer)
        while not self._orders.empty():
            self._carry_out(self._orders.get()(now), now)
        if now - self._ticked_s >= TICK_S / 2:
            self._ticked_s = now
            self._carry_out(self._cluster.tick(now), now)
            for connection, excess in self._socket.take_excess().items():
                self._carry_out(self._cluster.flooded(connection, excess, now), now)
            self._outlet.retry(self._reachable)
            self._journal.flush(now, self._remember)
            self._knock()
        self._tell(now)
        if now - self._viewed_s >= TICK_S:
            self._viewed_s, self._view = now, self._look(now)

    def _remember(self, store: RunStore, at: float) -> None:
        now = self._clock.now()
        store.remember(at, self._cluster.term, (self.address, *self._bound), keep(self._cluster, now))
        self._cluster.leases.log.clear()

    def _tell(self, now: float) -> None:
        """What was to be sent in this round; before that, all is written down that must not be forgotten of it."""
        while True:
            self._write_ahead(now)
            letters, self._letters = self._letters, deque()
            for send in letters:
                if not self._outlet.send(send.connection, send.message, send.payloads):
                    self._carry_out(self._cluster.unreachable(send.connection, now), now)
            if not self._letters:
                return

    def _write_ahead(self, now: float) -> None:
        log, drawn = self._cluster.leases.log, outline(self._cluster)
        if drawn != self._outline:
            self._outline = drawn
            self._journal.flush(now, self._remember, at_once=True)
        elif log:
            self._journal.append(self._cluster.term, pack(log), now)
        log.clear()

    def _knock(self) -> None:
        """Tell those who have not come yet where we are now."""
        if self._knocking is not None:
            self._knocking.knock(self.address, self._cluster.term, sorted(self._cluster.roll.awaited))
            if not self._cluster.recovering:
                self._knocking.close()
                self._knocking = None

    def _heard(self, connection: bytes, frames: list[bytes], now: float) -> list[Action]:
        try:
            message, payloads = decode(frames, WorkerMessage)
        except MalformedMessage as error:
            return self._cluster.malformed(connection, str(error), now)
        return self._cluster.heard(connection, message, payloads, now)  # type: ignore[arg-type]  # of this family

    def _carry_out(self, actions: Iterable[Action], now: float) -> None:
        for action in actions:
            match action:
                case Send():
                    self._letters.append(action)
                case Record(kind, text):
                    self._journal.record(kind, text, now)
                case Joined(rank, host, pid):
                    self._journal.joined(rank, host, pid, now)
                case Departed(rank, reason):
                    self._journal.departed(rank, reason, now)
                case Measured(rank, statistics, final):
                    self._journal.measured(rank, statistics, final, now)
                case Save(data, name):
                    self._write(lambda: write_model(self.run_dir, data, name))
                case SaveIndex(index):
                    self._write(lambda: write_index(self.run_dir, index))
                case SaveCheckpoint(number, manifest):
                    self._complete(number, manifest)
                case DropCheckpoint(number):
                    drop(self._checkpoints, number)
                case Finished(outcome):
                    self._journal.finished(outcome, now)
                    self._view = self._look(now)
                    self._over.set()

    def _write(self, write: Callable[[], Path]) -> None:
        """Beside the loop: torch is imported for a model, and workers must not take that for silence."""

        def work() -> None:
            path, error = "", ""
            try:
                path = str(write())
            except TautError as failure:
                error = str(failure)[:4000]
            self._order(lambda now: self._cluster.saved(path, error, now))

        self._writer = threading.Thread(target=work, name="writer", daemon=True)
        self._writer.start()

    def _complete(self, number: int, manifest: Mapping[str, object]) -> None:
        """Beside the loop: a disk takes its time."""
        whole = {**manifest, "run": self._cluster.plan.run, "settings": self.settings, "launch": self._launch}
        keep = int(str(self.settings.get("keep_checkpoints") or KEEP_CHECKPOINTS))

        def work() -> None:
            text, error = "", ""
            try:
                text = write_manifest(self._checkpoints, whole, keep)
            except TautError as failure:
                error = str(failure)[:4000]
            self._order(lambda now: self._cluster.checkpointed(number, text, error, now))

        self._completer = threading.Thread(target=work, name="checkpoint", daemon=True)
        self._completer.start()

    def _reachable(self, connection: bytes) -> bool:
        worker = self._cluster.members.find(connection)
        return worker is not None and (worker.live or worker.expelled)

    def _order(self, order: Callable[[float], list[Action]]) -> None:
        self._orders.put(order)
        self._socket.wake()

    def _look(self, now: float) -> ClusterView:
        cluster = self._cluster
        epoch, done, total = cluster.leases.progress()
        started_s = cluster.ledger.started_s
        return ClusterView(
            run=cluster.plan.run,
            state=cluster.state,
            expected=cluster.expected,
            workers=cluster.rows(now),
            consensus=cluster.distance(),
            epoch=epoch,
            samples_done=done,
            samples_total=total,
            events=tuple(self._journal.events),
            wall_s=now - self._began_s,
            train_s=0.0 if started_s is None else now - started_s,
        )

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._writer.join()  # a file is never left half-written
        if self._completer is not None:
            self._completer.join()
        now = self._clock.now()
        self._carry_out(self._cluster.stop("the run was stopped", now), now)
        self._tell(now)
        self._view = self._look(now)
        self._over.set()
        self._socket.close(LINGER_S)
        if self._knocking is not None:
            self._knocking.close()
        self._journal.close()


def _plan(settings: Mapping[str, object], run: str, workers: int, seed: int) -> RunPlan:
    """What the state machine needs to know of the settings; the workers read the rest."""
    from taut.strategies.combination import combine
    from taut.strategies.schedule import parse_schedule

    strategy = parse_schedule(settings.get("strategy") or "async")  # type: ignore[arg-type]  # it says so itself
    topology, finish = (None if settings.get(key) is None else str(settings[key]) for key in ("topology", "finish"))
    chosen = combine(strategy, topology, finish=finish)
    return RunPlan(
        run,
        seed,
        _checked_count(workers),
        _settings_text(settings),
        socket.gethostname(),
        strategy=str(strategy),
        finish=chosen.finish,
        agrees=chosen.agrees,
        admits_late=chosen.admits_late,
        topology=chosen.topology,
        majority=chosen.majority,
        patience_s=float(str(settings.get("patience_s") or PATIENCE_S)),
        checkpoint_every=parse_interval(settings["checkpoint_every"]) if settings.get("checkpoint_every") else None,
    )


def _checked_count(workers: int) -> int:
    if workers < 1:
        raise Misuse(f"{workers} workers", "at least 1", "leave it out to run alone")
    return workers


def _settings_text(settings: Mapping[str, object]) -> str:
    text = json.dumps(plain(settings))
    if len(text) > 4096:
        raise Misuse(f"settings of {len(text)} characters", "at most 4096 as JSON", "shorten the longest of them")
    return text


def _journal(
    run_dir: Path,
    run: str,
    now: float,
    command: str,
    settings: Mapping[str, object],
    former: Former | None,
    resumed: bool,
) -> tuple[Journal, int]:
    """With a store, or without one when the disk does not let us: training needs none. Also the supervisor's term, where
    it begins anew. Raises ``Superseded`` where somebody else came back for ``former``."""
    began_at = time.time() if former is None else former.began_at
    term = 0
    try:
        store = RunStore(run_dir, run)
    except StorageFailed as error:
        return Journal(None, now, began_at, str(error)), term
    try:
        if former is not None:
            store.claim(former.term)
        if resumed:
            term = store.resumed(began_at)
        store.begin(began_at, command, settings, _versions())
    except StorageFailed as error:
        store.close()
        return Journal(None, now, began_at, str(error)), term
    except Superseded:
        store.close()
        raise
    return Journal(store, now, began_at), term


def _told(settings: Mapping[str, object], checkpoints: Path, resume: Found | None) -> dict[str, object]:
    """What workers are told: the settings, where checkpoints go, and which one the run continues."""
    told = dict(settings)
    if settings.get("checkpoint_every"):
        told["checkpoints"] = str(checkpoints)
    if resume is not None:
        told["resume"] = {"folder": str(resume.folder.absolute()), "complete": resume.manifest.complete}
    return told


def _versions() -> dict[str, str]:
    """From the packages' metadata: nothing is imported for it."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
