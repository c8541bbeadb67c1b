"""A rendezvous in a ``torch.distributed.TCPStore``. The store is neither authenticated nor encrypted: whoever reaches its
port can read and write it. So it holds the supervisor's address and the path of the token's file; the token itself only
where a process asks for it, and only until the run has started."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from taut.engines.launchers.rendezvous import Offer, Rendezvous, decode
from taut.errors import Misuse, NetworkError

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

CONNECT_S = 2.0
ANSWER = timedelta(seconds=10)


class StoreRendezvous(Rendezvous):
    """A store at ``host``, at the first of ``ports`` that answers; ``serves``: this process serves it there."""

    def __init__(self, host: str, ports: Sequence[int], prefix: str, *, serves: bool) -> None:
        self._host, self._ports, self._serves = host, list(ports), serves
        self._offer, self._asks, self._token = f"{prefix}/offer", f"{prefix}/asks", f"{prefix}/token"
        self._store: TCPStore | None = None
        self._answered = False
        self._why = "nothing was left there"

    @property
    def place(self) -> str:
        ports = " or ".join(map(str, self._ports))
        return f"the store at {self._host or '(MASTER_ADDR is not set)'}:{ports} ({self._why})"

    def leave(self, offer: Offer) -> None:
        store = self._served() if self._serves else self._reached()
        if store is None:
            raise NetworkError(f"rank 0 could not reach {self.place}")
        store.set(self._offer, offer.encode().decode())

    def look(self) -> Offer | None:
        store = self._reached()
        try:
            if store is None or not store.check([self._offer]):
                return None
            offer = decode(store.get(self._offer))
            if store.check([self._token]):
                return Offer(offer.address, offer.run, offer.token_file, decode(store.get(self._token)).token)
            return offer
        except RuntimeError as error:  # DistNetworkError: the store is gone, and may come back
            self._store, self._why = None, str(error).splitlines()[0][:200]
            return None

    def ask(self, rank: int) -> None:
        if self._store is not None:
            self._store.set(self._asks, str(rank))

    def serve(self, token: str) -> None:
        if self._store is not None and not self._answered and self._store.check([self._asks]):
            self._store.set(self._token, Offer(token=token).encode().decode())
            self._answered = True

    def close(self) -> None:
        """Take the token out of the store again; the address stays for processes that torchrun may still start."""
        store, self._store = self._store, None
        if store is not None and self._answered:
            with contextlib.suppress(RuntimeError):  # the store is gone, and the token with it
                store.delete_key(self._token)

    def _served(self) -> TCPStore:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        for port in self._ports:
            try:
                self._store = TCPStore(  # it listens on all addresses, and this process reaches it here
                    "localhost", port, is_master=True, wait_for_workers=False, timeout=ANSWER, multi_tenant=True
                )
                return self._store
            except RuntimeError as error:  # DistNetworkError: the port is taken
                self._why = str(error).splitlines()[0][:200]
        raise Misuse(f"port {' and '.join(map(str, self._ports))} on {self._host}", "a free port", self._why)

    def _reached(self) -> TCPStore | None:
        """Return the store, or None while nothing answers there."""
        if self._store is None and self._host:
            for port in self._ports:
                if self._answers(port):
                    from torch.distributed import TCPStore  # type: ignore[attr-defined]

                    try:
                        self._store = TCPStore(self._host, port, is_master=False, wait_for_workers=False, timeout=ANSWER)
                        break
                    except RuntimeError as error:
                        self._why = str(error).splitlines()[0][:200]
        return self._store

    def _answers(self, port: int) -> bool:
        """Return whether anything listens at ``port``: a store's own attempts would fill the log."""
        try:
            with socket.create_connection((self._host, port), timeout=CONNECT_S):
                return True
        except OSError as error:
            self._why = (error.strerror or str(error)).lower()
            return False
