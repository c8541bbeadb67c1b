"""Values and images that the user's script logs: collected here, and sent to the supervisor twice a second."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from taut.core.clock import Clock, MonotonicClock
from taut.core.messages import IMAGE_NBYTES, MOST_LOGGED, Logged, LoggedImage, Message, MetricPoint
from taut.core.png import encode_png
from taut.errors import Misuse

SEND_EVERY_S = 0.5
MOST_CHARACTERS = 128  # of a name
_CLOCK = MonotonicClock()


class MetricLog:
    """Collects what is logged. ``say`` sends a message to the supervisor, with its payloads.

    Beyond ``MOST_LOGGED`` points in half a second, every second one of those that wait is dropped.
    """

    def __init__(self, say: Callable[[Message, Sequence[bytes]], None], clock: Clock = _CLOCK) -> None:
        self._say, self._clock = say, clock
        self._points: list[MetricPoint] = []
        self._sent_s = -math.inf

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Take these values and images, and send what waits, if it is time."""
        for name, value in values.items():
            if not name.isprintable() or not 0 < len(name) <= MOST_CHARACTERS:
                raise Misuse(
                    f"log({name!r})", f"a printable name of at most {MOST_CHARACTERS} characters", "another name"
                )
            number = as_number(value)
            if number is not None:
                self._points.append(MetricPoint(step, name, number))
            else:
                self._say(LoggedImage(step, name), (as_png(name, value),))
        if len(self._points) > MOST_LOGGED:
            del self._points[-2::-2]
        self.send_due()

    def send_due(self) -> None:
        """Send what waits, if the last message is half a second old."""
        if self._points and self._clock.now() - self._sent_s >= SEND_EVERY_S:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        if self._points:
            self._sent_s = self._clock.now()
            points, self._points = self._points, []
            self._say(Logged(points), ())


def as_number(value: Any) -> float | None:
    """Return a number, also a tensor or array of one element, as a float; None for anything else.

    >>> as_number(3), as_number(True), as_number("3")
    (3.0, 1.0, None)
    """
    if isinstance(value, bool | int | float):
        return float(value)
    if hasattr(value, "item") and hasattr(value, "shape") and math.prod(value.shape) == 1:
        return float(value.item())
    return None


def as_png(name: str, value: Any) -> bytes:
    """Return an image as a PNG file: a matplotlib figure, a PIL image, or an array of bytes or of floats from 0 to 1, of
    shape (height, width), (height, width, channels) or (channels, height, width)."""
    if hasattr(value, "savefig"):
        data = _saved(lambda file: value.savefig(file, format="png"))
    elif hasattr(value, "save") and hasattr(value, "getbands"):
        data = _saved(lambda file: value.save(file, format="PNG"))
    else:
        data = _array_png(name, value)
    if len(data) > IMAGE_NBYTES:
        raise Misuse(
            f"log({name}=...): an image of {len(data):,} bytes as PNG", f"at most {IMAGE_NBYTES:,}", "make it smaller"
        )
    return data


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _array_png(name: str, value: Any) -> bytes:
    import numpy as np

    remedy = "a number, or an image: (height, width[, channels]), bytes or floats from 0 to 1; or a matplotlib figure"
    if isinstance(value, str | bytes | Mapping):
        raise Misuse(f"log({name}={value!r})", remedy, "numbers and images can be logged; print() takes texts")
    pixels = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if pixels.ndim == 3 and pixels.shape[0] in (1, 3, 4) and pixels.shape[2] not in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        raise Misuse(f"log({name}=...): {type(value).__name__} of shape {pixels.shape}", remedy, "reshape it")
    if pixels.dtype != np.uint8:
        pixels = (255.0 * np.nan_to_num(np.clip(pixels.astype(np.float64), 0.0, 1.0))).round().astype(np.uint8)
    return encode_png(pixels.tobytes(), *pixels.shape)
