"""Fuzzing of frames: any bytes are a message of the family that was asked for, or raise ``MalformedMessage``.

from fuzzers.frame_fuzz import fuzz_frames
fuzz_frames(messages, count=100_000, seed=0)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from taut.core.messages import Message, PeerMessage, SupervisorMessage, WorkerMessage
from taut.errors import MalformedMessage
from taut.transport.framing import decode, encode, payload_count

FAMILIES: tuple[Any, ...] = (PeerMessage, WorkerMessage, SupervisorMessage)
# First bytes of msgpack's types: maps, arrays, texts and numbers of all lengths, extensions, nil.
MARKS = bytes((0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, *range(0xC0, 0xE0), 0xFF))


@dataclass
class Decoded:
    """Counts of the mutated frames."""

    refused: int = 0
    taken: int = 0


def fuzz_frames(messages: Sequence[Message], count: int, seed: int) -> Decoded:
    """Change the frames of valid messages in ``count`` ways and decode each as one of some family. A message that is
    accepted must read back alike when it is encoded again; anything but ``MalformedMessage`` is raised.

    >>> from taut.core.messages import LeaseDone, Pulse
    >>> found = fuzz_frames([Pulse(), LeaseDone([1, 2, 3])], count=300, seed=0)
    >>> found.refused + found.taken, found.refused > 0, found.taken > 0
    (300, True, True)
    """
    rng, found = random.Random(seed), Decoded()
    frames = [encode(message, [b"payload"] * payload_count(message)) for message in messages]
    for _ in range(count):
        raw = mutated(frames, rng)
        family = rng.choice(FAMILIES)
        try:
            message, payloads = decode(raw, family)
        except MalformedMessage:
            found.refused += 1
            continue
        found.taken += 1
        again = decode(encode(message, payloads), family)
        assert repr(again) == repr((message, payloads)), (
            f"{message} does not read back"
        )  # repr: NaN is not equal to itself
    return found


def mutated(samples: Sequence[Sequence[bytes]], rng: random.Random) -> list[bytes]:
    """Return the frames of one of the samples, with some bytes changed, cut or repeated."""
    frames = [bytearray(frame) for frame in rng.choice(samples)]
    for _ in range(1 if rng.random() < 0.7 else rng.randrange(2, 5)):
        _mutate(frames, samples, rng)
    return [bytes(frame) for frame in frames]


def _mutate(frames: list[bytearray], samples: Sequence[Sequence[bytes]], rng: random.Random) -> None:
    header = frames[0] if frames else bytearray()
    offset = rng.randrange(len(header)) if header else 0
    match rng.randrange(9):
        case 0 if header:
            header[offset] ^= 1 << rng.randrange(8)
        case 1 if header:
            header[offset] = rng.choice(MARKS)
        case 2 if header:
            del header[offset:]
        case 3:
            header += rng.randbytes(rng.randrange(1, 40))
        case 4:
            header[offset:] = rng.choice(samples)[0][offset:]
        case 5 if frames:
            frames.append(bytearray(rng.randbytes(rng.randrange(9))))
        case 6 if frames:
            frames.pop()
        case 7:
            header[offset:offset] = bytes([rng.choice(MARKS)]) * rng.randrange(1, 300)  # nested deeply, or long
        case _:
            if header:
                header[offset] = rng.randrange(256)
