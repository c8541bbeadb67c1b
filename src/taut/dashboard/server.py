"""The dashboard's server: a thread and an event loop of its own beside the supervisor's. Whatever happens in it, the run
goes on; it reads records that the supervisor leaves behind, and gives orders as ``taut drain`` does."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import logging
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import uvicorn
from msgspec import Struct
from uvicorn.protocols.http.h11_impl import H11Protocol

from taut.core.clock import MonotonicClock
from taut.core.files import write_atomically
from taut.dashboard.app import App
from taut.dashboard.guard import LOOPBACK
from taut.dashboard.history import History
from taut.dashboard.limits import Limits
from taut.dashboard.secret import SecretKeeper
from taut.dashboard.sources import Source
from taut.errors import Misuse
from taut.transport.endpoint import own_address, split

ADDRESS_FILE = "dashboard.json"
BACKLOG = 64
START_S, STOP_S = 10.0, 2.0
_LOG = logging.getLogger("taut.dashboard")


class Listening(Struct, frozen=True):
    """A socket that listens; no request is answered yet. ``loopback``: only this machine reaches it. ``hosts``: the names
    by which it may be asked for."""

    socket: socket.socket
    url: str
    loopback: bool
    hosts: frozenset[str]


def listen(host: str, port: int, advertise: str | None = None, send_nbytes: int = Limits().send_nbytes) -> Listening:
    """Listen on ``host`` (port 0: any free one). ``Misuse`` where that cannot be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise Misuse(f"dashboard at {host!r}", "an address of this host", "try 127.0.0.1, or 0.0.0.0 for all") from None
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_nbytes)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise _bind_error(error, host, port) from None
    bound, port = listener.getsockname()[:2]
    ip = ipaddress.ip_address(bound.partition("%")[0])
    outside = bound if ip.is_loopback else _outside(ip, advertise)
    names = LOOPBACK if ip.is_loopback or ip.is_unspecified else frozenset()
    given = {_bracket(one.lower()) for one in (host, bound, outside, "" if ip.is_loopback else socket.gethostname())}
    return Listening(listener, f"http://{_bracket(outside)}:{port}/", ip.is_loopback, names | (given - {""}))


def _outside(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, advertise: str | None) -> str:
    """Return the name that others reach this host by. The port that ``advertise`` may have is the supervisor's."""
    if advertise:
        return split(advertise, "advertise")[0]
    return own_address() if ip.is_unspecified else str(ip)


class Dashboard:
    """Serves ``source`` at ``listening``, with the secret in ``folder``, from `start` to `close`."""

    def __init__(
        self,
        listening: Listening,
        source: Source,
        folder: Path,
        *,
        limits: Limits | None = None,
        every_s: float = 1.0,
        history: History | None = None,
    ) -> None:
        limits = limits or Limits()
        self.url, self._socket, self._folder = listening.url, listening.socket, folder
        self._app = App(
            source,
            SecretKeeper(folder, limits, MonotonicClock()),
            hosts=listening.hosts,
            secret_for_all=not listening.loopback,
            limits=limits,
            every_s=every_s,
            history=history or History(every_s),
        )
        self._server = _Server(_config(self._app, limits))
        self._thread = threading.Thread(target=self._serve, name="dashboard", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = threading.Event()

    def start(self) -> Self:
        """Start to serve in a thread, and return when it does."""
        self._thread.start()
        self._began.wait(START_S)
        bind, port = self._socket.getsockname()[:2]
        found = {"url": self.url, "host": socket.gethostname(), "pid": os.getpid(), "bind": bind, "port": port}
        try:
            write_atomically(self._folder / ADDRESS_FILE, json.dumps(found).encode())
        except OSError as error:
            _LOG.warning("%s could not be written: %s", self._folder / ADDRESS_FILE, error.strerror)
        return self

    def close(self) -> None:
        """Show everybody the end, and stop; two seconds at most. Closing twice is harmless."""
        if self._loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # it ended just now
                self._loop.call_soon_threadsafe(self._app.poller.close)
            self._server.should_exit = True
            self._thread.join(STOP_S + 1.0)
        self._socket.close()
        (self._folder / ADDRESS_FILE).unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            asyncio.run(self._life())
        except BaseException:  # SystemExit too, which uvicorn raises: nobody else's thread is to end by it
            _LOG.exception("the dashboard ended by an error; the run goes on")
        finally:
            self._began.set()

    async def _life(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._server.began = self._began
        await self._server.serve([self._socket])


class _Server(uvicorn.Server):
    """A server that sets ``began`` when it serves."""

    began: threading.Event

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.began.set()


class BoundedConnection(H11Protocol):
    """A connection that is closed at once where there are too many, and later where the request does not come or the
    client does not read. uvicorn waits for ever for both; each such connection holds a file descriptor of the
    supervisor's process."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        # Nothing waits in this process: as soon as the kernel takes no more, `pause_writing` is called.
        transport.set_write_buffer_limits(high=0)
        self._waiting = self.loop.call_later(self.limits.request_s, self._expect_request)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waiting, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.limits.stuck_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _expect_request(self) -> None:
        if self.cycle is None or self.cycle.more_body:
            self.transport.abort()


def _config(app: App, limits: Limits) -> uvicorn.Config:
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # strangers must not fill the terminal; app.py logs our bugs
    return uvicorn.Config(
        app,
        http=type(
            "BoundedConnection", (BoundedConnection,), {"limits": limits}
        ),  # uvicorn makes connections from a class
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nobody's word for where a request came from
        server_header=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=limits.head_nbytes,
        timeout_graceful_shutdown=int(STOP_S) or 1,
    )


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bind_error(error: OSError, host: str, port: int) -> Misuse:
    if error.errno == errno.EADDRINUSE:
        return Misuse(f"dashboard at port {port} of {host}", "a free port", "leave the port out to get any free one")
    if error.errno == errno.EACCES:
        return Misuse(f"dashboard at port {port} of {host}", "a port this user may open", "try one above 1023")
    return Misuse(f"dashboard at {host!r} ({error.strerror})", "an address of this host", "try 127.0.0.1")
