"""Pairing by a short code: SPAKE2, a confirmation by each side, then the run's token under the key that both have.

    worker -> supervisor   Start    run, X
    worker <- supervisor   Answer   run, address, Y
    worker -> supervisor   Confirm  HMAC(k_worker, T)
    worker <- supervisor   Grant    HMAC(k_supervisor, T), AEAD(k_token, T; token)

X and Y are SPAKE2's messages, T is the hash of Start and Answer as they were sent: it has the run's name, the address
and, by the message types, the roles. All three keys come from SPAKE2's by HKDF, with T as the salt. The worker confirms
first: who does not know the code gets nothing to compare guesses with. Every message has one encoding, and no other is
taken.

SPAKE2: M. Abdalla, D. Pointcheval, "Simple Password-Based Encrypted Key Exchange Protocols", CT-RSA 2005; RFC 9382. The
package is ``spake2`` (Ed25519), which magic-wormhole uses. No sockets here.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, TypeVar

import msgspec

from taut.core.printable import printable
from taut.discovery.code import parse_code
from taut.engines.launchers.rendezvous import Offer
from taut.errors import Refused
from taut.transport.endpoint import is_tcp_address

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from spake2 import SPAKE2_A, SPAKE2_B

MESSAGE_NBYTES = 2048
NAME = "taut-pair-1"
WRONG_CODE = "wrong code"
_NONCE = bytes(12)  # each key seals one message


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True, tag=True):
    """A message of the pairing."""


class Start(Message, frozen=True, tag="start"):
    """The worker begins. ``name``: of the protocol."""

    name: str
    run: str
    share: bytes


class Answer(Message, frozen=True, tag="answer"):
    """The supervisor answers, with the address that workers join."""

    name: str
    run: str
    address: str
    share: bytes


class Confirm(Message, frozen=True, tag="confirm"):
    """The worker proves that it knows the code."""

    proof: bytes


class Grant(Message, frozen=True, tag="grant"):
    """The supervisor proves it, too, and gives the token."""

    proof: bytes
    sealed: bytes


class Refusal(Message, frozen=True, tag="refusal"):
    """The supervisor says why not. Nothing proves that it was the supervisor."""

    why: str


Kind = TypeVar("Kind", bound=Message)


class PairingFailed(Refused):
    """The pairing ended without a token."""


def encode(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


def decode(data: bytes, kind: type[Kind]) -> Kind:
    """Return the message in ``data``; raise ``PairingFailed`` where it is another, or a refusal."""
    if len(data) > MESSAGE_NBYTES:
        raise PairingFailed(f"a message of more than {MESSAGE_NBYTES} bytes")
    try:
        found: Kind | Refusal = msgspec.msgpack.decode(data, type=kind | Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise PairingFailed("a message that is none of the pairing's") from None
    if encode(found) != data:
        raise PairingFailed("a message that is none of the pairing's")
    if isinstance(found, Refusal):
        raise PairingFailed(printable(found.why[:200]))
    return found


class _Keys:
    """The keys that follow from SPAKE2's, bound to both messages."""

    def __init__(self, key: bytes, start: bytes, answer: bytes) -> None:
        parts = (hashlib.sha256(part).digest() for part in (NAME.encode(), start, answer))
        self.transcript = hashlib.sha256(b"".join(parts)).digest()
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        made = HKDF(SHA256(), 96, salt=self.transcript, info=NAME.encode()).derive(key)
        self._worker, self._supervisor, self._token = made[:32], made[32:64], made[64:]

    def worker_proof(self) -> bytes:
        return hmac.digest(self._worker, b"worker" + self.transcript, "sha256")

    def supervisor_proof(self) -> bytes:
        return hmac.digest(self._supervisor, b"supervisor" + self.transcript, "sha256")

    def seal(self, token: bytes) -> bytes:
        return bytes(self._cipher().encrypt(_NONCE, token, self.transcript))

    def open(self, sealed: bytes) -> bytes | None:
        """Return the token; None where it was changed."""
        from cryptography.exceptions import InvalidTag

        try:
            return bytes(self._cipher().decrypt(_NONCE, sealed, self.transcript))
        except InvalidTag:
            return None

    def _cipher(self) -> ChaCha20Poly1305:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        return ChaCha20Poly1305(self._token)


def _names(run: str) -> dict[str, bytes]:
    return {"idA": f"{NAME} worker".encode(), "idB": f"{NAME} supervisor {run}".encode()}


def _finished(spake: SPAKE2_A | SPAKE2_B, share: bytes) -> bytes:
    """Return SPAKE2's key. Shares that are no points, or this side's own, raise many kinds of errors there."""
    try:
        key: bytes = spake.finish(share)
    except Exception:
        raise PairingFailed("a message that is none of the pairing's") from None
    return key


class WorkerSide:
    """The worker's part. Each method takes the last message and gives the next."""

    def __init__(self, code: str, run: str) -> None:
        from spake2 import SPAKE2_A

        self._run, self._spake = run, SPAKE2_A(parse_code(code).encode(), **_names(run))

    def start(self) -> bytes:
        self._start = encode(Start(NAME, self._run, self._spake.start()))
        return self._start

    def confirm(self, answer: bytes) -> bytes:
        """Return the proof. Raise ``PairingFailed`` where the answer is of another run, or none."""
        said = decode(answer, Answer)
        if said.name != NAME or said.run != self._run or not is_tcp_address(said.address):
            raise PairingFailed("the supervisor answers for another run, or by another protocol")
        self._address = said.address
        self._keys = _Keys(_finished(self._spake, said.share), self._start, answer)
        return encode(Confirm(self._keys.worker_proof()))

    def taken(self, grant: bytes) -> Offer:
        """Return the address and the token. Raise ``PairingFailed`` where the other side does not know the code."""
        said = decode(grant, Grant)
        if not hmac.compare_digest(said.proof, self._keys.supervisor_proof()):
            raise PairingFailed("the other side does not know the code: it is not the supervisor")
        token = self._keys.open(said.sealed)
        if token is None:
            raise PairingFailed("the token was changed on its way")
        return Offer(self._address, self._run, token=token.decode("ascii", "replace"))


class SupervisorSide:
    """The supervisor's part in one attempt to pair, with the code of the moment."""

    def __init__(self, code: str, offer: Offer) -> None:
        from spake2 import SPAKE2_B

        self._offer, self._spake = offer, SPAKE2_B(parse_code(code).encode(), **_names(offer.run))

    def answer(self, start: bytes) -> bytes:
        """Return the answer. Raise ``PairingFailed`` where the worker wants another run, or speaks another protocol."""
        said = decode(start, Start)
        if said.name != NAME or said.run != self._offer.run:
            raise PairingFailed("another run, or another version of taut")
        answer = encode(Answer(NAME, self._offer.run, self._offer.address, self._spake.start()))
        self._keys = _Keys(_finished(self._spake, said.share), start, answer)
        return answer

    def proven(self, confirm: bytes) -> bool:
        """Return whether the worker knows the code."""
        return hmac.compare_digest(decode(confirm, Confirm).proof, self._keys.worker_proof())

    def grant(self) -> bytes:
        """Return the token, sealed. To be called only after ``proven``."""
        return encode(Grant(self._keys.supervisor_proof(), self._keys.seal(self._offer.token.encode("ascii"))))
