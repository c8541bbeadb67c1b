"""The supervisor as a service: what the command line and tests hold of it. Its thread is in loop.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from taut.core.checkpoint_names import FOLDER
from taut.core.clock import Clock, MonotonicClock
from taut.errors import Superseded
from taut.plugins import TRANSPORTS
from taut.supervisor.checkpoints.folder import Found, numbers, remember_launch
from taut.supervisor.control import Control
from taut.supervisor.loop import Loop
from taut.supervisor.prepare import TOKEN_FILE, Listen, Origin, held, open_journal, plan_of, told, write_keys
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.background_files import BackgroundFiles
from taut.supervisor.storage.journal import Journal
from taut.supervisor.storage.persistence import Persistence
from taut.supervisor.storage.previous_run import KEYS_FILE, PreviousRun, port_of, recall_former
from taut.supervisor.storage.snapshot import recall
from taut.supervisor.thread_calls import ThreadCalls
from taut.supervisor.view import ClusterView, Outcome
from taut.transport.keys import RunKeys
from taut.transport.transport import TransportFactory, transport_of

_CLOCK, _LOOPBACK, _NEW = MonotonicClock(), Listen(), Origin()


class Supervisor:
    """Admits workers, deals data, notices deaths, keeps statistics, writes the model.

    ``workers`` is how many the run waits for before it starts. The address and the token are known, and
    workers may connect, from construction on; they are answered after `start`. Raises Misuse for a port
    that is taken or a run that another process conducts, and StorageFailed when ``run_dir`` cannot be written.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        run_dir: Path,
        *,
        run: str,
        workers: int,
        seed: int,
        listen: Listen = _LOOPBACK,
        origin: Origin = _NEW,
        clock: Clock = _CLOCK,
    ) -> None:
        self.run_dir, self.settings = Path(run_dir).absolute(), settings  # whoever starts scripts may change folders
        plan = plan_of(told(settings, self.run_dir / FOLDER, origin.resume), run, workers, seed)
        keys = RunKeys.generate() if origin.former is None else origin.former.keys
        transport: TransportFactory = TRANSPORTS.find(listen.transport)()
        self.token, self.token_file = keys.token, self.run_dir / TOKEN_FILE
        with ExitStack() as undo:
            lock = held(self.run_dir, origin)
            undo.callback(lock.release)
            write_keys(self.run_dir, keys)
            socket = transport.listen(keys, listen.bind, listen.port, listen.advertise)
            undo.callback(socket.close)
            cluster, journal = _begun(self.run_dir, plan, settings, origin, clock.now())
            undo.pop_all()
        lock.say("supervising")
        socket.access.knows = cluster.members.has_key
        self.address = socket.address
        moved = origin.former is not None and self.address != origin.former.address
        orders = ThreadCalls(socket.wake)
        self._cluster, self._orders = cluster, orders
        self._loop = Loop(
            clock=clock,
            socket=socket,
            cluster=cluster,
            journal=journal,
            remembering=Persistence(cluster, journal, (self.address, listen.bind, listen.advertise or "")),
            files=BackgroundFiles(self.run_dir, settings, remember_launch(self.run_dir, origin.launch), cluster, orders),
            orders=orders,
            control=Control(cluster, socket.access, self.run_dir / KEYS_FILE, socket.came_with),
            lock=lock,
            knocking=transport.announcer(keys, cluster.members.roster().members) if moved else None,
        )
        self._thread: threading.Thread | None = None

    @classmethod
    def recover(
        cls,
        run_dir: Path,
        *,
        bind: str | None = None,
        port: int | None = None,
        advertise: str | None = None,
        term: int | None = None,
    ) -> Supervisor:
        """The supervisor of the run in ``run_dir``, which died, comes back: at its old address, or, if ``bind`` or
        ``port`` say so, at another one, which it tells the workers. ``Superseded`` where another one comes back at the
        same time, or has since its life ``term`` was judged to be over."""
        former = recall_former(Path(run_dir))
        if term is not None and former.term != term:
            raise Superseded(f"a supervisor of term {former.term} has taken over from that of term {term}")
        settings = former.settings
        same = port is None and bind is None
        return cls(
            settings,
            Path(run_dir),
            run=former.run,
            workers=int(str(settings["workers"])),
            seed=int(str(settings["seed"])),
            listen=Listen(
                bind or former.bind,
                port_of(former.address) if same else port or 0,
                advertise or (former.advertise if bind is None else None),
                transport_of(former.address).name,
            ),
            origin=Origin(former.command, former=former),
        )

    @property
    def superseded(self) -> bool:
        """Another supervisor took over while this one was away."""
        return self._loop.superseded

    def start(self) -> None:
        """Serve, in a thread of its own."""
        assert self._thread is None, "a supervisor starts once"
        self._thread = threading.Thread(target=self._loop.serve, name="supervisor", daemon=True)
        self._thread.start()

    def view(self) -> ClusterView:
        """The run as of a moment ago (a tenth of a second at most). From any thread; costs nothing."""
        return self._loop.view

    def drain(self, reason: str) -> None:
        """End the run in order: workers flush and drain, the model is written. From any thread."""
        self._orders.give(lambda now: self._cluster.drain(reason, now))

    def exited(self, pid: int, reason: str, clean: bool) -> None:
        """The engine saw this process end; ``clean``: with exit code 0. A reason that begins with "killed
        by" is a death that the run survives; any other end that is not clean makes the run's exit code 1.
        From any thread."""
        self._orders.give(lambda now: self._cluster.exited(pid, reason, clean, now))

    def wait(self, timeout_s: float | None) -> Outcome | None:
        """The outcome, or None when there is none in ``timeout_s``. The supervisor answers until `stop`."""
        self._loop.over.wait(timeout_s)
        return self._cluster.outcome if self._loop.over.is_set() else None

    def stop(self) -> None:
        """End now. A run that is not over fails, and its workers are told to stop. Stopping twice is
        harmless."""
        self._loop.stopping = True
        if self._thread is None:
            self._loop.close()
        else:
            self._orders.wake()
            self._thread.join()


def _begun(
    run_dir: Path, plan: RunPlan, settings: Mapping[str, object], origin: Origin, now: float
) -> tuple[Cluster, Journal]:
    """The run as it stands, and its journal, in which that it goes on is written. Raises ``Superseded``."""
    former = origin.former
    began_s = now if former is None else now - max(0.0, time.time() - former.began_at)  # the run did
    journal, term = open_journal(run_dir, plan.run, began_s, settings, origin)
    cluster = Cluster(plan, now, term) if former is None else _recalled(plan, former, journal, now)
    cluster.checkpointing.number = max(numbers(run_dir / FOLDER), default=0)
    if origin.resume is not None:
        _continue(cluster, origin.resume, journal, now)
    return cluster, journal


def _recalled(plan: RunPlan, former: PreviousRun, journal: Journal, now: float) -> Cluster:
    """The run as the supervisor knew it in its life before."""
    away_s = max(0.0, time.time() - former.beat)
    cluster = recall(plan, former.data, former.term + 1, now, former.ahead, away_s)
    journal.record("back", f"the supervisor is back, in its life number {former.term + 2}", now)
    return cluster


def _continue(cluster: Cluster, found: Found, journal: Journal, now: float) -> None:
    """The run goes on from a checkpoint."""
    manifest = found.manifest
    cluster.checkpointing.resume(manifest.steps, manifest.passes, manifest.undone)
    for text in found.damaged:
        journal.record("checkpoint", text, now)
    journal.record("resumed", f"from checkpoint {manifest.number}, at step {manifest.steps}", now)
