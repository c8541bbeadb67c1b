"""What a script logs arrives: in order, twice a second, bounded; and what is no number and no image is refused."""

from __future__ import annotations

import io
import itertools
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import IMAGE_NBYTES, MOST_LOGGED, Logged, LoggedImage, Message, MetricPoint
from taut.core.png import encode_png
from taut.errors import Misuse
from taut.testing import FakeClock
from taut.worker.metric_log import MetricLog, as_png


class Sent:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.payloads: list[Sequence[bytes]] = []

    def __call__(self, message: Message, payloads: Sequence[bytes]) -> None:
        self.messages.append(message)
        self.payloads.append(payloads)

    @property
    def points(self) -> list[MetricPoint]:
        return [point for message in self.messages if isinstance(message, Logged) for point in message.points]


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.floats(allow_nan=True, allow_infinity=True)), max_size=60))
def test_every_point_arrives_once_in_order_and_at_most_twice_a_second(logged: list[tuple[float, float]]) -> None:
    clock, sent = FakeClock(), Sent()
    log = MetricLog(sent, clock)
    times = []
    for step, (pause_s, value) in enumerate(logged):
        clock.advance(pause_s)
        before = len(sent.messages)
        log.log(step, {"x": value})
        times += [clock.now()] * (len(sent.messages) - before)
    log.flush()
    assert [point.step for point in sent.points] == list(range(len(logged)))
    finite = [value if math.isfinite(value) and abs(value) < 3e38 else None for _, value in logged]
    assert [point.value for point, value in zip(sent.points, finite, strict=True) if value is not None] == [
        value for value in finite if value is not None
    ]
    assert all(later - earlier >= 0.5 for earlier, later in itertools.pairwise(times))


def test_too_many_points_are_thinned_and_the_last_is_kept() -> None:
    sent = Sent()
    log = MetricLog(sent, FakeClock())
    for step in range(5 * MOST_LOGGED):
        log.log(step, {"x": step})
    log.flush()
    assert all(len(message.points) <= MOST_LOGGED for message in sent.messages if isinstance(message, Logged))
    assert sent.points[-1].step == 5 * MOST_LOGGED - 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (True, 1),
        (0.5, 0.5),
        (torch.tensor(2.5), 2.5),
        (torch.ones(1, requires_grad=True), 1),
        (np.float32(1.5), 1.5),
    ],
)
def test_numbers_of_all_kinds_are_taken(value: object, number: float) -> None:
    sent = Sent()
    MetricLog(sent, FakeClock()).log(0, {"x": value})
    assert sent.points[0].value == number


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Decode a PNG file that `encode_png` wrote: a second way, from the format's definition."""
    assert png[12:16] == b"IHDR"
    width, height = struct.unpack(">II", png[16:24])
    found, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack(">I", png[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + data),)
        found += data if kind == b"IDAT" else b""
        at += 12 + length
    lines = zlib.decompress(found)
    row = len(lines) // height
    return height, width, b"".join(lines[row * y + 1 : row * (y + 1)] for y in range(height))


@given(st.integers(1, 9), st.integers(5, 9), st.sampled_from([1, 3, 4]), st.randoms())
def test_pixels_come_back_as_they_were(height: int, width: int, channels: int, random: object) -> None:
    data = bytes(random.randrange(256) for _ in range(height * width * channels))  # type: ignore[attr-defined]
    assert pixels(encode_png(data, height, width, channels)) == (height, width, data)
    array = np.frombuffer(data, np.uint8).reshape(height, width, channels)
    assert pixels(as_png("x", array)) == (height, width, data)
    floats = torch.from_numpy(array.copy()).float() / 255
    assert pixels(as_png("x", floats)) == (height, width, data)


def test_channels_may_come_first_and_a_figure_is_an_image() -> None:
    image = torch.arange(3 * 4 * 5, dtype=torch.uint8).reshape(3, 4, 5)
    assert pixels(as_png("x", image)) == (4, 5, image.permute(1, 2, 0).contiguous().numpy().tobytes())
    from matplotlib.figure import Figure

    assert as_png("x", Figure(figsize=(1, 1))).startswith(b"\x89PNG")
    sent = Sent()
    MetricLog(sent, FakeClock()).log(4, {"picture": image})
    assert sent.messages == [LoggedImage(4, "picture")]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("x", "text", "can be logged"),
        ("x", {"a": 1}, "can be logged"),
        ("x", np.zeros((2, 3, 5, 7)), "reshape"),
        ("x", np.zeros((0, 3)), "reshape"),
        ("", 1.0, "another name"),
        ("a\nb", 1.0, "another name"),
        ("n" * 129, 1.0, "another name"),
        ("x", np.random.default_rng(0).integers(0, 256, (700, 700, 4), np.uint8), "smaller"),
    ],
)
def test_what_cannot_be_logged_is_refused(name: str, value: object, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        MetricLog(Sent(), FakeClock()).log(0, {name: value})


def test_an_image_fits_into_a_message() -> None:
    assert len(as_png("x", np.zeros((1000, 1000), np.uint8))) < IMAGE_NBYTES
    assert io.BytesIO(as_png("x", np.zeros((3, 3)))).read(4) == b"\x89PNG"
