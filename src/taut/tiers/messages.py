"""The messages between tiers, typed and bounded: features upstream, answers back; and how features become bytes.

bits       one bit per element, most significant first: 1 for 1, 0 for -1       (all elements are signs)
float16    two bytes per element, little endian                                 (else)
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
import torch
from msgspec import Meta

from taut.core.messages import Count, Message
from taut.errors import MalformedMessage
from taut.tiers.evaluation import is_signs

MOST_SAMPLES = 4096  # in one message
MOST_NBYTES = 16 << 20  # of the features in one message
Sample = Annotated[list[Count], Meta(max_length=MOST_SAMPLES)]
Kind = Literal["bits", "float16"]


class Features(Message, frozen=True):
    """The features of ``samples``, from ``device`` (0 from an edge). Without samples: the device is sure of all in this
    batch. The batches of all devices have the same numbers."""

    batch: Count
    device: Annotated[int, Meta(ge=0, le=1023)]
    samples: Sample
    shape: Annotated[list[Annotated[int, Meta(ge=1, le=65_536)]], Meta(max_length=4)]  # of one sample's
    kind: Kind
    data: Annotated[bytes, Meta(max_length=MOST_NBYTES)]


class Answers(Message, frozen=True):
    """The class of each of ``samples``, the tier that found it, and the entropy of its exit."""

    batch: Count
    samples: Sample
    classes: Annotated[list[Annotated[int, Meta(ge=0, le=65_535)]], Meta(max_length=MOST_SAMPLES)]
    tiers: Annotated[list[Literal["edge", "cloud"]], Meta(max_length=MOST_SAMPLES)]
    entropies: Annotated[list[Annotated[float, Meta(ge=0.0, le=1.0)]], Meta(max_length=MOST_SAMPLES)]


def packed(batch: int, device: int, samples: list[int], features: torch.Tensor) -> Features:
    """Return the message with these features, one row for each of ``samples``.

    >>> message = packed(0, 1, [7, 9], torch.tensor([[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]]))
    >>> message.kind, len(message.data), unpacked(message).tolist()
    ('bits', 2, [[1.0, -1.0, 1.0], [-1.0, -1.0, 1.0]])
    """
    rows = features.detach().cpu().float().flatten(1)
    kind: Kind = "bits" if len(samples) and is_signs(rows) else "float16"
    if kind == "bits":
        data = np.packbits(rows.numpy() > 0, axis=1).tobytes()
    else:
        most = torch.finfo(torch.float16).max
        data = rows.clamp(-most, most).numpy().astype("<f2").tobytes()
    return Features(batch, device, samples, list(features.shape[1:]), kind, data)


def unpacked(message: Features) -> torch.Tensor:
    """Return the features in a message, one row for each of its samples. Raise ``MalformedMessage`` for any that cannot
    be: another number of bytes than the shape says, a sample twice, NaN or infinity."""
    rows, elements = len(message.samples), math.prod(message.shape)
    each = -(-elements // 8) if message.kind == "bits" else 2 * elements
    if not message.shape or len(message.data) != rows * each or len(set(message.samples)) != rows:
        raise MalformedMessage(f"features of {rows} samples of shape {message.shape} in {len(message.data)} bytes")
    if message.kind == "bits":
        bits = np.unpackbits(np.frombuffer(message.data, np.uint8).reshape(rows, each), axis=1, count=elements)
        found = bits.astype(np.float32) * 2 - 1
    else:
        found = np.frombuffer(message.data, "<f2").astype(np.float32)
    if not np.isfinite(found).all():
        raise MalformedMessage("features that are NaN or infinite")
    return torch.from_numpy(found.reshape(rows, *message.shape))


def check_answers(answers: Answers, asked: list[int]) -> None:
    """Raise ``MalformedMessage`` unless these are answers for exactly the samples that were asked for."""
    lengths = {len(answers.samples), len(answers.classes), len(answers.tiers), len(answers.entropies)}
    if len(lengths) != 1 or sorted(answers.samples) != sorted(asked):
        raise MalformedMessage(f"answers for {len(answers.samples)} samples, of {len(asked)} that were asked for")
