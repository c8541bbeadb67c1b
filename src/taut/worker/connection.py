"""How a worker gets to the others: over sockets, to the run that the launcher named, or, in virtual time, inside one
process. Whoever starts workers in threads of this process says so with ``ENTRANCE``."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from contextvars import ContextVar
from typing import Any

from taut.config import WorkerEnvironment, worker_environment
from taut.quantities import parse_link
from taut.transport.keys import Token, WorkerKeys, read_token_file
from taut.transport.limited import LimitedTransport
from taut.transport.transport import transport_of
from taut.worker.announcer import Announcer
from taut.worker.comm.comm_thread import CommThread
from taut.worker.time_split import Stopwatch


class Connector(ABC):
    """``address`` and ``public_key``: where and how peers reach this worker; ``host`` and ``pid``: who it is."""

    watch: Stopwatch
    address: str
    public_key: str
    host: str
    pid: int

    @abstractmethod
    def node(self, make_strategy: Any, **options: Any) -> CommThread:
        """The worker's end of the cluster; ``options`` as ``CommThread`` takes them."""

    def renew(self) -> None:
        """Be ready for another seat: what the last one was reached at is closed. Only for who is in the run already."""
        raise AssertionError("this worker cannot come back")

    def limit(self, node: CommThread, link: str) -> None:  # noqa: B027
        """Let the node's links to other workers be no faster than ``link`` says. In virtual time the simulator's are."""

    def seated(self, seat: Any) -> None:  # noqa: B027
        """The worker is admitted, and has the run's state."""

    def left(self, how: str) -> None:  # noqa: B027
        """The worker has left the run in order, as ``how`` says."""


class SocketConnector(Connector):
    """Encrypted sockets to the run that ``environment`` names."""

    def __init__(self, environment: WorkerEnvironment) -> None:
        self._environment = environment
        self._token = Token.parse(environment.token or read_token_file(environment.token_file or ""))
        self.watch = Stopwatch()
        self.host, self.pid = socket.gethostname()[:255], os.getpid()
        self._announcer = Announcer(environment.supervisor) if environment.announces else None
        self._open(environment.supervisor)

    def _open(self, supervisor: str) -> None:
        self._keys = WorkerKeys.generate()
        given, transport = self._environment, transport_of(supervisor)
        self._transport = transport.connect(self._keys, given.bind, given.advertise, (supervisor, self._token))
        self.address, self.public_key = self._transport.address, self._keys.public_key

    def renew(self) -> None:
        # Peers tell workers apart by their keys, and what the former one sent may still be under way: hence new ones.
        former = self._keys
        self._open(self._transport.supervisor.address or self._environment.supervisor)
        self._transport.supervisor.known_as(former)

    def limit(self, node: CommThread, link: str) -> None:
        node.transport = LimitedTransport(node.transport, parse_link(link))

    def node(self, make_strategy: Any, **options: Any) -> CommThread:
        node = CommThread(self._transport, make_strategy, **options)
        if self._announcer is not None:
            self._announcer.node = node
        return node

    def seated(self, seat: Any) -> None:
        if self._announcer is not None:
            self._announcer.joined(seat)

    def left(self, how: str) -> None:
        if self._announcer is not None:
            self._announcer.left(how)


ENTRANCE: ContextVar[Connector | None] = ContextVar("taut_entrance", default=None)


def launched_run() -> object:
    """Return the run that this thread's script was started for, as something to compare; None without a launcher."""
    environment = worker_environment()
    return ENTRANCE.get() or (None if environment is None else environment.supervisor)


def entrance() -> Connector | None:
    """This thread's own, or the launcher's; None where the script was started by itself, to be a run of one."""
    given = ENTRANCE.get()
    if given is not None:
        return given
    environment = worker_environment()
    return None if environment is None else SocketConnector(environment)
