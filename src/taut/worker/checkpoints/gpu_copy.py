"""A copy of tensors on a GPU for a checkpoint: there first, if it has room, then to the host by a stream of its own.

on the GPU      2 n bytes at the memory's speed (H200: about 4 TB/s)
to the host     n bytes through the bus, and once more from pinned memory to where they stay
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    Pair = tuple[torch.Tensor, torch.Tensor]  # to and from

STAGING_NBYTES = 1 << 24
ALIGNMENT_NBYTES = 256


def new_staging() -> torch.Tensor:
    """To be made before training: the GPU stands still while memory is pinned, about a millisecond for each MiB."""
    import torch

    return torch.empty(STAGING_NBYTES, dtype=torch.uint8, pin_memory=True)


def make_room(device: torch.device, nbytes: int) -> None:
    """Ask for what ``cloned`` will need, from another thread: torch keeps it, and need not ask the driver then."""
    import torch

    if 2 * nbytes <= free_nbytes(device):
        with contextlib.suppress(torch.OutOfMemoryError):
            torch.empty(nbytes, dtype=torch.uint8, device=device)


def free_nbytes(device: torch.device) -> int:
    """Of the GPU, and of what torch holds without using it."""
    import torch

    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + unused


def cloned(device: Any, pairs: Sequence[Pair]) -> list[Pair] | None:
    """The same with copies of the sources on the GPU, if half of what is free there holds them. One piece of memory and
    few kernels for all, since the training thread starts them.

    >>> import torch, unittest.mock
    >>> host, there = torch.zeros(2), torch.ones(2)
    >>> with unittest.mock.patch(f"{__name__}.free_nbytes", return_value=1 << 20):
    ...     ((to, copy),) = cloned(torch.device("cpu"), [(host, there)])
    >>> to is host, copy.tolist(), copy is there
    (True, [1.0, 1.0], False)
    """
    import torch

    sources = [source.detach() for _, source in pairs]
    sizes = [-(-source.numel() * source.element_size() // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES for source in sources]
    if 2 * sum(sizes) > free_nbytes(device):
        return None
    try:
        slab = torch.empty(sum(sizes), dtype=torch.uint8, device=device)
    except torch.OutOfMemoryError:  # what is free is in pieces
        return None
    places = itertools.accumulate(sizes, initial=0)
    copies = [_room(slab, lo, source) for lo, source in zip(places, sources, strict=False)]
    if copies:
        torch._foreach_copy_(copies, sources)
    return [(target, copy) for (target, _), copy in zip(pairs, copies, strict=True)]


def _room(slab: torch.Tensor, lo: int, like: torch.Tensor) -> torch.Tensor:
    """The contiguous tensor at ``lo``."""
    flat = slab[lo : lo + like.numel() * like.element_size()]
    return flat.view(like.dtype).view(like.shape)


def from_gpu(device: Any, pairs: Sequence[Pair], staging: torch.Tensor | None) -> Callable[[], None]:
    """On a stream of its own, behind what the present one has been given so far."""
    import torch

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
    """By way of pinned memory: a copy to any other holds the GPU's driver all the while."""
    import torch

    if staging is None or not source.is_contiguous():
        target.copy_(source)
        return
    to, frm = (tensor.reshape(-1).view(torch.uint8) for tensor in (target, source))
    for lo in range(0, len(to), len(staging)):
        part = staging[: min(len(staging), len(to) - lo)]
        part.copy_(frm[lo : lo + len(part)], non_blocking=True)
        beside.synchronize()
        np.copyto(to[lo : lo + len(part)].numpy(), part.numpy())
