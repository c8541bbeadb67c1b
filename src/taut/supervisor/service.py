"""The supervisor as a service, for the command line and tests. Its thread is in loop.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from taut.core.checkpoint_names import FOLDER
from taut.core.clock import Clock, MonotonicClock
from taut.core.handover import make_folder, name_folder
from taut.errors import Superseded
from taut.plugins import TRANSPORTS
from taut.supervisor.checkpoints.folder import numbers, remember_launch
from taut.supervisor.control import Control, ThreadCalls
from taut.supervisor.loop import Loop
from taut.supervisor.prepare import TOKEN_FILE, Listen, Origin, held, open_journal, plan_of, told, write_keys
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.background_files import BackgroundFiles
from taut.supervisor.storage.journal import Journal, Persistence
from taut.supervisor.storage.previous_run import KEYS_FILE, read_previous_run
from taut.supervisor.storage.snapshot import recall
from taut.supervisor.view import ClusterView, Outcome
from taut.transport.keys import RunKeys
from taut.transport.transport import TransportFactory, transport_of

_CLOCK, _LOOPBACK, _NEW = MonotonicClock(), Listen(), Origin()


class Supervisor:
    """Admits workers, leases data, notices deaths, keeps statistics, writes the model.

    ``workers`` is how many the run waits for before it starts. The address and the token are known, and workers may
    connect, from construction on; they are answered after `start`. Raises Misuse for a port that is taken or a run
    that another process supervises, and StorageFailed when ``run_dir`` cannot be written."""

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
        self.run_dir, self.settings = Path(run_dir).absolute(), settings  # the working folder may change later
        handover = name_folder(self.run_dir)
        plan = plan_of(told(settings, self.run_dir, origin.resume, handover), run, workers, seed)
        keys = origin.previous.keys if origin.previous is not None else origin.keys or RunKeys.generate()
        transport: TransportFactory = TRANSPORTS.find(listen.transport)()
        self.token, self.token_file = keys.token, self.run_dir / TOKEN_FILE
        with ExitStack() as undo:
            lock = held(self.run_dir, origin)
            undo.callback(lock.release)
            write_keys(self.run_dir, keys)
            make_folder(*handover)
            socket = transport.listen(keys, listen.bind, listen.port, listen.advertise)
            undo.callback(socket.close)
            cluster, journal = _begun(self.run_dir, plan, settings, origin, clock.now())
            undo.pop_all()
        lock.say("supervising")
        socket.access.knows = cluster.members.has_key
        self.address = socket.address
        moved = origin.previous is not None and self.address != origin.previous.address
        calls = ThreadCalls(socket.wake)
        self._cluster, self._calls = cluster, calls
        self._loop = Loop(
            clock=clock,
            socket=socket,
            cluster=cluster,
            journal=journal,
            persistence=Persistence(cluster, journal, (self.address, listen.bind, listen.advertise or "")),
            files=BackgroundFiles(self.run_dir, settings, remember_launch(self.run_dir, origin.launch), cluster, calls),
            calls=calls,
            control=Control(cluster, socket.access, self.run_dir / KEYS_FILE, socket.came_with),
            lock=lock,
            announcer=transport.announcer(keys, cluster.members.roster().members) if moved else None,
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
        """Return a supervisor that continues the run in ``run_dir``, whose supervisor died: at its old address, or,
        if ``bind`` or ``port`` say so, at another one, which it tells the workers. Raise ``Superseded`` if another
        one recovers at the same time, or has done so since ``term``."""
        previous = read_previous_run(Path(run_dir))
        if term is not None and previous.term != term:
            raise Superseded(f"a supervisor of term {previous.term} has taken over from that of term {term}")
        settings = previous.settings
        same = port is None and bind is None
        return cls(
            settings,
            Path(run_dir),
            run=previous.run,
            workers=int(str(settings["workers"])),
            seed=int(str(settings["seed"])),
            listen=Listen(
                bind or previous.bind,
                int(previous.address.rpartition(":")[2]) if same else port or 0,
                advertise or (previous.advertise if bind is None else None),
                transport_of(previous.address).name,
            ),
            origin=Origin(previous.command, previous=previous),
        )

    @property
    def superseded(self) -> bool:
        """Return whether another supervisor took over while this one was away."""
        return self._loop.superseded

    def start(self) -> None:
        """Serve, in a new thread."""
        assert self._thread is None, "a supervisor starts once"
        self._thread = threading.Thread(target=self._loop.serve, name="supervisor", daemon=True)
        self._thread.start()

    def view(self) -> ClusterView:
        """Return the run as of at most a tenth of a second ago. May be called from any thread; costs nothing."""
        return self._loop.view

    def drain(self, reason: str) -> None:
        """End the run in order: workers flush and drain, the model is written. May be called from any thread."""
        self._calls.give(lambda now: self._cluster.drain(reason, now))

    def fail(self, reason: str) -> None:
        """End the run now, without a model: its workers are told ``reason``. May be called from any thread."""
        self._calls.give(lambda now: self._cluster.stop(reason, now))

    def checkpoint(self) -> None:
        """Begin a checkpoint now, if the run has checkpoints and trains. May be called from any thread."""
        self._calls.give(self._cluster.checkpoint)

    def exited(self, pid: int, reason: str, clean: bool) -> None:
        """Note that the engine saw this process end; ``clean``: with exit code 0. A reason that begins with "killed
        by" is a death that the run survives; any other end that is not clean makes the run's exit code 1. May be
        called from any thread."""
        self._calls.give(lambda now: self._cluster.exited(pid, reason, clean, now))

    def wait(self, timeout_s: float | None) -> Outcome | None:
        """Return the outcome, or None if there is none within ``timeout_s``. The supervisor answers until `stop`."""
        self._loop.over.wait(timeout_s)
        return self._cluster.outcome if self._loop.over.is_set() else None

    def stop(self) -> None:
        """End now. A run that is not over fails, and its workers are told to stop. Stopping twice is harmless."""
        self._loop.stopping = True
        if self._thread is None:
            self._loop.close()
        else:
            self._calls.wake()
            self._thread.join()


def _begun(
    run_dir: Path, plan: RunPlan, settings: Mapping[str, object], origin: Origin, now: float
) -> tuple[Cluster, Journal]:
    """Return the run's state machine and its journal, which notes that the run goes on. Raise ``Superseded``."""
    previous = origin.previous
    began_s = now if previous is None else now - max(0.0, time.time() - previous.began_at)
    journal, term = open_journal(run_dir, plan.run, began_s, settings, origin)
    if previous is None:
        cluster = Cluster(plan, now, term)
    else:
        away_s = max(0.0, time.time() - previous.beat)
        cluster = recall(plan, previous.data, previous.term + 1, now, previous.ahead, away_s)
        journal.record("back", f"the supervisor was restarted (term {previous.term + 1})", now)
    cluster.checkpointing.number = max(numbers(run_dir / FOLDER), default=0)
    if origin.resume is not None:
        manifest = origin.resume.manifest
        cluster.checkpointing.resume(manifest.steps, manifest.passes, manifest.undone)
        for text in origin.resume.damaged:
            journal.record("checkpoint", text, now)
        kept = cluster.owner.resume(manifest.rate, manifest.slack)
        going_on = f"from checkpoint {manifest.number}, at step {manifest.steps}"
        journal.record("resumed", f"{going_on}, with {kept} as before" if kept else going_on, now)
    return cluster, journal
