"""The worker's end of the pairing, over TCP."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from taut.discovery.frames import Frames
from taut.discovery.pairing import PairingFailed, WorkerSide
from taut.transport.endpoint import split

if TYPE_CHECKING:
    from taut.discovery.choice import Announced
    from taut.engines.launchers.rendezvous import Offer

LIMIT_S = 20.0


def pair(service: Announced, code: str) -> Offer:
    """Return the address and the token of the supervisor whose pairing server is at ``service.address``. Raise ``Misuse``
    for a code that is none, ``PairingFailed`` for a wrong one."""
    side = WorkerSide(code, service.run)
    try:
        connection = socket.create_connection(split(service.address, "address"), timeout=LIMIT_S)
    except OSError as error:
        raise PairingFailed(f"{service.address} does not answer: {error.strerror or error}") from None
    with connection:
        frames = Frames(connection, LIMIT_S)
        frames.send(side.start())
        frames.send(side.confirm(frames.receive()))
        return side.taken(frames.receive())
