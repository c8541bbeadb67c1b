"""The run's keys, the join token, and each worker's own pair. Whoever holds the token may join; nobody else
gets a byte.

The supervisor has a CURVE pair and a random join secret. The token carries the supervisor's public key (so a
joiner knows whom it talks to) and the join secret, from which a CURVE client pair is derived (so the
supervisor knows that the joiner holds the token). Between workers each uses its own pair, whose public half
the supervisor hands round.

    client secret = blake2b(join secret, person = "taut-join-client")
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import secrets
import struct
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from taut.errors import Misuse, StorageFailed

_PREFIX = "taut1-"
_RUN_PREFIX = "taut1-run-"


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
        """The token in ``text``; ``Misuse`` if it is none (the message never quotes it).

        >>> Token.parse(RunKeys.generate().token).client_secret == b"guessed"
        False
        """
        raw = _unpack(text, _PREFIX, "a join token")
        return cls._derive(z85.encode(raw[:32]), raw[32:])

    @classmethod
    def _derive(cls, server_public: bytes, join_secret: bytes) -> Token:
        digest = hashlib.blake2b(join_secret, digest_size=32, person=b"taut-join-client")
        client_secret = z85.encode(digest.digest())
        return cls(server_public, zmq.curve_public(client_secret), client_secret)


@dataclass(frozen=True, slots=True)
class RunKeys:
    """The supervisor's side: its CURVE pair (z85) and the join secret (32 bytes)."""

    server_public: bytes
    server_secret: bytes = field(repr=False)
    join_secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> RunKeys:
        public, secret = zmq.curve_keypair()
        return cls(public, secret, secrets.token_bytes(32))

    @property
    def token(self) -> str:
        """``taut1-`` and 86 letters: the whole right to join. Treat it as a password."""
        return _PREFIX + _base64(z85.decode(self.server_public) + self.join_secret)

    @property
    def client_public(self) -> bytes:
        """The one client key (z85) that the supervisor's socket lets in."""
        return Token._derive(self.server_public, self.join_secret).client_public

    @property
    def text(self) -> str:
        """Everything, for the supervisor's own store: a supervisor that comes back is the one that workers
        trust."""
        return _RUN_PREFIX + _base64(z85.decode(self.server_secret) + self.join_secret)

    @classmethod
    def parse(cls, text: str) -> RunKeys:
        """Inverse of ``text``.

        >>> keys = RunKeys.generate()
        >>> RunKeys.parse(keys.text) == keys
        True
        """
        raw = _unpack(text, _RUN_PREFIX, "a run's keys")
        secret = z85.encode(raw[:32])
        return cls(zmq.curve_public(secret), secret, raw[32:])


def is_public_key(text: str) -> bool:
    """Whether ``text`` can be a worker's public key (40 letters of z85)."""
    try:
        return len(text) == 40 and z85.encode(z85.decode(text)).decode("ascii") == text
    except (ValueError, KeyError, struct.error):
        return False


def write_token_file(path: str | Path, token: str) -> None:
    """Write ``token`` (or ``RunKeys.text``) where only this user can read it, whole or not at all."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(token + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageFailed(f"the token file {path} could not be written: {error.strerror}") from error


def read_token_file(path: str | Path) -> str:
    """The token in ``path``, as text; it is checked by ``Token.parse``."""
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
    """The 64 bytes after ``prefix``. Errors tell the length alone: a token must not end up in a log."""
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
