"""The machine that executes a program over messages: pieces in, pieces out; no socket, no clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taut.collectives.plan import ReductionPlan, Step, plan
from taut.collectives.schedule import Program
from taut.collectives.wire import Wire
from taut.errors import MalformedMessage, Misuse

Vector = npt.NDArray[np.float32]
SEGMENT_ELEMENTS = 1 << 18  # 1 MiB of float32: long enough for the wire, short enough to overlap adding with sending

FULL_WIRE = Wire()


@dataclass(frozen=True, slots=True)
class Piece:
    """``data`` (bytes-like, read-only) is for the position ``to``; the rest tells it what this is."""

    to: int
    round: int
    segment: int
    data: memoryview


class Reduction:
    """One all-reduce of ``buffer`` (float32 vector that the caller hands over until ``done``).

    ``program``: this position's part; ``segment_elements``: the longest piece, the same at all positions. The buffer may
    be filled until ``begin``, or is filled piecemeal by ``fill(lo, hi)``, each part when it is first needed, so that the
    wire need not wait for the rest. It is then worked on in place, and pieces are views into it. When ``done`` it holds
    the sum, but the transport may still be sending views of it: read it at once, write to it when the transport has taken
    over the last piece. Nothing is ``done`` before ``begin``. ``wire``: how pieces are written, alike at all positions.

    >>> from taut.collectives.ring import Ring
    >>> x, y = np.float32([1, 2]), np.float32([10, 20])
    >>> a, b = Reduction(Ring().program(2, 0, 2), x), Reduction(Ring().program(2, 1, 2), y)
    >>> first, second = a.begin(), b.begin()
    >>> to_a = [more for piece in first for more in b.arrived(0, piece.round, piece.segment, piece.data)]
    >>> to_b = [more for piece in second for more in a.arrived(1, piece.round, piece.segment, piece.data)]
    >>> for piece in to_a: _ = a.arrived(1, piece.round, piece.segment, piece.data)
    >>> for piece in to_b: _ = b.arrived(0, piece.round, piece.segment, piece.data)
    >>> a.done, b.done, x.tolist(), y.tolist()
    (True, True, [11.0, 22.0], [11.0, 22.0])
    """

    def __init__(
        self,
        program: Program,
        buffer: Vector,
        segment_elements: int = SEGMENT_ELEMENTS,
        fill: Callable[[int, int], None] | None = None,
        wire: Wire = FULL_WIRE,
    ) -> None:
        if segment_elements < 1:
            raise Misuse(f"segments of {segment_elements} elements", "at least 1")
        self._plan = plan(program, segment_elements)
        _check(buffer, self._plan, program.length, wire.dtype)
        self.buffer, self._wire = buffer, wire
        self.done = False
        self._bytes = memoryview(buffer.view(np.uint8)).toreadonly()  # type: ignore[arg-type]  # it is a buffer
        self._waits = list(self._plan.waits)
        self._left = len(self._plan.steps)
        self._seen = bytearray(len(self._plan.steps))
        self._held: dict[int, Vector] = {}
        self._begun = False
        self._fill = fill
        blocks = -(-len(buffer) // segment_elements) if fill is not None else 0
        self._empty = set(range(blocks))  # blocks of the length of a segment that are not filled yet
        self._block_elements = segment_elements

    def begin(self) -> list[Piece]:
        """Return what to send first, once the buffer is filled. A second call returns nothing."""
        if self._begun:
            return []
        self._begun = True
        if not self._plan.steps:
            self._touch(0, len(self.buffer))
        return self._advance([number for number, waits in enumerate(self._waits) if not waits])

    def arrived(self, frm: int, round: int, segment: int, data: bytes | memoryview) -> list[Piece]:
        """Take a piece from the position ``frm``, and return what may be sent because of it.

        It may come in any order, before ``begin`` too, and more than once. One that is too early is held, not copied:
        leave ``data`` as it is. ``MalformedMessage`` for what the program does not expect; nothing has changed then.
        """
        number = self._plan.receives.get((frm, round, segment))
        if number is None:
            raise MalformedMessage(f"segment {segment} of round {round} from position {frm}: none is expected")
        step = self._plan.steps[number]
        nbytes, expected = memoryview(data).nbytes, self._wire.nbytes(step.lo, step.hi)
        if nbytes != expected:
            raise MalformedMessage(
                f"segment {segment} of round {round} from position {frm} has {nbytes} bytes, expected {expected}"
            )
        if self._seen[number]:
            return []
        values = self._wire.read(data, step.lo, step.hi)
        self._seen[number] = 1
        self._held[number] = values
        return self._advance([number]) if self._begun and not self._waits[number] else []

    def _advance(self, ready: list[int]) -> list[Piece]:
        """Do the steps that wait for nothing, and those that they let go on."""
        pieces: list[Piece] = []
        steps, then, waits, held = self._plan.steps, self._plan.then, self._waits, self._held
        for number in ready:  # it grows as we go
            step = steps[number]
            if self._empty and (step.sends or number in held):
                self._touch(step.lo, step.hi)
            if step.sends:
                pieces.append(Piece(step.peer, step.round, step.segment, self._view(step)))
            elif number in held:
                self._apply(step, held.pop(number))
            else:
                continue  # it comes back when its data arrives
            self._left -= 1
            for later in then[number]:
                waits[later] -= 1
                if not waits[later]:
                    ready.append(later)
        self.done = not self._left
        return pieces

    def _touch(self, lo: int, hi: int) -> None:
        """See to it that ``lo..hi`` is filled."""
        size = self._block_elements
        for block in self._empty.intersection(range(lo // size, -(-hi // size))):
            self._empty.discard(block)
            assert self._fill is not None
            self._fill(block * size, min(len(self.buffer), (block + 1) * size))

    def _apply(self, step: Step, values: Vector) -> None:
        part = self.buffer[step.lo : step.hi]
        if step.add:
            np.add(part, values, out=part)
        else:
            part[:] = values

    def _view(self, step: Step) -> memoryview:
        if not self._wire.full:
            return memoryview(self._wire.write(self.buffer, step.lo, step.hi))
        size = self.buffer.itemsize
        view = self._bytes[step.lo * size : step.hi * size]
        return memoryview(bytes(view)) if step.copy else view


def _check(buffer: Vector, parts: ReductionPlan, length: int | None, dtype: np.dtype[np.float32]) -> None:
    if buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
        raise Misuse(f"a buffer of shape {buffer.shape}", "a contiguous vector that can be written to")
    if len(buffer) < parts.needs or length not in (None, len(buffer)):
        expected = parts.needs if length is None else length
        raise Misuse(f"a buffer of {len(buffer)} elements", f"{expected}, the length that the program is for")
    if buffer.dtype != dtype:
        raise Misuse(f"a buffer of {buffer.dtype}", str(dtype))
