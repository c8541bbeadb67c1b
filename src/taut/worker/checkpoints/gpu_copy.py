"""A copy of tensors on a GPU for a checkpoint: first on the GPU, if it has room, then to the host on a stream of its own.

on the GPU      2 n bytes at the memory's speed (H200: about 4 TB/s)
to the host     n bytes through the bus, and once more from pinned memory to the final copy
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

Pair = tuple[torch.Tensor, torch.Tensor]  # to and from
STAGING_NBYTES = 1 << 24
ALIGNMENT_NBYTES = 256


def new_staging() -> torch.Tensor:
    """Return pinned memory. Call this before training: pinning stops the GPU, about a millisecond per MiB."""
    return torch.empty(STAGING_NBYTES, dtype=torch.uint8, pin_memory=True)


def make_room(device: torch.device, nbytes: int) -> None:
    """Allocate in another thread what ``cloned`` will need: torch keeps it, and need not ask the driver then."""
    if 2 * nbytes <= free_nbytes(device):
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(nbytes, dtype=torch.uint8, device=device)


def free_nbytes(device: torch.device) -> int:
    """Return the free memory of the GPU, including what torch holds without using it."""
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def cloned(device: Any, pairs: Sequence[Pair]) -> list[Pair] | None:
    """Return the same pairs with copies of the sources on the GPU, if half of its free memory holds them. One piece of
    memory and few kernels for all, since the training thread starts them.

    >>> import unittest.mock
    >>> host, there = torch.zeros(2), torch.ones(2)
    >>> with unittest.mock.patch(f"{__name__}.free_nbytes", return_value=1 << 20):
    ...     ((to, copy),) = cloned(torch.device("cpu"), [(host, there)])
    >>> to is host, copy.tolist(), copy is there
    (True, [1.0, 1.0], False)
    """
    sources = [source.detach() for _, source in pairs]
    sizes = [-(-source.nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES for source in sources]
    if 2 * sum(sizes) > free_nbytes(device):
        return None
    try:
        slab = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:  # the free memory is fragmented
        return None
    offsets = itertools.accumulate(sizes, initial=0)
    rooms = [(slab[lo : lo + source.nbytes], source) for lo, source in zip(offsets, sources, strict=False)]
    copies = [room.view(source.dtype).view(source.shape) for room, source in rooms]
    if copies:
        torch._foreach_copy_(copies, sources)
    return [(target, copy) for (target, _), copy in zip(pairs, copies, strict=True)]


def from_gpu(device: Any, pairs: Sequence[Pair], staging: torch.Tensor | None) -> Callable[[], None]:
    """Return a function that copies on a stream of its own, after the work that the present stream has so far."""
    with torch.cuda.device(device):
        before: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        before.record()

    def piece() -> None:
        with torch.cuda.device(device):
            beside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            beside.wait_event(before)
            with torch.cuda.stream(beside):
                for target, source in pairs:
                    _bring(target, source.detach(), staging, beside)
            beside.synchronize()

    return piece


def _bring(target: torch.Tensor, source: torch.Tensor, staging: torch.Tensor | None, beside: Any) -> None:
    """Copy by way of pinned memory: a copy to any other memory holds the GPU's driver all the while."""
    if staging is None or not source.is_contiguous():
        target.copy_(source)
        return
    to, frm = (tensor.reshape(-1).view(torch.uint8) for tensor in (target, source))
    for lo in range(0, len(to), len(staging)):
        part = staging[: min(len(staging), len(to) - lo)]
        part.copy_(frm[lo : lo + len(part)], non_blocking=True)
        beside.synchronize()
        np.copyto(to[lo : lo + len(part)].numpy(), part.numpy())
