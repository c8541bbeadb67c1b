"""How a message becomes frames and back. Whatever is not a valid message is refused by name, before it costs memory.

    frame 0    magic byte, protocol version byte, msgpack of one record of ``taut.core.messages``
    frame 1..  payloads, as many as the record says

Nothing is ever unpickled: msgspec builds only the records of the family that the receiver asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from taut.core import messages as msg
from taut.errors import MalformedMessage

MAGIC = 0x74
LIMIT_NBYTES = 64 * 2**20  # of one message, all its frames together
PEER_QUEUE = 64  # messages under way to one peer, on every transport
SUPERVISOR_QUEUE = 256  # messages of one worker that wait for the supervisor

_PREFIX = bytes((MAGIC, msg.PROTOCOL_VERSION))
_ONE_PAYLOAD = (msg.StateChunk, msg.Upload, msg.Digest, msg.Finish, msg.Parcel, msg.LoggedImage)
_encode = msgspec.msgpack.Encoder().encode
# By identity, since hashing a union costs more than decoding a small message. The family is kept so that its
# id stays.
# Two threads that make decoders of the same records side by side crash the process, in msgspec.
_making = threading.Lock()
_decoders: dict[int, tuple[object, Callable[[memoryview], msg.Message]]] = {}


def encode(message: msg.Message, payloads: Sequence[bytes | memoryview] = ()) -> list[bytes]:
    """Return the frames of ``message``: its header, then the payloads.

    >>> from taut.core.messages import PeerMessage, Span, Updates
    >>> frames = encode(Updates(round=0, echo=3, spans=[Span(1, 7, 9)]), [b"words"])
    >>> decode(frames, PeerMessage)
    (Updates(round=0, echo=3, spans=[Span(origin=1, lo=7, hi=9)], phase=0), [b'words'])
    """
    assert len(payloads) == payload_count(message), (type(message).__name__, len(payloads))
    frames = [_PREFIX + _encode(message)]
    for payload in payloads:
        frames.append(payload if type(payload) is bytes else bytes(payload))
    return frames


def decode(frames: Sequence[bytes], family: Any, *, limit_nbytes: int = LIMIT_NBYTES) -> tuple[msg.Message, list[bytes]]:
    """Return the message in ``frames`` and its payloads; raise ``MalformedMessage`` for anything else, and nothing but
    that.

    ``family`` is the union of the messages that may come here (``PeerMessage``, ``WorkerMessage``,
    ``SupervisorMessage``): a peer cannot speak as the supervisor.
    """
    if not frames:
        raise MalformedMessage("no frames")
    size = nbytes(frames)
    if size > limit_nbytes:
        raise MalformedMessage(f"{size} bytes in one message: at most {limit_nbytes} are accepted")
    header = frames[0]
    if len(header) < 2 or header[0] != MAGIC:
        raise MalformedMessage(f"not a message of taut: it starts with {bytes(header[:8]).hex() or 'nothing'}")
    if header[1] != msg.PROTOCOL_VERSION:
        raise MalformedMessage(f"protocol version {header[1]}, expected {msg.PROTOCOL_VERSION}: update the older taut")
    try:
        message = _decoder(family)(memoryview(header)[2:])
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors
        raise MalformedMessage(f"not a message of this family: {error}") from None
    payloads = list(frames[1:])
    _check_payloads(message, payloads)
    return message, payloads


def nbytes(frames: Sequence[bytes]) -> int:
    """Return the bytes of all frames together, as handed to the transport."""
    return sum(map(len, frames))


def payload_count(message: msg.Message) -> int:
    """Return how many payload frames belong to ``message``."""
    if isinstance(message, msg.Updates):
        return len(message.spans)
    return 1 if isinstance(message, _ONE_PAYLOAD) else 0


def _decoder(family: Any) -> Callable[[memoryview], msg.Message]:
    entry = _decoders.get(id(family))
    if entry is None:
        with _making:
            entry = _decoders[id(family)] = (family, msgspec.msgpack.Decoder(family).decode)
    return entry[1]


def _check_payloads(message: msg.Message, payloads: list[bytes]) -> None:
    """Check what the types alone cannot say: the number of payloads, spans that run forward, chunks inside their
    whole."""
    expected = payload_count(message)
    if len(payloads) != expected:
        raise MalformedMessage(f"{type(message).__name__} with {len(payloads)} payload frames, expected {expected}")
    if isinstance(message, msg.Updates):
        for span in message.spans:
            if span.lo > span.hi:
                raise MalformedMessage(f"a span of updates that runs backwards: {span.lo}..{span.hi}")
    elif isinstance(message, msg.Parcel):
        if message.part >= message.parts:
            raise MalformedMessage(f"part {message.part} of a parcel in {message.parts} parts")
    elif isinstance(message, msg.LoggedImage):
        if len(payloads[0]) > msg.IMAGE_NBYTES:
            raise MalformedMessage(f"an image of {len(payloads[0])} bytes: at most {msg.IMAGE_NBYTES} are accepted")
    elif isinstance(message, msg.StateChunk | msg.Upload):
        end = message.offset + len(payloads[0])
        if end > message.total:
            raise MalformedMessage(f"{type(message).__name__} ends at {end} of {message.total}")
