"""ZeroMQ under another name: the supervisor's address is ``tunnel://HOST:PORT``."""

from __future__ import annotations

from typing import Any, ClassVar

from taut.transport.zmq.factory import Zmq
from taut.transport.zmq.server import SupervisorSocket


class TunnelSocket(SupervisorSocket):
    """The supervisor's end."""

    @property
    def address(self) -> str:
        return super().address.replace("tcp:", "tunnel:")


class Tunnel(Zmq):
    """``--transport tunnel``."""

    name: ClassVar[str] = "tunnel"
    scheme: ClassVar[str] = "tunnel"

    def listen(self, keys: Any, bind: str, port: int, advertise: str | None) -> Any:
        return TunnelSocket(keys, bind=bind, port=port, advertise=advertise)

    def connect(self, keys: Any, bind: str, advertise: str | None, supervisor: Any) -> Any:
        address, token = supervisor
        return super().connect(keys, bind, advertise, (address.replace("tunnel:", "tcp:"), token))

    def ask(self, address: str, *rest: Any) -> Any:
        return super().ask(address.replace("tunnel:", "tcp:"), *rest)
