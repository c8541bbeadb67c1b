"""What a transport is: the one thing that the rest of taut knows of sockets.

A link carries whole messages (lists of frames), in order. It may lose what was under way when a connection
broke, and never says so: acknowledging and sending again is the strategy's log's work. Every transport must
pass ``taut.testing.checks.transport_check.check_transport``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from taut.core.messages import Member


class Envelope(NamedTuple):
    """A message as it arrived. ``sender`` is what the transport proved, never what the message claims."""

    sender: int
    frames: list[bytes]


class Transport(Protocol):
    """A worker's end of all its links.

    One thread at a time calls everything but ``wake`` (the communication thread of the process); it may be
    another one than the constructor's, as long as the object is handed over once.
    """

    @property
    def address(self) -> str:
        """Where peers reach it, e.g. ``tcp://10.0.0.3:41234``; known from construction on."""

    def admit(self, member: Member) -> None:
        """Take messages from ``member`` and connect to it. ``MalformedMessage`` if its key or address cannot
        be used. Admitting it again as it is changes nothing."""

    def forget(self, rank: int) -> None:
        """Disconnect; nothing more from ``rank`` is delivered. Unknown ranks are no error."""

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        """Queue one message for ``to`` (``SUPERVISOR`` for the supervisor). Never blocks. False: no room, or
        not connected, or not admitted; nothing was sent then. ``receive`` returns when there is room again.
        ``Misuse`` for a message over the transport's limit, which no receiver would take."""

    def receive(self, timeout_s: float | None) -> list[Envelope]:
        """What has arrived, a bounded part at a time. Waits for something to arrive, for ``wake``, for room
        on a link whose ``send`` was refused, or for the timeout (``None``: no limit). May return early with
        nothing."""

    def wake(self) -> None:
        """Make the present or the next ``receive`` return at once. From any thread; harmless after
        ``close``."""

    def close(self, linger_s: float = 0.0) -> None:
        """Give up all sockets, after at most ``linger_s`` spent on what is queued. Closing twice is
        harmless."""


class ServerSocket(Protocol):
    """The supervisor's end. ``connection`` names one worker's transport and stays the same when it
    reconnects.

    As with ``Transport``, everything but ``wake`` belongs to one thread at a time."""

    @property
    def address(self) -> str: ...

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        """Messages with the connection each came from; waits as ``Transport.receive`` does."""

    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        """Queue one message. Never blocks. False: no room or no such connection; nothing was sent."""

    def wake(self) -> None: ...

    def close(self, linger_s: float = 0.0) -> None: ...
