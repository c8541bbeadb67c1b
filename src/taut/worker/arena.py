"""The arena: a model's trainable parameters as views into one contiguous float32 vector.

Codecs and strategies see flat vectors; the user's modules and optimizers keep their ``Parameter`` objects, whose data
now lives in the arena. Frozen parameters and buffers stay where they are; they travel with the state, not with updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taut.core.messages import TensorSpec
from taut.errors import Misuse, NonFiniteUpdate

if TYPE_CHECKING:
    import torch
    from torch import nn

    Named = tuple[str, torch.Tensor, str]

LINE_NBYTES = 64


class Arena:
    """Moves the parameters of ``model`` into one vector.

    ``vector`` is what codecs work on: a NumPy view of the same memory on the CPU, the tensor itself on a GPU.

    >>> import torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> arena = Arena(layer)
    >>> arena.vector[:] = 1.0
    >>> layer.weight.sum().item(), arena.size
    (6.0, 8)
    """

    def __init__(self, model: nn.Module) -> None:
        import torch

        self.model = model
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        _check(trained)
        self.names = [name for name, _ in trained]
        self.sizes = [p.numel() for _, p in trained]
        self.shapes = [tuple(p.shape) or (1,) for _, p in trained]
        self.size = sum(self.sizes)
        with torch.no_grad():
            device = trained[0][1].device
            self.tensor = _room(self.size, device)
            offset = 0
            for _, parameter in trained:
                view = self.tensor[offset : offset + parameter.numel()].view(parameter.shape)
                view.copy_(parameter)
                parameter.data = view
                offset += parameter.numel()
        self.parameters = [p for _, p in trained]
        self.vector: Any = self.tensor.numpy() if self.on_cpu else self.tensor

    @property
    def on_cpu(self) -> bool:
        return self.tensor.device.type == "cpu"

    def specs(self, named: Sequence[Named] | None = None) -> list[TensorSpec]:
        """What the model consists of, for comparing it with the others' models. ``named``: where that is at hand."""
        every = self.named() if named is None else named
        return [TensorSpec(n, list(t.shape), str(t.dtype).removeprefix("torch."), part) for n, t, part in every]

    def named(self) -> list[Named]:
        """Every tensor of the model: its name, itself, and its part (trained, frozen or buffer)."""
        tensors = [
            (name, p.detach(), "trained" if p.requires_grad else "frozen") for name, p in self.model.named_parameters()
        ]
        return tensors + [(name, b.detach(), "buffer") for name, b in self.model.named_buffers()]

    def still(self) -> Sequence[torch.Tensor]:
        """Frozen parameters and buffers: everything of the state that the arena does not hold."""
        return [tensor for _, tensor, part in self.named() if part != "trained"]

    def still_bytes(self) -> bytes:
        return b"".join(_bytes(tensor) for tensor in self.still())

    def load_still(self, data: bytes | memoryview) -> None:
        _load(self.still(), data)

    def buffers(self) -> Sequence[torch.Tensor]:
        """Floating-point buffers (batch-norm statistics), which are averaged at the end."""
        return [b.detach() for b in self.model.buffers() if b.is_floating_point()]

    def buffer_bytes(self) -> bytes:
        """The buffers as float32, in order."""
        import torch

        return b"".join(_bytes(tensor.to(torch.float32)) for tensor in self.buffers())

    def load_buffers(self, data: bytes) -> None:
        import torch

        tensors = self.buffers()
        averaged = [torch.empty(t.shape, dtype=torch.float32) for t in tensors]
        _load(averaged, data)
        for tensor, value in zip(tensors, averaged, strict=True):
            tensor.copy_(value)

    def load(self, vector: npt.NDArray[np.float32]) -> None:
        """Take these weights."""
        import torch

        with torch.no_grad():
            self.tensor.copy_(torch.from_numpy(np.array(vector, np.float32)))

    def host(self, vector: Any) -> npt.NDArray[np.float32]:
        """``vector`` (as codecs hold it) in host memory; no copy on the CPU."""
        return vector if isinstance(vector, np.ndarray) else vector.detach().cpu().numpy()

    def blame(self, error: NonFiniteUpdate) -> NonFiniteUpdate:
        """The same error, with the name of the parameter."""
        number = int(np.searchsorted(np.cumsum(self.sizes), error.element, side="right"))
        return NonFiniteUpdate(
            f"the gradient of {self.names[number]!r} is NaN or infinite: nothing of this step was sent. "
            "Try a smaller learning rate, gradient clipping (worker.step(loss, clip_norm=1.0)), or look at the data",
            error.element,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The model's ``state_dict`` on the host, with the arena's weights; tied tensors under each of their names."""
        return {name: t.detach().cpu().contiguous().clone() for name, t in self.model.state_dict().items()}


def _room(size: int, device: torch.device) -> torch.Tensor:
    """An empty vector; in host memory it begins with a cache line, and a large one is on huge pages.

    NumPy asks Linux for them (``MADV_HUGEPAGE``, from 4 MiB on), torch does not; elsewhere nobody does, and nothing is
    lost. A scan goes through two or three vectors at once, and small pages must be looked up all the time: with the
    arena alone on such, scans of 25 million elements took 8% longer (``threshold``) and 19% (``tether``).

    >>> import torch
    >>> room = _room(5, torch.device("cpu"))
    >>> len(room), room.data_ptr() % 64
    (5, 0)
    """
    import torch

    if device.type != "cpu":
        return torch.empty(size, dtype=torch.float32, device=device)
    room = np.empty(4 * size + LINE_NBYTES, np.uint8)
    start = -room.ctypes.data % LINE_NBYTES
    return torch.from_numpy(room[start : start + 4 * size].view(np.float32))


def _check(trained: list[tuple[str, nn.Parameter]]) -> None:
    import torch

    if not trained:
        raise Misuse("a model without trainable parameters", "at least one with requires_grad=True")
    for name, parameter in trained:
        if parameter.dtype != torch.float32:
            raise Misuse(
                f"parameter {name!r} of type {parameter.dtype}",
                "float32 weights",
                "keep float32 weights and compute in half precision under torch.autocast",
            )
        if parameter.device != trained[0][1].device:
            raise Misuse(
                f"parameters on {trained[0][1].device} and {parameter.device} ({name!r})",
                "one device per worker",
                "start one worker per device",
            )


def _bytes(tensor: torch.Tensor) -> bytes:
    import torch

    return tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _load(tensors: Sequence[torch.Tensor], data: bytes | memoryview) -> None:
    import torch

    expected = sum(t.numel() * t.element_size() for t in tensors)
    if len(data) != expected:
        raise Misuse(f"{len(data)} bytes of state", f"{expected} bytes", "do all workers build the same model?")
    offset = 0
    with torch.no_grad():
        for tensor in tensors:
            nbytes = tensor.numel() * tensor.element_size()
            if nbytes:
                part = torch.frombuffer(bytearray(data[offset : offset + nbytes]), dtype=tensor.dtype)
                tensor.copy_(part.view(tensor.shape))
            offset += nbytes
