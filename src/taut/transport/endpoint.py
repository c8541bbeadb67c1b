"""Binding to an address, and finding out under which address others reach this host."""

from __future__ import annotations

import errno
import socket

import zmq

from taut.errors import Misuse

_ANY = ("0.0.0.0", "::", "*")


def split(text: str, what: str) -> tuple[str, int]:
    """Return host and port of ``host``, ``host:port``, ``::1`` or ``[::1]:port``; port 0 where none is given.

    >>> split("10.0.0.3:7000", "bind"), split("::1", "bind"), split("[::1]:7000", "bind")
    (('10.0.0.3', 7000), ('::1', 0), ('::1', 7000))
    """
    host, port = text.strip().removeprefix("tcp://"), ""
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host or any(c.isspace() or c == "/" for c in host) or not _is_port(port):
        example = "10.0.0.7:7000" if what == "--join" else "0.0.0.0 or 0.0.0.0:7000"
        raise Misuse(f"{what} {text!r}", "HOST or HOST:PORT with a port up to 65535", f"try {example}")
    return host, int(port or 0)


def bind(server: zmq.Socket[bytes], to: str, advertise: str | None, towards: str | None = None) -> str:
    """Bind ``server`` to the host and port ``to`` (port 0: any free one); returns the address others connect to.

    ``advertise`` (host or host:port) overrides it; bound to all interfaces without it, this host's own address is found,
    the one that is used towards the address ``towards`` if that is given.
    """
    host, port = split(to, "bind")
    public_host, public_port = split(advertise, "advertise") if advertise else ("", 0)
    address = _resolve("0.0.0.0" if host == "*" else host)
    if ":" in address:
        server.setsockopt(zmq.IPV6, 1)
    try:
        server.bind(f"tcp://{_bracket(address)}:{port or '*'}")
    except zmq.ZMQError as error:
        raise _bind_error(error, host, port) from None
    bound_port = int(server.get_string(zmq.LAST_ENDPOINT).rpartition(":")[2].rstrip("\0"))
    if not public_host:
        public_host = own_address(towards) if host in _ANY else address
    return f"tcp://{_bracket(public_host)}:{public_port or bound_port}"


def own_address(towards: str | None = None) -> str:
    """Return the address that this host uses to reach ``towards``, else the outside world, else itself. Sends nothing."""
    candidates = [split(towards, "address")[0]] if towards else []
    for target in [*candidates, "198.51.100.1"]:  # a documentation address: only the routing table is asked
        try:
            family = socket.AF_INET6 if ":" in target else socket.AF_INET
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def is_own(address: str) -> bool:
    """Return whether ``address`` is one of this host's own: it is reached from itself. Sends nothing."""
    try:
        host = split(address, "address")[0]
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return bool(probe.getsockname()[0] == probe.getpeername()[0])
    except (Misuse, OSError):
        return False


def is_tcp_address(text: str) -> bool:
    """Whether ``text`` is ``tcp://host:port``: the only kind of address that is taken from the network."""
    try:
        return text.startswith("tcp://") and split(text, "address")[1] > 0 and text.isascii()
    except Misuse:
        return False


def _is_port(text: str) -> bool:
    return text in ("", "*") or (text.isascii() and text.isdigit() and int(text) <= 65535)


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _resolve(host: str) -> str:
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        raise Misuse(f"bind {host!r}", "an address of this host", "try 0.0.0.0 for all its addresses") from None


def _bind_error(error: zmq.ZMQError, host: str, port: int) -> Misuse:
    if error.errno == errno.EADDRINUSE:
        return Misuse(
            f"port {port} of {host}",
            "a free port",
            "another process listens there: leave the port out to get any free one, or name another",
        )
    if error.errno == errno.EACCES:
        return Misuse(f"port {port} of {host}", "a port this user may open", "try one above 1023")
    return Misuse(f"bind {host!r} ({error.strerror})", "an address of this host", "try 0.0.0.0 for all its addresses")
