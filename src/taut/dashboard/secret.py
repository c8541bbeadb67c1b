"""The dashboard's own secret: its holder may steer the run, and look at it from elsewhere. It is not the workers' token:
joining a run and steering it are different rights.

It is a file in the run's folder that its user alone can read (mode 0600), and nowhere else: not in a command line, a log,
the store, or a URL that is sent (a link carries it behind ``#``, which browsers keep to themselves).
"""

from __future__ import annotations

import ipaddress
import secrets
from collections import OrderedDict
from pathlib import Path
from typing import Literal

from msgspec import Struct

from taut.core.clock import Clock
from taut.dashboard.limits import Limits
from taut.transport.keys import write_token_file

SECRET_FILE = "dashboard-token"
_PREFIX = "taut1-dashboard-"
_LONGEST = 256

Verdict = Literal["good", "missing", "wrong", "too often"]


def new_secret(folder: Path) -> Path:
    """Write a fresh secret for the run in ``folder``, and return its file; the one before is void."""
    path = folder / SECRET_FILE
    write_token_file(path, _PREFIX + secrets.token_urlsafe(32))
    return path


def read_secret(folder: Path) -> str | None:
    """Return the secret of the run in ``folder``; None where there is none, or where this user may not read it."""
    try:
        text = (folder / SECRET_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if text.startswith(_PREFIX) and len(text) > len(_PREFIX) + 32 else None


class _Allowance(Struct):
    left: float
    since_s: float


class SecretKeeper:
    """Compares the secrets of requests with the file as it is now, so that a secret is void the moment its file is
    replaced or removed.

    After ``limits.attempts`` wrong ones an address may try one every ``limits.attempt_every_s``, and is not even heard in
    between, be it right or wrong. (The secret has 256 bits; nobody guesses it. This keeps guessers from being any work.)
    """

    def __init__(self, folder: Path, limits: Limits, clock: Clock) -> None:
        self._folder, self._limits, self._clock = folder, limits, clock
        self._allowances: OrderedDict[str, _Allowance] = OrderedDict()

    def verdict(self, authorization: str | None, address: str) -> Verdict:
        """Judge a request's Authorization header (``Bearer SECRET``) from this address."""
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            return "missing"
        allowance = self._allowance(neighbourhood(address))
        if allowance.left < 1.0:
            return "too often"
        secret = read_secret(self._folder)
        # compared even where there is none, in a time that does not depend on how much of it is right
        told = given.strip().encode("latin-1", "replace")[:_LONGEST]
        same = secrets.compare_digest(told, (secret or "\0").encode("ascii"))
        if same and secret is not None:
            return "good"
        allowance.left -= 1.0
        return "wrong"

    def _allowance(self, key: str) -> _Allowance:
        now, limits = self._clock.now(), self._limits
        found = self._allowances.setdefault(key, _Allowance(float(limits.attempts), now))
        self._allowances.move_to_end(key)
        if len(self._allowances) > limits.addresses:
            self._allowances.popitem(last=False)
        found.left = min(float(limits.attempts), found.left + (now - found.since_s) / limits.attempt_every_s)
        found.since_s = now
        return found


def neighbourhood(address: str) -> str:
    """Return the key of an address: of IPv6 the network, since a host has all of it to itself.

    >>> neighbourhood("10.0.0.7"), neighbourhood("2001:db8::17:1"), neighbourhood("::ffff:10.0.0.7")
    ('10.0.0.7', '2001:db8::', '10.0.0.7')
    """
    plain = unmapped(address)
    return str(ipaddress.ip_network((plain, 64), strict=False).network_address) if ":" in plain else plain


def unmapped(address: str) -> str:
    """Return an address as people write it, without its interface; as IPv4 where it is one mapped into IPv6.

    >>> unmapped("::ffff:10.0.0.7"), unmapped("fe80::1%eth0")
    ('10.0.0.7', 'fe80::1')
    """
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "?"
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)
