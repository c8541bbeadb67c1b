"""The copy that a checkpoint is made of, taken beside training: large tensors are copied in other threads, during the
script's next forward and backward pass.

That is no race: weights and the optimizer's state change in the optimizer's step and in exchanges only, and both wait for
``finish`` first, where the waiting thread helps. Should a script change a tensor at another time all the same, torch has
counted that: the copy is then ``torn``, and must not be used.

On a GPU with room for it, the copy is made there first, at the speed of its memory, and training does not wait for the
transfer to the host.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from taut.config import cores
from taut.worker.checkpoints.gpu_copy import Pair, cloned, from_gpu, make_room

Piece = Callable[[], object]  # copies a part

SMALL_NBYTES = 1 << 16  # a smaller tensor is copied faster than it is handed to another thread
AT_ONCE_NBYTES = 1 << 20  # a smaller state is copied at once, too: it takes a tenth of a millisecond
PIECE_NBYTES = 1 << 24  # of the copy, and of released memory: between two of them the interpreter is needed
TOUCH_NBYTES = 1 << 21
TOUCH_NBYTES_PER_S = 1 << 27  # of memory that is touched, at most, or all of it within TOUCH_S
TOUCH_S = 30.0
ALIGNMENT_NBYTES = 64
PAGE_NBYTES = 4096
MOST_COPIERS = 4
PRIVATE: dict[str, int] = {} if sys.platform == "win32" else {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}


class CopyMemory:
    """Host memory for a copy of ``nbytes``, for one checkpoint after the other. Of 0 bytes, it is ``ready`` as it is, and
    all memory is allocated on demand. ``device``: a GPU on which there will be a copy, too.

    Its pages are made by ``touch``, beside training: a first write to memory takes longer than the copy itself. Not too
    fast: the system takes the pages that were used last, which are those that training frees and allocates again all the
    time, and others may take longer to get (a virtual machine's come from its host, at 2 ms per MB). For the same reason
    the pages stay between two checkpoints, until the system needs them (``release``)."""

    def __init__(self, nbytes: int, device: torch.device | None = None) -> None:
        self.nbytes, self.device = nbytes, device
        self.ready = nbytes == 0
        self.failure = ""
        self._map: mmap.mmap | None = None
        self._slab: torch.Tensor | None = None
        self._used = 0

    def touch(self) -> None:
        """Allocate all of it, in another thread; an error is stored in ``failure``."""
        try:
            if self.device is not None:
                make_room(self.device, self.nbytes)
            if self._map is None:
                self._map = mmap.mmap(-1, self.nbytes, **PRIVATE)
                _advise(self._map, "MADV_HUGEPAGE", 0, self.nbytes)
                self._slab = torch.frombuffer(self._map, dtype=torch.uint8)
                pages = self._slab.numpy()
                pause_s = TOUCH_NBYTES / max(TOUCH_NBYTES_PER_S, self.nbytes / TOUCH_S)
                for lo in range(0, self.nbytes, TOUCH_NBYTES):
                    pages[lo : lo + TOUCH_NBYTES : PAGE_NBYTES] = 0
                    if lo + TOUCH_NBYTES < self.nbytes:
                        time.sleep(pause_s)
        except (RuntimeError, MemoryError, OSError, ValueError) as error:
            self._map = self._slab = None
            self.failure = f"no memory for a copy of {self.nbytes / 1e6:.0f} MB ({error})"
        self.ready = True

    def release(self) -> None:
        """Let the system take the pages when it needs them. Piece by piece: all at once would hold the interpreter. On
        systems without that option, the memory is freed."""
        self._used = 0
        if self._map is not None and hasattr(mmap, "MADV_FREE"):
            for lo in range(0, self.nbytes, PIECE_NBYTES):
                _advise(self._map, "MADV_FREE", lo, min(PIECE_NBYTES, self.nbytes - lo))
        else:
            self._map = self._slab = None
        self.ready = self.nbytes == 0 or (self._map is not None and self.device is None)

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return room for a contiguous copy: from this memory as long as there is some, else allocated now."""
        nbytes = tensor.nbytes
        if self._slab is None or self._used + nbytes > len(self._slab):
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        offset = self._used // tensor.element_size()
        self._used += -(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        room = torch.empty(0, dtype=tensor.dtype)
        room.set_(self._slab.untyped_storage(), offset, tensor.shape)  # type: ignore[call-overload]  # strides are optional
        return room


def _advise(area: mmap.mmap, word: str, lo: int, length: int) -> None:
    """Advise the system about a part of the memory, if it supports that."""
    if hasattr(mmap, word):
        with contextlib.suppress(OSError):
            area.madvise(getattr(mmap, word), lo, length)


def needed_nbytes(sources: Mapping[str, torch.Tensor]) -> int:
    """Return the size that ``CopyMemory`` must have for a copy of these.

    >>> needed_nbytes({"small": torch.zeros(3), "large": torch.zeros(20000)})
    80000
    """
    large = (tensor.nbytes for tensor in sources.values() if tensor.nbytes >= SMALL_NBYTES)
    return sum(-(-nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES for nbytes in large)


class Copy:
    """A copy of ``sources`` in ``tensors``. Small tensors, and those whose name begins with one of ``now``, are in it
    when the constructor returns; for the rest threads call ``work``. When ``done`` is set, the sources may change; after
    ``collect``, the copy is complete. ``watched``: other tensors that share memory with the sources, and are written to
    instead. ``staging``: of ``gpu_copy.new_staging``, where sources are on a GPU.

    >>> w = torch.ones(100_000)
    >>> copy = Copy({"w": w}, CopyMemory(0)); copy.finish(); w[:] = 2.0
    >>> copy.tensors["w"].sum().item(), copy.torn
    (100000.0, False)
    """

    def __init__(
        self,
        sources: Mapping[str, torch.Tensor],
        memory: CopyMemory,
        now: Collection[str] = (),
        watched: Sequence[torch.Tensor] = (),
        staging: torch.Tensor | None = None,
    ) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.torn = False
        self.done = threading.Event()
        self._pieces: deque[Piece] = deque()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None
        self._to_host: list[Piece] = []
        self._watched = list(watched)
        sizes = {name: source.nbytes for name, source in sources.items()}
        least = SMALL_NBYTES if sum(sizes.values()) > AT_ONCE_NBYTES else AT_ONCE_NBYTES + 1
        on_gpus: dict[Any, list[str]] = {}
        at_once = tuple(now)
        later = {name for name, nbytes in sizes.items() if nbytes >= least and not name.startswith(at_once)}
        for name, source in sources.items():
            if sizes[name] < SMALL_NBYTES and source.is_cpu:
                self.tensors[name] = source.detach().clone(memory_format=torch.contiguous_format)
                continue
            large = sizes[name] >= SMALL_NBYTES
            self.tensors[name] = memory.like(source) if large else torch.empty(source.shape, dtype=source.dtype)
            if source.is_cuda:
                on_gpus.setdefault(source.device, []).append(name)
            elif name in later and source.is_cpu:
                self._watched.append(source)
                self._pieces.extend(_pieces(self.tensors[name], source))
            else:
                self.tensors[name].copy_(source.detach())
        for device, names in on_gpus.items():
            self._from_gpu(device, {name: (self.tensors[name], sources[name]) for name in names}, later, staging)
        self._versions = _versions(self._watched)
        self._left = len(self._pieces)
        if not self._left:
            self.done.set()

    def _from_gpu(
        self, device: Any, pairs: Mapping[str, Pair], later: Collection[str], staging: torch.Tensor | None
    ) -> None:
        """Copy all of it on the GPU at once, if there is room: the GPU does that between two steps, and nothing waits for
        it. Else copy small tensors to the host now, and the rest while training goes on."""
        there = cloned(device, list(pairs.values()))
        if there is not None:
            self._to_host.append(from_gpu(device, there, staging))
            return
        for name, (target, source) in pairs.items():
            if name not in later:
                target.copy_(source.detach())
        rest = [pair for name, pair in pairs.items() if name in later]
        if rest:
            self._watched.extend(source for _, source in rest)
            self._pieces.append(from_gpu(device, rest, staging))

    def work(self) -> None:
        """Copy piece by piece, until none is left to begin. From any number of threads."""
        while True:
            try:
                piece = self._pieces.popleft()
            except IndexError:
                return
            try:
                piece()
            except BaseException as error:  # else a thread would wait for ever
                self._failure = error
            with self._lock:
                self._left -= 1
                if not self._left:
                    self.torn = _versions(self._watched) != self._versions
                    self.done.set()

    def finish(self) -> None:
        """Help with the copy and wait for the rest: the sources are about to change."""
        self.work()
        self.done.wait()

    def collect(self) -> None:
        """Complete the copy in host memory. Raises the error of a piece that failed."""
        self.finish()
        if self._failure is not None:
            raise self._failure
        while self._to_host:
            self._to_host.pop()()  # and free the copy on the GPU

    def copiers(self) -> int:
        """Return how many threads to copy with, if there are cores for them."""
        return min(MOST_COPIERS, max(1, cores() // 4), max(1, self._left))


def _pieces(target: torch.Tensor, source: torch.Tensor) -> list[Piece]:
    """Return functions that copy a piece each. C's copy of bytes lets other threads run, and starts none. (Getting
    addresses takes a tenth of the time of making two NumPy vectors, and training waits for this.)"""
    if not source.is_contiguous():
        return [partial(target.copy_, source.detach())]
    nbytes, to, frm = source.nbytes, target.data_ptr(), source.data_ptr()
    starts = range(0, nbytes, PIECE_NBYTES)
    return [partial(_move, target, to + lo, source, frm + lo, min(PIECE_NBYTES, nbytes - lo)) for lo in starts]


def _move(_target: torch.Tensor, to: int, _source: torch.Tensor, frm: int, nbytes: int) -> None:
    """Copy bytes. The tensors are arguments so that their memory stays until then."""
    ctypes.memmove(to, frm, nbytes)


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [0 if tensor.is_inference() else tensor._version for tensor in tensors]
