"""A codec for vectors on a GPU (or any torch device): the vector stays there, and only payloads cross to the host.

    encode   the kernels compress on the device; what they return is copied once, into the payload
    check    a payload of whole numbers (int8) is copied to the device first, and its numbers are looked at there
    total    payloads of the same kind are decoded and added in one launch; this worker's own one is decoded already

All give the same bits as ``VectorCodec`` does in host memory. Of the kinds of payloads, whole numbers of 8 bits and
sparse ones are decoded on the device; others are decoded on the host, and copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from taut.codecs.codec import State, torch_kernels
from taut.codecs.error_feedback import Feedback
from taut.codecs.host_vectors import F32
from taut.codecs.kernels import torch_ops
from taut.codecs.kernels.torch_ops import Levels, level_pieces
from taut.codecs.parallel import run_parts
from taut.codecs.vector_codec import VectorCodec, Written
from taut.codecs.wire.layouts import LAYOUTS, SparseLayout
from taut.codecs.wire.layouts.base import Body
from taut.codecs.wire.layouts.int_levels import PREAMBLE, IntLevelsLayout
from taut.codecs.wire.layouts.sparse import IndexedLayout
from taut.codecs.wire.merge import add_values_to
from taut.codecs.wire.payload import Bytes, Header, body_of, build, header
from taut.codecs.wire.validate import validate

Part = npt.NDArray[Any] | torch.Tensor  # of a body
WIDTH = 8  # bits of the whole numbers that are decoded on the device
LARGE_NBYTES = 1 << 20  # of payloads that are put together in pinned memory
CHUNK_NBYTES = 1 << 25  # of such a payload that are copied to the device while the next ones are copied to pinned memory
TAIL_NBYTES = 1 << 16  # room behind such a payload


class DeviceVectorCodec(VectorCodec):
    """``device``: of the vectors."""

    device: torch.device
    _own: Written = b""  # the last payload that was written here

    def _zeros(self) -> torch.Tensor:
        return torch.zeros(self.size, device=self.device)

    # ------------------------------------------------------------------------------------------------- writing

    @torch.no_grad()
    def _emit(self, state: State, v: torch.Tensor, weight: float) -> Written:
        torch.mul(v, float(np.float32(weight)), out=state.w)
        state.b.zero_()
        self._own = b""
        if not isinstance(self.codec, Feedback):
            return self.codec.emit(state, 0, self.size) or b""
        state.memory.on_device = True
        found = self.codec.compressed(state, 0, self.size)
        if found is None:
            return b""
        self._own = self._put_together(*found)  # whatever it sends is in b now
        return self._own

    def _put_together(self, head: Header, body: Sequence[Part]) -> Written:
        """Return the payload; a large one is in pinned memory, with room for a tail, and stays until the next but one.
        When that is written, nobody waits for this one any more."""
        first = np.frombuffer(build(head), np.uint8)
        ends = np.cumsum([part.nbytes for part in (first, *body)]).tolist()
        if ends[-1] < LARGE_NBYTES:
            return build(head, *(part if isinstance(part, np.ndarray) else part.cpu().numpy() for part in body))
        whole = self._large.pop(0)
        if len(whole) < ends[-1] + TAIL_NBYTES:
            whole = torch.empty(ends[-1] + TAIL_NBYTES, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        self._large.append(whole)
        for part, end in zip((first, *body), ends, strict=True):
            target = whole[end - part.nbytes : end]
            if isinstance(part, np.ndarray):
                _copy(target.numpy(), np.ascontiguousarray(part).view(np.uint8).reshape(-1))
            else:
                target.copy_(part.view(torch.uint8), non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        array: Any = whole.numpy()
        return memoryview(array)[: ends[-1]]

    @cached_property
    def _large(self) -> list[torch.Tensor]:
        return [torch.empty(0, dtype=torch.uint8) for _ in range(2)]

    def _joined(self, payload: Written, tail: bytes) -> Written:
        if isinstance(payload, bytes) or len(tail) > TAIL_NBYTES:
            return super()._joined(payload, tail)
        whole: Any = payload.obj  # the memory of ``_put_together``
        end = len(payload) + len(tail)
        whole[len(payload) : end] = np.frombuffer(tail, np.uint8)
        return memoryview(whole)[:end]

    # ------------------------------------------------------------------------------------------------- reading

    def _validated(self, payload: Bytes, size: int) -> Header:
        return validate(payload, size, LAYOUTS | {IntLevelsLayout.kind: _OnDevice(self._copies)})

    def add(self, payload: Bytes, x: torch.Tensor, scale: float = 1.0) -> None:
        if not len(payload):
            return
        head, body = header(payload), body_of(payload)
        pieces: Iterator[tuple[int, torch.Tensor]]
        layout, target = LAYOUTS.get(head.kind), x[head.base : head.base + head.length]
        block = _block_of(payload)
        if block:
            pieces = level_pieces(*self._levels(payload), block)
        elif isinstance(layout, SparseLayout):
            indices, entries = layout.entries(head, body)
            torch_ops.add_all_entries([target], [(0, indices, entries * np.float32(scale))])
            return
        else:
            decoded: F32 = np.zeros(head.length, np.float32)
            add_values_to(decoded, payload, head)
            pieces = iter([(0, self._there(decoded))])
        for start, values in pieces:
            target[start : start + len(values)].add_(values if scale == 1.0 else values * float(np.float32(scale)))

    def total(self, payloads: Sequence[Bytes], weights: Sequence[float], out: torch.Tensor) -> None:
        if self._votes:
            summed: Any = np.empty(self.size, np.float32)
            super().total(payloads, weights, summed)
            self.put(out, summed)
            return
        given = [payload for payload in payloads if len(payload)]
        if not (self._sum_levels(given, out) or self._sum_entries(given, out)):
            out.zero_()
            for payload in given:
                self.add(payload, out)
        self._copies.drop()

    def _sum_levels(self, payloads: Sequence[Bytes], out: torch.Tensor) -> bool:
        """Set ``out`` to the sum, if all payloads are whole numbers for all elements, with blocks of the same length."""
        blocks = {_block_of(payload) for payload in payloads}
        if len(blocks) != 1 or 0 in blocks or any(header(payload).length != len(out) for payload in payloads):
            return False
        torch_kernels(out).sum_levels(out, [self._decoded(payload) for payload in payloads], *blocks)
        return True

    def _decoded(self, payload: Bytes) -> Levels | torch.Tensor:
        """Return whole numbers on the device, or the vector that they stand for, which is there if they were put together
        here."""
        own = isinstance(self._own, memoryview) and _address(payload) == _address(self._own)
        return self._state.b if own else self._levels(payload)

    def _levels(self, payload: Bytes) -> Levels:
        body = body_of(payload)
        there, scales = self._copies.of(body), 4 * -(-header(payload).length // _block_of(payload))
        return there[:scales].view(torch.float32), there[scales:].view(torch.int8)

    def _sum_entries(self, payloads: Sequence[Bytes], out: torch.Tensor) -> bool:
        """Set ``out`` to the sum, if all payloads are of rising indices and their values."""
        heads = [header(payload) for payload in payloads]
        if not all(head.kind is IndexedLayout.kind for head in heads):
            return False
        read = IndexedLayout().entries
        found = [(head.base, *read(head, body_of(one))) for head, one in zip(heads, payloads, strict=True)]
        out.zero_()
        torch_kernels(out).add_all_entries([out], found)
        return True

    @cached_property
    def _copies(self) -> _Copies:
        return _Copies(self.device)

    def _there(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(np.array(array)).to(self.device)  # what comes from a message is read-only

    # ------------------------------------------------------------------------ vectors where this codec sums payloads

    def room(self, size: int) -> torch.Tensor:
        return torch.empty(size, device=self.device)

    def put(self, target: torch.Tensor, source: F32) -> None:
        target.copy_(self._there(source))

    def host(self, vector: torch.Tensor) -> F32:
        found: F32 = vector.cpu().numpy()
        return found

    def divide(self, x: torch.Tensor, by: float, out: torch.Tensor) -> None:
        torch.div(x, torch.tensor(by, dtype=torch.float32, device=self.device), out=out)  # a number would be inverted


class _Copies:
    """Payloads of whole numbers, their scales and numbers copied to the device: through pinned memory, and on a stream of
    their own."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.stagings: list[tuple[torch.Tensor, Any]] = []  # pinned memory, and the end of its last copy
        self.kept: dict[int, tuple[npt.NDArray[Any], torch.Tensor]] = {}  # by address, with what is there

    def of(self, body: Body) -> torch.Tensor:
        """Return the copy of what follows the preamble: the one that was made for ``check``, if it was."""
        found = self.kept.get(body.ctypes.data)
        if found is None or len(found[0]) != len(body):
            found = self.kept[body.ctypes.data] = body, self._copied(body[PREAMBLE:])
        return found[1]

    def drop(self) -> None:
        """Forget the copies: their round is over."""
        self.kept.clear()

    def _copied(self, source: Body) -> torch.Tensor:
        with self.on_stream():
            made = torch.empty(len(source), dtype=torch.uint8, device=self.device)
            for start in range(0, len(source), CHUNK_NBYTES):
                some = source[start : start + CHUNK_NBYTES]
                pinned, copied = self.stagings.pop(0) if len(self.stagings) > 1 else self._staging(len(source))
                if copied is not None:
                    copied.synchronize()
                _copy(pinned.numpy()[: len(some)], some)
                made[start : start + len(some)].copy_(pinned[: len(some)], non_blocking=True)
                if self.stream is not None:
                    copied = self.stream.record_event()
                self.stagings.append((pinned, copied))
        if self.stream is not None:
            made.record_stream(torch.cuda.current_stream(self.device))
            self.stream.synchronize()
        return made

    def _staging(self, nbytes: int) -> tuple[torch.Tensor, Any]:
        on_gpu = self.stream is not None
        return torch.empty(min(nbytes, CHUNK_NBYTES), dtype=torch.uint8, pin_memory=on_gpu), None

    def on_stream(self) -> AbstractContextManager[object]:
        """Return a context in which kernels are launched on the stream."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


class _OnDevice(IntLevelsLayout):
    """The layout of whole numbers, whose body is looked at on the device."""

    def __init__(self, copies: _Copies) -> None:
        self._copies = copies

    def _lowest_is_used(self, body: Body, packed: npt.NDArray[Any], width: int) -> bool:
        if width != WIDTH:
            return super()._lowest_is_used(body, packed, width)
        numbers = self._copies.of(body)[len(body) - PREAMBLE - len(packed) :].view(torch.int8)
        with self._copies.on_stream():
            return bool((numbers == -(1 << (WIDTH - 1))).any())


def _block_of(payload: Bytes) -> int:
    """Return the length of a block, if the payload is of whole numbers that are decoded on the device; else 0."""
    head = header(payload)
    if head.kind is not IntLevelsLayout.kind:
        return 0
    width, block, _, _ = IntLevelsLayout().read(head, body_of(payload))
    return block if width == WIDTH else 0


def _copy(target: npt.NDArray[Any], source: npt.NDArray[Any]) -> None:
    def some(lo: int, hi: int) -> None:
        target[lo:hi] = source[lo:hi]

    run_parts(some, 0, len(source))


def _address(payload: Bytes) -> int:
    return int(np.frombuffer(payload, np.uint8, 1).ctypes.data)
