"""What a transport is: the one thing that the rest of taut knows of sockets.

A link carries whole messages (lists of frames), in order. It may lose what was under way when a connection
broke, and never says so: acknowledging and sending again is the strategy's log's work. Every transport must
pass ``taut.testing.checks.transport_check.check_transport``.

``--transport NAME`` chooses one. The supervisor's address tells its workers which: ``NAME://...``, and
``tcp://HOST:PORT`` for ZeroMQ. An installed package adds its own, a ``TransportFactory``, by an entry point of the
group ``taut.transports``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from taut.core.messages import Member

if TYPE_CHECKING:
    from taut.transport.access import AccessControl
    from taut.transport.keys import RunKeys, Token, WorkerKeys

Status = Literal["connecting", "connected", "refused", "expired"]
ORDER_NBYTES = 64 * 1024  # of an order of the run's owner, or an answer
ANSWER_S = 10.0  # for an answer to an order: a round trip and a tick; connecting may take a second or two


class SupervisorLink:
    """A worker's link to its supervisor: how it stands, and where it leads. By default it is always up.

    ``status``, as of the last ``receive``: "refused" before anything came from the supervisor means that something
    answers at its address, but does not take this token; "expired", that it took it once. ``address``: where the
    supervisor is found now.
    """

    status: Status = "connected"
    address = ""

    def admitted(self) -> None:
        """Note that this worker is in the run: should its token expire, its own key lets it back in."""

    def known_as(self, keys: WorkerKeys) -> None:
        """Note that this worker was in the run under these keys: should its token have expired, they let it in."""

    def repoint(self, address: str) -> None:
        """Connect to the same supervisor at another address."""


class Transport(Protocol):
    """A worker's end of all its links. Classes that derive from it get the defaults of ``supervisor`` and ``excess``.

    One thread at a time calls everything but ``wake`` (the communication thread of the process); it may be
    another one than the constructor's, as long as the object is handed over once. ``excess``: messages that were
    dropped unread because their sender sends too many, per sender.
    """

    supervisor: SupervisorLink = SupervisorLink()
    excess: Mapping[int, int] = MappingProxyType({})

    @property
    def address(self) -> str:
        """Return where peers reach this worker, e.g. ``tcp://10.0.0.3:41234``; known from construction on."""

    @abstractmethod
    def admit(self, member: Member) -> None:
        """Take messages from ``member`` and connect to it. Raise ``MalformedMessage`` if its key or address cannot
        be used. Admitting it again as it is changes nothing."""

    @abstractmethod
    def forget(self, rank: int) -> None:
        """Disconnect; nothing more from ``rank`` is delivered. Unknown ranks are no error."""

    @abstractmethod
    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        """Queue one message for ``to`` (``SUPERVISOR`` for the supervisor). Never block. False: no room, or
        not connected, or not admitted; nothing was sent then. ``receive`` returns when there is room again.
        Raise ``Misuse`` for a message over the transport's limit, which no receiver would take."""

    @abstractmethod
    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        """Return messages that have arrived, a bounded part at a time: the sender of each, as the transport proved it
        (never as the message claims), and its frames. Wait for something to arrive, for ``wake``, for room on a link
        whose ``send`` was refused, or for the timeout (``None``: no limit). May return early with nothing."""

    @abstractmethod
    def wake(self) -> None:
        """Make the present or the next ``receive`` return at once. From any thread; harmless after ``close``."""

    @abstractmethod
    def close(self, linger_s: float = 0.0) -> None:
        """Give up all sockets, after at most ``linger_s`` spent on what is queued. Closing twice is harmless."""


class ServerSocket(Protocol):
    """The supervisor's end. ``connection`` names one worker's transport and stays the same when it
    reconnects. ``access`` says whom it lets in. ``orders``: messages of the run's owner, with their connections; those of
    all others come by ``receive``, and nobody can speak as the other.

    As with ``Transport``, everything but ``wake`` belongs to one thread at a time."""

    access: AccessControl
    orders: deque[tuple[bytes, list[bytes]]]

    @property
    def address(self) -> str:
        """Return where workers reach the supervisor."""

    @abstractmethod
    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        """Return messages, with the connection that each came from; wait as ``Transport.receive`` does."""

    @abstractmethod
    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        """Queue one message. Never block. False: no room or no such connection; nothing was sent."""

    @abstractmethod
    def wake(self) -> None:
        """Make ``receive`` return at once, as ``Transport.wake`` does."""

    @abstractmethod
    def close(self, linger_s: float = 0.0) -> None:
        """Give up all sockets, as ``Transport.close`` does."""

    def take_closed(self) -> list[bytes]:
        """Return connections that were closed since the last call: the worker died, or something between broke. After
        ``receive``, whose messages came before."""
        return []

    def take_excess(self) -> dict[bytes, int]:
        """Return how many messages were dropped unread since the last call, per connection that sent too many."""
        return {}

    def came_with(self, connection: bytes) -> str | None:
        """Return the name of the token that this connection was first made with, as far as is known."""
        return None


class Announcer(Protocol):
    """Tells the workers of a run where their supervisor is now."""

    def announce(self, address: str, term: int, ranks: Sequence[int]) -> None:
        """Tell those of ``ranks``, again at each call; the others have answered."""

    def close(self) -> None: ...


class TransportFactory(ABC):
    """Both ends of one kind of transport. ``name``: as in ``--transport NAME``; ``scheme``: its addresses are
    ``scheme://...``. ``between_processes``: it leads from one process to another."""

    name: ClassVar[str]
    scheme: ClassVar[str]
    between_processes: ClassVar[bool] = True

    @abstractmethod
    def listen(self, keys: RunKeys, bind: str, port: int, advertise: str | None) -> ServerSocket:
        """Open the supervisor's end. ``port`` 0: any free one; ``advertise``: the address that others are told."""

    @abstractmethod
    def connect(self, keys: WorkerKeys, bind: str, advertise: str | None, supervisor: tuple[str, Token]) -> Transport:
        """Open a worker's end; ``supervisor``: its address and the join token."""

    @abstractmethod
    def ask(self, address: str, keys: RunKeys, frames: Sequence[bytes], patience_s: float = ANSWER_S) -> list[bytes]:
        """Give the supervisor at ``address`` an order, as the run's owner, and return the answer. Raise
        ``SupervisorLost`` if none comes."""

    @abstractmethod
    def announcer(self, keys: RunKeys, members: Sequence[Member]) -> Announcer:
        """Return what tells ``members`` where the supervisor is, that came back at another address."""


def transport_of(address: str) -> TransportFactory:
    """Return the transport that ``address`` belongs to.

    >>> transport_of("tcp://10.0.0.7:7000").name
    'zmq'
    """
    from taut.plugins import TRANSPORTS

    scheme = address.partition("://")[0]
    factory: TransportFactory = TRANSPORTS.find("zmq" if scheme == "tcp" else scheme)()
    return factory
