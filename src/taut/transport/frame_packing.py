"""Small messages travel as one zmq frame, however many frames they have.

Every call into zmq gives up the GIL and has to win it back from the training thread; one call per message,
instead of one per frame, is half the contention for the usual header and payload. Large messages stay as they
are, since copying them together would cost more than it saves.

    mark (1 byte), number of frames n (2 bytes), lengths of the first n - 1 frames (4 bytes each), the frames

A single frame that happens to start with the mark is bundled too, so that unbundling is never in doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct

from taut.errors import Misuse
from taut.transport.framing import nbytes

SMALL_NBYTES = 64 * 1024
_LIMIT_FRAMES = 2**16 - 1
_MARK = 0x62
_PAIR = Struct("<BHI")
_COUNT = Struct("<BH")


def bundle(frames: Sequence[bytes], limit_nbytes: int) -> Sequence[bytes]:
    """Return the zmq frames that carry ``frames``; raise ``Misuse`` if those have more than ``limit_nbytes`` together,
    since no receiver would take them.

    >>> len(bundle([b"header", b"", b"payload"], 100)), opened(bundle([b"header", b"", b"payload"], 100))
    (1, [b'header', b'', b'payload'])
    """
    n, size = len(frames), nbytes(frames)
    assert n, "a message has at least one frame"
    if size > limit_nbytes:
        raise Misuse(f"a message of {size} bytes", f"at most {limit_nbytes}", "send it in parts")
    if n == 1 and not (frames[0] and frames[0][0] == _MARK):
        return frames
    if size > SMALL_NBYTES or n > _LIMIT_FRAMES:
        return frames if n > 1 else [_COUNT.pack(_MARK, 1) + frames[0]]
    if n == 2:
        return (b"".join((_PAIR.pack(_MARK, 2, len(frames[0])), frames[0], frames[1])),)
    return (b"".join((_head(n).pack(_MARK, n, *map(len, frames[:-1])), *frames)),)


def opened(wire: Sequence[bytes]) -> list[bytes]:
    """Return the frames of the message whose zmq frames are ``wire``: the inverse of ``bundle``."""
    return unbundle(wire[0]) if len(wire) == 1 else list(wire)


def unbundle(frame: bytes) -> list[bytes]:
    """Return the frames in a message that arrived as one zmq frame. A frame that is no proper bundle is returned as it
    is: decoding refuses it."""
    if not frame or frame[0] != _MARK or len(frame) < _COUNT.size:
        return [frame]
    n = _COUNT.unpack_from(frame)[1]
    if n == 2 and len(frame) >= _PAIR.size:
        cut = _PAIR.size + _PAIR.unpack_from(frame)[2]
        return [frame[_PAIR.size : cut], frame[cut:]] if cut <= len(frame) else [frame]
    start = _COUNT.size + 4 * (n - 1)
    if n == 0 or start > len(frame):
        return [frame]
    ends = list(accumulate(_head(n).unpack_from(frame)[2:], initial=start))
    if ends[-1] > len(frame):
        return [frame]
    return [frame[a:b] for a, b in zip(ends, [*ends[1:], len(frame)], strict=True)]


@lru_cache(maxsize=64)
def _head(n: int) -> Struct:
    return Struct(f"<BH{n - 1}I")
