"""How a process of another launcher enters a run: rank 0 starts the supervisor and tells the others, who look for it.

The order: rank 0 joins first, so that it is worker 0 of the run, too; then it leaves its offer at the rendezvous.
Where the others are not found within a time limit, that is an error: never N runs of one.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import threading
import time
from collections.abc import Callable

from taut.config import Settings, WorkerEnvironment, cores, resolve
from taut.engines.launchers.base import Launch, Launcher
from taut.engines.launchers.rendezvous import Offer, Rendezvous, token_file_seen
from taut.engines.launchers.signals import SignalOrders
from taut.engines.launchers.supervisor_process import SupervisorProcess
from taut.engines.launchers.torchrun import elastic_key
from taut.engines.zygote import PRELOADED
from taut.errors import Misuse, RunFailed, SupervisorLost, TautError

LIMIT_S = 300.0  # for all processes to come, where the user says nothing else (patience_s)
LOOK_S = 0.05
EVERYWHERE, LOOPBACK = "0.0.0.0", "127.0.0.1"


class EnteredLaunch:
    """This process's part in a launch. ``enter`` finds the run, or starts it."""

    def __init__(self, launcher: type[Launcher], launch: Launch) -> None:
        self.launch, self._launcher = launch, launcher
        self._rendezvous: Rendezvous
        self._supervisor: SupervisorProcess | None = None
        self._offer = Offer()
        self._started, self._entered, self._told = threading.Event(), False, False

    def enter(self) -> None:
        """Put the run's address and token where ``taut.join`` looks for them. Raise ``TautError`` without a run."""
        settings = resolve({})
        self._folder, self._limit_s = settings.runs_dir, limit_s(settings)
        self._rendezvous = self._launcher.rendezvous(self.launch, settings.runs_dir)
        self._entered = True
        if self.launch.rank == 0:
            self._supervisor = SupervisorProcess(self.launch, elastic_key(self.launch), self._limit_s)
            atexit.register(self._ended)
        warm_up(settings)  # meanwhile: the supervisor's process starts, or rank 0 does the same
        self._offer = self._found() if self._supervisor is None else self._supervisor.offer()
        seen = token_file_seen(self._offer, self._folder)
        environment = WorkerEnvironment(
            supervisor=self._offer.address,
            token=None if seen else self._offer.token,
            token_file=None if seen is None else str(seen),
            bind=os.environ.get("TAUT_BIND") or (LOOPBACK if self.launch.one_host else EVERYWHERE),
            advertise=os.environ.get("TAUT_ADVERTISE") or None,
        )
        os.environ.update(environment.variables())
        share_cores(self.launch, settings.threads)

    def _found(self) -> Offer:
        offer = await_offer(self._rendezvous, self.launch, self._limit_s)
        if self.launch.one_host:
            offer = Offer(offer.address, offer.run, offer.token_file)
        if offer.token or token_file_seen(offer, self._folder) is not None:
            return offer
        if self.launch.one_host:  # a store is no place to take a token from where it is not needed
            raise SupervisorLost(f"the run's token is in {offer.token_file}, which this process cannot read")
        self._rendezvous.ask(self.launch.rank)
        return await_offer(self._rendezvous, self.launch, self._limit_s, lambda offer: bool(offer.token))

    def joined(self) -> None:
        """Tell the others, once rank 0 is worker 0."""
        if self.launch.rank == 0 and not self._told:
            self._told = True
            carries = self._rendezvous.carries_token
            token = _token(self._offer) if carries else ""
            self._rendezvous.leave(Offer(self._offer.address, self._offer.run, self._offer.token_file, token))
            if not carries:
                threading.Thread(target=self._serve, name="taut-launch", daemon=True).start()

    def _serve(self) -> None:
        """Give the token to processes that cannot read its file, until the run has started."""
        token = _token(self._offer)
        while not self._started.wait(LOOK_S):
            self._rendezvous.serve(token)
        self._rendezvous.close()

    def started(self) -> None:
        """Take the offer back: all processes are in the run. From now on, Ctrl-C and SIGTERM end the run in order."""
        self._started.set()
        SignalOrders(self.launch, self._supervisor).install()

    def failed(self, error: BaseException) -> None:
        """Tell the others that there is no run, where this is rank 0."""
        self._started.set()
        if self.launch.rank == 0 and self.launch.survives and self._entered and not self._told:  # else they are ended
            self._told = True
            with contextlib.suppress(TautError, OSError):  # they find out by their time limit
                self._rendezvous.leave(Offer(error=f"{error}"[:4000] or type(error).__name__))

    def _ended(self) -> None:
        """Take everything back at the end of rank 0's script, and wait for the supervisor's last words."""
        if self._offer.address:
            self._rendezvous.close()
        if self._supervisor is not None:
            self._supervisor.end()


def await_offer(
    rendezvous: Rendezvous,
    launch: Launch,
    limit_s: float,
    enough: Callable[[Offer], bool] = lambda offer: True,
    *,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Offer:
    """Return rank 0's offer. Raise ``SupervisorLost`` where none came within ``limit_s``, and ``RunFailed`` where rank 0
    said that there is no run."""
    deadline_s = now() + limit_s
    while True:
        offer = rendezvous.look()
        if offer is not None and offer.error:
            raise RunFailed(f"rank 0 of {launch.command} could not start the run: {offer.error}")
        if offer is not None and enough(offer):
            return offer
        if now() >= deadline_s:
            raise SupervisorLost(
                f"{launch.command} started {launch.size} processes, and this one (rank {launch.rank}) has not found the "
                f"run of the others within {limit_s:.0f} s; tried: {rendezvous.place}. TAUT_PATIENCE_S waits longer; "
                "TAUT_LAUNCHER=none trains them as separate runs"
            )
        pause(LOOK_S)


def limit_s(settings: Settings) -> float:
    """Return how long the processes of a launch wait for each other."""
    return LIMIT_S if settings.sources["patience_s"] == "default" else float(settings.patience_s)


def warm_up(settings: Settings) -> None:
    """Import and load what every worker needs for its first step. Kernels that are not compiled yet are left to the
    worker: one of them compiles, the others find them in the cache."""
    from taut.codecs.kernels.cpu.compilation import missing
    from taut.codecs.registry import kernels_of
    from taut.strategies.compatibility import codecs_in_use
    from taut.strategies.phases import parse_schedule

    for name in PRELOADED:
        importlib.import_module(name)
    with contextlib.suppress(Misuse):  # the supervisor tells it
        chosen = settings.fitted()
        missing(kernels_of(codecs_in_use(parse_schedule(chosen.strategy), chosen.topology, [chosen.codec])))


def share_cores(launch: Launch, threads: int | None) -> None:
    """Give torch as many threads as the settings say; else this process's share of the host's cores, where the launcher
    has neither bound the process to some of them nor said how many it has."""
    import torch

    if threads is None and cores() == os.cpu_count() and not os.environ.get("SLURM_CPUS_PER_TASK"):
        threads = max(1, cores() // launch.local_size)
    if threads is not None:
        torch.set_num_threads(threads)


def _token(offer: Offer) -> str:
    from taut.transport.keys import read_token_file

    return read_token_file(offer.token_file)
