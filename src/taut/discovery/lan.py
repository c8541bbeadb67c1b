"""DNS-SD (RFC 6763) over multicast DNS (RFC 6762), by the package ``zeroconf``: a supervisor announces its pairing server
as a service ``_taut._tcp``, and workers browse for it. Nothing of that is secret, and nothing of it is believed: whoever
answers has to prove that it knows the code."""

from __future__ import annotations

import hashlib
import ipaddress
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from taut import __version__
from taut.core.printable import printable
from taut.errors import Misuse
from taut.transport.endpoint import split

if TYPE_CHECKING:
    from zeroconf import InterfaceChoice, ServiceStateChange, Zeroconf

TYPE = "_taut._tcp.local."
ANY = ("", "*", "0.0.0.0", "::")
MORE_S = 1.0  # after the first one: others may answer, too
RESOLVE_MS, TRIES = 2000, 3
MOST = 64  # services that are looked at


@dataclass(frozen=True)
class Service:
    """A pairing server, as it is announced."""

    run: str
    address: str
    version: str


def label(run: str) -> str:
    """Return the run's name as one label of DNS, which has no dots and at most 63 bytes.

    >>> label("calm-otter"), len(label("x" * 200))
    ('calm-otter', 63)
    """
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in run)
    if plain == run and len(plain) <= 63:
        return plain
    return f"{plain[:54]}-{hashlib.sha256(run.encode()).hexdigest()[:8]}"


def interfaces(bind: str | None) -> InterfaceChoice | list[str]:
    """Return the interfaces to speak on: the one of ``bind``, else all of them."""
    from zeroconf import InterfaceChoice

    host = split(bind, "--bind")[0] if bind else ""
    return InterfaceChoice.All if host in ANY else [host]


def _zeroconf(bind: str | None) -> Zeroconf:
    from zeroconf import Zeroconf

    try:
        return Zeroconf(interfaces=interfaces(bind))
    except (OSError, ValueError) as error:
        remedy = "give --join ADDRESS to workers instead"
        raise Misuse(f"multicast DNS ({error})", "a network interface with multicast", remedy) from None


class LanAnnouncer:
    """Announces the pairing server of ``run`` during the block: at ``port`` of the host in the run's ``address``."""

    def __init__(self, run: str, address: str, port: int, bind: str) -> None:
        from zeroconf import ServiceInfo

        host = split(address, "address")[0]
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]
        except OSError as error:
            raise Misuse(f"--advertise {host} ({error.strerror})", "a host whose address is known here") from None
        self._info = ServiceInfo(
            TYPE,
            f"{label(run)}.{TYPE}",
            addresses=[ipaddress.ip_address(found).packed],
            port=port,
            properties={"run": run[:200], "version": __version__},
            server=f"{label(f'{socket.gethostname()}-{port}')}.local.",
        )
        self._zeroconf = _zeroconf(bind)

    def __enter__(self) -> Self:
        try:
            self._zeroconf.register_service(self._info, allow_name_change=True)
        except BaseException:
            self._zeroconf.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._zeroconf.unregister_service(self._info)
        self._zeroconf.close()


def browse(run: str | None, limit_s: float, bind: str | None = None) -> list[Service]:
    """Return the services that answer: those within a second of the first of ``run`` (None: of any), or none after
    ``limit_s``."""
    from zeroconf import ServiceBrowser, ServiceStateChange

    names: dict[str, None] = {}
    came = threading.Condition()

    def changed(zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        with came:
            if state_change is ServiceStateChange.Removed:
                names.pop(name, None)
            elif len(names) < MOST:
                names[name] = None
            came.notify()

    def unresolved() -> list[str]:
        return [name for name in names if name not in found and tries.get(name, 0) < TRIES]

    found, tries = dict[str, Service](), dict[str, int]()
    zeroconf, until_s = _zeroconf(bind), time.monotonic() + limit_s
    try:
        browser = ServiceBrowser(zeroconf, TYPE, handlers=[changed])
        ends_s = until_s
        while (left_s := ends_s - time.monotonic()) > 0:
            with came:
                came.wait_for(unresolved, left_s)
                new = unresolved()
            for name in new:
                tries[name] = tries.get(name, 0) + 1
                if (service := _resolved(zeroconf, name)) is not None:
                    found[name] = service
            if ends_s == until_s and any(run in (None, one.run) for one in found.values()):
                ends_s = min(until_s, time.monotonic() + MORE_S)
        browser.cancel()
    finally:
        zeroconf.close()
    return [one for name, one in found.items() if name in names]


def _resolved(zeroconf: Zeroconf, name: str) -> Service | None:
    """Return the service of that name; None for one that does not say where it is, or of which run."""
    from zeroconf import ServiceInfo

    info = ServiceInfo(TYPE, name)
    if not info.request(zeroconf, RESOLVE_MS):
        return None
    told = {key: value or b"" for key, value in info.properties.items()}
    run, version = (told.get(key, b"").decode("utf-8", "replace")[:200] for key in (b"run", b"version"))
    addresses = info.parsed_addresses()
    if not run or printable(run) != run or not addresses or not info.port:
        return None
    host = addresses[0]
    return Service(run, f"{f'[{host}]' if ':' in host else host}:{info.port}", printable(version))
