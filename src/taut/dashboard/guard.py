"""The requests that are heard at all: defence against web pages that the user has open. Pure.

A page from elsewhere can make the user's browser send requests to this server. Three things stop it, each by itself:

- the Host header must name this server. A name of the attacker's that was made to point here (DNS rebinding) does not;
- Origin and Sec-Fetch-Site, which browsers set and scripts cannot, must say that the request comes from our own page;
- what changes something needs the secret in an Authorization header, and a body of type application/json. Both make a
  browser ask for permission first (CORS), which is never given: no answer has an Access-Control header.

There is no cookie. A browser attaches cookies by itself, to any request, and for localhost those of one port to all other
ports, whoever listens there: the secret in a header has neither fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
PAGE = "/"
_HOST = re.compile(r"(\[[0-9a-f:.]{2,45}\]|[a-z0-9]([a-z0-9._-]{0,252}))(:[0-9]{1,5})?")
_ONCE = ("host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "content-type", "authorization")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",  # one request each: the limits of a connection are those of a request
}
"""On every answer."""


class Declined(Exception):
    """A request that is answered with an error. You never get it: it ends in the answer."""

    def __init__(self, status: int, error: str, remedy: str = "", headers: dict[str, str] | None = None) -> None:
        self.status, self.error, self.remedy, self.headers = status, error, remedy, headers or {}
        super().__init__(error)


class Asked(Struct, frozen=True):
    """The parts of a request that the guard checks. ``at``: the address of this host that the connection was made to."""

    method: str
    path: str
    at: str
    headers: dict[str, str]

    @classmethod
    def parse(cls, method: str, path: str, at: str, headers: Iterable[tuple[bytes, bytes]]) -> Asked:
        """Read the headers; decline a request where one that decides is there twice: a proxy may have taken the other."""
        found: dict[str, str] = {}
        for name, value in headers:
            key = name.decode("latin-1").lower()
            if key in found and key in _ONCE:
                raise Declined(400, f"the header {key} twice", "send it once")
            found[key] = value.decode("latin-1").strip()
        return cls(method, path, at, found)


def check(asked: Asked, hosts: frozenset[str]) -> None:
    """Decline a request that is not for this server, or not from its own page. ``hosts``: the names of this server.

    >>> check(Asked("GET", "/api/run", "127.0.0.1", {"host": "localhost:8000"}), LOOPBACK)
    >>> check(Asked("GET", "/api/run", "127.0.0.1", {"host": "evil.example"}), LOOPBACK)
    Traceback (most recent call last):
    taut.dashboard.guard.Declined: this is not the server of 'evil.example'
    """
    _check_host(asked, hosts)
    if asked.method not in ("GET", "HEAD", "POST"):
        raise Declined(405, f"the method {asked.method[:20]}", "GET or POST", {"Allow": "GET, HEAD, POST"})
    _check_origin(asked)
    if asked.method == "POST":
        kind = asked.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Declined(415, "a body that is not JSON", "send Content-Type: application/json")


def _check_host(asked: Asked, hosts: frozenset[str]) -> None:
    given = asked.headers.get("host", "").lower()
    match = _HOST.fullmatch(given)
    here = f"[{asked.at}]" if ":" in asked.at else asked.at
    # Any port: through a tunnel (ssh -L) the browser's differs from ours. Names are what an attacker would lack.
    if match is None or (match[1] not in hosts and match[1] != here):
        remedy = f"open it as one of {', '.join(sorted(hosts))}, or name this host with --advertise"
        raise Declined(421, f"this is not the server of {given[:100]!r}", remedy)


def _check_origin(asked: Asked) -> None:
    origin = asked.headers.get("origin")
    host = asked.headers["host"].lower()
    if origin is not None and origin.lower() not in (f"http://{host}", f"https://{host}"):
        raise Declined(403, "a request from another site's page", "open the dashboard itself")
    site = asked.headers.get("sec-fetch-site")
    ours = (None, "same-origin") if asked.method == "POST" else (None, "same-origin", "none")
    if site not in ours and not _follows_a_link(asked):
        raise Declined(403, "a request from another site's page", "open the dashboard itself")


def _follows_a_link(asked: Asked) -> bool:
    """Return whether a link elsewhere leads to the page, which holds nothing; the API and frames are not reached so."""
    mode, dest = asked.headers.get("sec-fetch-mode"), asked.headers.get("sec-fetch-dest")
    return asked.method != "POST" and asked.path == PAGE and mode == "navigate" and dest == "document"
