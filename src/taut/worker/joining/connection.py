"""How a worker gets to the others: over sockets, to the run that the launcher named, or, in virtual time, inside one
process. Whoever starts workers in threads of this process says so with ``CONNECTOR``."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from taut.config import WorkerEnvironment, worker_environment
from taut.core.callbacks import do_nothing
from taut.quantities import parse_link
from taut.transport.keys import Token, WorkerKeys, read_token_file
from taut.transport.limited import LimitedTransport
from taut.transport.transport import transport_of
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.comm.host_meter import HostMeter
from taut.worker.joining.console_lines import ConsoleLines
from taut.worker.time_split import Stopwatch


class Connector(ABC):
    """``address`` and ``public_key``: where and how peers reach this worker; ``host`` and ``pid``: who it is;
    ``when_joined``: called when the worker has the run's state."""

    watch: Stopwatch
    address: str
    public_key: str
    host: str
    pid: int
    when_joined: Callable[[], None] = staticmethod(do_nothing)

    @abstractmethod
    def comm(self, make_strategy: Any, **options: Any) -> CommThread:
        """Return the worker's communication thread; ``options`` as ``CommThread`` takes them."""

    def renew(self) -> None:
        """Open another end, for a worker in the run that rejoins: the last one is closed."""
        raise AssertionError("this worker cannot come back")

    def limit(self, comm: CommThread, link: str) -> None:  # noqa: B027
        """Limit the links to other workers to the speed ``link``. In virtual time the simulator's are."""

    def joined(self, session: Any) -> None:  # noqa: B027
        """Take note that the worker is admitted, and has the run's state."""

    def left(self, how: str) -> None:  # noqa: B027
        """Take note that the worker has left the run in order, as ``how`` says."""


class SocketConnector(Connector):
    """Encrypted sockets to the run that ``environment`` names."""

    def __init__(self, environment: WorkerEnvironment) -> None:
        self._environment = environment
        self._token = Token.parse(environment.token or read_token_file(environment.token_file or ""))
        self.watch = Stopwatch()
        self.host, self.pid = socket.gethostname()[:255], os.getpid() + environment.process_base
        self._meter = HostMeter()
        self._console = ConsoleLines(environment.supervisor) if environment.announces else None
        self._open(environment.supervisor)

    def _open(self, supervisor: str) -> None:
        self._keys = WorkerKeys.generate()
        given, transport = self._environment, transport_of(supervisor)
        self._transport = transport.connect(self._keys, given.bind, given.advertise, (supervisor, self._token))
        self.address, self.public_key = self._transport.address, self._keys.public_key

    def renew(self) -> None:
        # Peers tell workers apart by their keys, and what the previous one sent may still be under way: hence new ones.
        previous = self._keys
        self._open(self._transport.supervisor.address or self._environment.supervisor)
        self._transport.supervisor.known_as(previous)

    def limit(self, comm: CommThread, link: str) -> None:
        comm.dispatcher.transport = LimitedTransport(comm.transport, parse_link(link))

    def comm(self, make_strategy: Any, **options: Any) -> CommThread:
        comm = CommThread(Dispatcher(self._transport, make_strategy, **options))
        comm.supervisor.host_use = self._meter.read
        if self._console is not None:
            self._console.comm = comm
        return comm

    def joined(self, session: Any) -> None:
        self.when_joined()
        if self._console is not None:
            self._console.joined(session)

    def left(self, how: str) -> None:
        if self._console is not None:
            self._console.left(how)


CONNECTOR: ContextVar[Connector | None] = ContextVar("taut_connector", default=None)


def launched_run() -> object:
    """Return the run that this thread's script was started for, as something to compare; None without a launcher."""
    environment = worker_environment()
    return CONNECTOR.get() or (None if environment is None else environment.supervisor)


def connector() -> Connector | None:
    """Return this thread's own connector, or the launcher's; None where the script is a run of one."""
    given = CONNECTOR.get()
    if given is not None:
        return given
    environment = worker_environment()
    return None if environment is None else SocketConnector(environment)
