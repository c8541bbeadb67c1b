"""Buffers that the GPU kernels keep between updates, one set for each device, and the payload's way to the host."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


@dataclass(eq=False)
class Scratch:
    """Buffers by name, which grow and are kept. A scan has them to itself until it has waited for its payload: scans on
    one device come one after the other.

    ``expected``: entries in the last sparse update; ``room``: for how many there was; ``cap``: slots of a tile;
    ``void``: the last message did not fit; ``dense``: whether the last update was a bitmap.

    >>> kept = Scratch(torch.device("cpu"))
    >>> words = kept.take("words", 100, torch.int32)
    >>> words.shape, kept.take("words", 50, torch.int32).data_ptr() == words.data_ptr()
    (torch.Size([100]), True)
    """

    device: torch.device
    expected: int = 0
    room: int = 0
    cap: int = 64  # enough for tiles of 4096 of which about 1% is found
    void: bool = False
    dense: bool = False
    _buffers: dict[str, Tensor] = field(default_factory=dict, repr=False)

    def current(self) -> AbstractContextManager[object]:
        """Return a context in which this device is the current one, on which kernels are launched."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def take(self, name: str, count: int, dtype: torch.dtype) -> Tensor:
        """Return ``count`` numbers on the device, of no particular value."""
        return self._take(name, count, dtype, pinned=False)

    def fetch(self, source: Tensor) -> npt.NDArray[np.uint8]:
        """Copy ``source`` to the host and return its bytes, valid until the next call; the only function that waits for
        the device."""
        there = source.view(torch.uint8)
        here = self._take("host", there.numel(), torch.uint8, pinned=self.device.type == "cuda")
        here.copy_(there, non_blocking=True)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        found: npt.NDArray[np.uint8] = here.numpy()
        return found

    def widen(self, slots: int) -> None:
        """Give each tile at least ``slots`` slots from now on."""
        while self.cap < slots:
            self.cap *= 2

    @property
    def nbytes(self) -> int:
        """Return the bytes that are held, on the device and on the host."""
        return sum(buffer.numel() for buffer in self._buffers.values())

    def _take(self, name: str, count: int, dtype: torch.dtype, pinned: bool) -> Tensor:
        nbytes = max(16, count * dtype.itemsize)
        held = self._buffers.get(name)
        if held is None or held.numel() < nbytes:
            room = nbytes if held is None else max(nbytes, held.numel() * 5 // 4 // 16 * 16)
            device = "cpu" if pinned else self.device
            held = self._buffers[name] = torch.empty(room, dtype=torch.uint8, device=device, pin_memory=pinned)
        return held[: count * dtype.itemsize].view(dtype)


@cache
def scratch(device: torch.device) -> Scratch:
    """Return the buffers of a device."""
    return Scratch(device)
