"""The run's keys, the join token, and each worker's own pair. Whoever holds the token may join; nobody else gets a byte.

The supervisor has a CURVE pair and a random join secret. The token carries the supervisor's public key (so a joiner knows
whom it talks to) and the join secret, from which a CURVE client pair is derived (so the supervisor knows that the joiner
holds the token). Between workers each uses its own pair, whose public half the supervisor hands round. A run may have
several join secrets, by name, which expire or are revoked, each by itself; and whoever can read its keys, the owner, has
a pair of its own to give orders with.

    client secret = blake2b(join secret, person = "taut-join-client")
    owner's secret = blake2b(supervisor's secret, person = "taut-run-owner")
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
import secrets
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import zmq
from zmq.utils import z85

from taut.core.files import write_atomically
from taut.errors import Misuse, StorageFailed
from taut.specs import did_you_mean

FIRST = "first"  # the name of the token that a run begins with
MOST_TOKENS = 255  # beside it
_PREFIX = "taut1-"
_RUN_PREFIX = "taut1-run-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class WorkerKeys:
    """A worker's own CURVE pair, in z85. ``public_key`` goes into ``Hello`` and ``Member``."""

    public_key: str
    secret_key: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> WorkerKeys:
        public, secret = zmq.curve_keypair()
        return cls(public.decode("ascii"), secret)


@dataclass(frozen=True, slots=True)
class Token:
    """What a joiner needs: whom to trust, and the pair that proves it was let in. All in z85."""

    server_public: bytes
    client_public: bytes
    client_secret: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Token:
        """Return the token in ``text``; raise ``Misuse`` if it is none (the message never quotes it).

        >>> Token.parse(RunKeys.generate().token).client_secret == b"guessed"
        False
        """
        raw = _unpack(text, _PREFIX, "a join token")
        return cls._derive(z85.encode(raw[:32]), raw[32:])

    @classmethod
    def _derive(cls, server_public: bytes, secret: bytes, person: bytes = b"taut-join-client") -> Token:
        digest = hashlib.blake2b(secret, digest_size=32, person=person)
        client_secret = z85.encode(digest.digest())
        return cls(server_public, zmq.curve_public(client_secret), client_secret)


@dataclass(frozen=True, slots=True)
class JoinSecret:
    """One of a run's rights to join, by name; ``expires_at`` in seconds since 1970, None: never."""

    name: str
    secret: bytes = field(repr=False)
    expires_at: float | None = None

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The supervisor's side: its CURVE pair (z85), the join secret (32 bytes) that every run begins with, named
    ``first``, and ``more`` of them. ``revoked``: names of those that are void.

    >>> keys = RunKeys.generate().issue("guests", expires_at=100.0)
    >>> [one.name for one in keys.join_secrets], keys.revoke("first").revoked
    (['first', 'guests'], frozenset({'first'}))
    """

    server_public: bytes
    server_secret: bytes = field(repr=False)
    join_secret: bytes = field(repr=False)
    more: tuple[JoinSecret, ...] = ()
    revoked: frozenset[str] = frozenset()

    @classmethod
    def generate(cls) -> RunKeys:
        public, secret = zmq.curve_keypair()
        return cls(public, secret, secrets.token_bytes(32))

    @property
    def join_secrets(self) -> tuple[JoinSecret, ...]:
        """Return all join secrets that were ever issued, the void ones too."""
        return (JoinSecret(FIRST, self.join_secret), *self.more)

    @property
    def token(self) -> str:
        """Return the first token, ``taut1-`` and 86 letters: the whole right to join. Treat it as a password."""
        return self.token_of(FIRST)

    def token_of(self, name: str) -> str:
        """Return the token with the join secret ``name``."""
        return _PREFIX + _base64(z85.decode(self.server_public) + self._named(name).secret)

    @property
    def client_public(self) -> bytes:
        """Return the client key (z85) of the first token."""
        return Token._derive(self.server_public, self.join_secret).client_public

    @property
    def admin(self) -> Token:
        """Return the pair that the run's owner speaks to the supervisor with: whoever can read the keys can make it."""
        return Token._derive(self.server_public, z85.decode(self.server_secret), b"taut-run-owner")

    def issue(self, name: str, expires_at: float | None = None) -> RunKeys:
        """Return these keys with one more join secret. Raise ``Misuse`` for a name that is taken or cannot be one."""
        if not _NAME.fullmatch(name):
            raise Misuse(f"token name {name!r}", "up to 32 letters, digits, '-' and '_'", "as in --name guests")
        if any(one.name == name for one in self.join_secrets):
            remedy = "`taut token list RUN` shows them"
            raise Misuse(f"token name {name!r}", "a name that no token of this run had", remedy)
        if len(self.more) >= MOST_TOKENS:
            raise Misuse(f"token {len(self.more) + 2} of this run", f"at most {MOST_TOKENS + 1}")
        return replace(self, more=(*self.more, JoinSecret(name, secrets.token_bytes(32), expires_at)))

    def revoke(self, name: str) -> RunKeys:
        """Return these keys with the token ``name`` void. Raise ``Misuse`` for one that there is not."""
        return replace(self, revoked=self.revoked | {self._named(name).name})

    def _named(self, name: str) -> JoinSecret:
        found = {one.name: one for one in self.join_secrets}
        if name not in found:
            raise Misuse(f"token {name!r}", f"one of {', '.join(found)}", did_you_mean(name, found))
        return found[name]

    @property
    def text(self) -> str:
        """Return everything, for the supervisor's own store: a supervisor that comes back is the one that workers trust.
        There is a line for the run, and one for each further token."""
        lines = [_RUN_PREFIX + _base64(z85.decode(self.server_secret) + self.join_secret)]
        for one in self.more:
            expires = "never" if one.expires_at is None else repr(one.expires_at)
            lines.append(f"token {one.name} {expires} {_base64(one.secret)}")
        return "\n".join([*lines, *(f"revoked {name}" for name in sorted(self.revoked))])

    @classmethod
    def parse(cls, text: str) -> RunKeys:
        """Return the keys in ``text``, its inverse.

        >>> keys = RunKeys.generate().issue("guests", expires_at=1.5).revoke("first")
        >>> RunKeys.parse(keys.text) == keys
        True
        """
        first, *rest = text.strip().splitlines() or [""]
        raw = _unpack(first, _RUN_PREFIX, "a run's keys")
        secret = z85.encode(raw[:32])
        keys = cls(zmq.curve_public(secret), secret, raw[32:])
        for number, line in enumerate(rest, start=2):
            keys = _with_line(keys, line, number)
        return keys


def _with_line(keys: RunKeys, line: str, number: int) -> RunKeys:
    """Add one more line of a keys file. Errors tell the line's number alone: it may hold a secret."""
    try:
        match line.split():
            case ["token", name, expires, body]:
                secret = base64.b64decode(body.encode("ascii") + b"=", altchars=b"-_", validate=True)
                expires_at = None if expires == "never" else float(expires)
                if len(secret) == 32 and _NAME.fullmatch(name) and (expires_at is None or math.isfinite(expires_at)):
                    return replace(keys, more=(*keys.more, JoinSecret(name, secret, expires_at)))
            case ["revoked", name]:
                return keys.revoke(name)
    except (ValueError, binascii.Error):  # Misuse is a ValueError too
        pass
    what = f"line {number} of a run's keys (not shown)"
    raise Misuse(what, "a token or its revocation", "the file is damaged") from None


def is_public_key(text: str) -> bool:
    """Whether ``text`` can be a worker's public key (40 letters of z85)."""
    try:
        return len(text) == 40 and z85.encode(z85.decode(text)).decode("ascii") == text
    except (ValueError, KeyError, struct.error):
        return False


def write_token_file(path: str | Path, token: str) -> None:
    """Write ``token`` (or ``RunKeys.text``) where only this user can read it, whole or not at all."""
    try:
        write_atomically(path, f"{token}\n".encode("ascii"), mode=0o600)
    except OSError as error:
        raise StorageFailed(f"the token file {path} could not be written: {error.strerror}") from error


def read_token_file(path: str | Path) -> str:
    """Return the token in ``path``, as text; it is checked by ``Token.parse``."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misuse(
            f"token file {path} ({reason})",
            "a readable file that holds the run's join token",
            "copy the token file that `taut supervisor` names when it starts, or set TAUT_TOKEN",
        ) from None


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def _unpack(text: str, prefix: str, what: str) -> bytes:
    """Return the 64 bytes after ``prefix``. Errors tell the length alone: a token must not end up in a log."""
    text = text.strip()
    body = text.removeprefix(prefix)
    try:
        raw = base64.b64decode(body.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not text.startswith(prefix) or len(raw) != 64 or _base64(raw) != body:
        raise Misuse(
            f"{what} of {len(text)} characters (not shown)",
            f"{prefix!r} followed by 86 letters, digits, '-' and '_'",
            "copy it whole, from the token file of the supervisor",
        ) from None
    return raw
