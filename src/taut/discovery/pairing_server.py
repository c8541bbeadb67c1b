"""The supervisor's end of the pairing: a small TCP server in threads of its own. Anybody in the network may connect.

At most ``CONNECTIONS`` strangers are served at a time, each for ``LIMIT_S`` at most; others are cut off. What a thread
here raises ends that attempt and nothing else.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

from taut.discovery.code import CodeLimits
from taut.discovery.frames import Frames
from taut.discovery.pairing import WRONG_CODE, PairingFailed, Refusal, SupervisorSide, encode
from taut.engines.launchers.rendezvous import Offer
from taut.errors import Misuse
from taut.transport.endpoint import split

CONNECTIONS, LIMIT_S = 8, 10.0


class PairingServer:
    """Gives ``offer`` to workers that know the code. ``on_code`` is called from a thread with each new code.

    A context manager: it serves in the block. Raises ``Misuse`` where ``bind`` is no address of this host.
    """

    def __init__(
        self,
        offer: Offer,
        bind: str,
        on_code: Callable[[str], None],
        limits: CodeLimits | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offer, self._on_code, self._now = offer, on_code, now
        self._limits, self._lock = limits or CodeLimits(), threading.Lock()
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        host, _ = split(bind, "--bind")
        host = "0.0.0.0" if host == "*" else host
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._server = socket.create_server((host, 0), family=family, backlog=16)
        except OSError as error:
            raise Misuse(f"--bind {bind} ({error.strerror})", "an address of this host") from None
        self.port: int = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="pairing", daemon=True)

    @property
    def code(self) -> str:
        """Return the code of the moment."""
        with self._lock:
            return self._limits.code

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # which ends accept
        self._server.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                if self._server.fileno() < 0 or not _listens(self._server):
                    return
                time.sleep(0.05)  # no descriptors left: others are about to be freed
                continue
            if not self._free.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._attempt, args=(connection,), name="pairing", daemon=True).start()

    def _attempt(self, connection: socket.socket) -> None:
        try:
            with connection:
                frames = Frames(connection, LIMIT_S)
                try:
                    self._pair(frames)
                except PairingFailed as why:
                    with contextlib.suppress(PairingFailed):
                        frames.send(encode(Refusal(str(why))))
        finally:
            self._free.release()

    def _pair(self, frames: Frames) -> None:
        with self._lock:
            code, number, locked_s = self._limits.code, self._limits.number, self._limits.locked_s(self._now())
        if locked_s:
            raise PairingFailed(f"too many wrong codes: nobody is let in for {locked_s:.0f} s")
        side = SupervisorSide(code, self._offer)
        frames.send(side.answer(frames.receive()))
        proven = side.proven(frames.receive())
        with self._lock:
            let_in = self._limits.tried(number, proven, self._now())
            changed = self._limits.code if self._limits.number != number else None
        if changed is not None and (let_in or not proven):
            self._on_code(changed)
        if not let_in:
            raise PairingFailed(f"{WRONG_CODE}: type the one that the supervisor shows now")
        frames.send(side.grant())


def _listens(server: socket.socket) -> bool:
    try:
        return bool(server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False
