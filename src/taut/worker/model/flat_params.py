"""A model's trainable parameters as views into one contiguous float32 vector.

Codecs and strategies see flat vectors; the user's modules and optimizers keep their ``Parameter`` objects, whose data now
lives in the vector (or follows it, in half precision: ``master_weights.py``). Parameters that are not trained (frozen, or
in no optimizer) and buffers stay where they are; they travel with the state, not with updates. A parameter keeps its
strides: in the vector, its elements are in memory order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from taut.core.messages import TensorSpec
from taut.errors import Misuse, NonFiniteUpdate
from taut.worker.model.master_weights import MasterWeights, Rounding
from taut.worker.model.sharded import cut_dim, file_name, local

if TYPE_CHECKING:
    Named = tuple[str, torch.Tensor, str]

LINE_NBYTES = 64


class FlatParams:
    """Moves the ``trained`` parameters of ``model`` into one vector: by default, all that require gradients.
    ``rounding``: how parameters of half precision follow the vector; ``room``: where the vector is to be.

    Codecs work on ``vector``: a NumPy view of the same memory on the CPU, the tensor itself on a GPU.

    >>> layer = torch.nn.Linear(3, 2)
    >>> params = FlatParams(layer)
    >>> params.vector[:] = 1.0
    >>> layer.weight.sum().item(), params.size
    (6.0, 8)
    """

    def __init__(
        self,
        model: nn.Module,
        trained: Sequence[nn.Parameter] | None = None,
        rounding: Rounding = "nearest",
        room: torch.Tensor | None = None,
    ) -> None:
        self.model = model
        wanted = {id(p) for p in (model.parameters() if trained is None else trained) if p.requires_grad}
        named = [(name, p) for name, p in model.named_parameters() if id(p) in wanted]
        self._trained = wanted
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        here = [local(p) for p in self.parameters]
        self.sizes = [p.numel() for p in here]
        self.shapes = [tuple(p.shape[dim] for dim in memory_order(p)) or (1,) for p in here]
        self.size = sum(self.sizes)
        self.tensor = _room(self.size, self.parameters[0].device) if room is None else room
        with torch.no_grad():
            for parameter, view in self.views(self.tensor):
                view.copy_(local(parameter))
                if local(parameter).dtype == torch.float32:
                    local(parameter).data = view
            self.masters = MasterWeights(self.tensor, self.views(self.tensor), rounding)
        self.vector: Any = self.tensor.numpy() if self.on_cpu else self.tensor

    @property
    def on_cpu(self) -> bool:
        return self.tensor.device.type == "cpu"

    def views(self, vector: torch.Tensor) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Yield each parameter with its part of ``vector`` (in the order of ``parameters``), shaped and strided alike."""
        offset = 0
        for parameter, size in zip(self.parameters, self.sizes, strict=True):
            yield parameter, shaped(vector[offset : offset + size], local(parameter))
            offset += size

    def specs(self, named: Sequence[Named] | None = None) -> list[TensorSpec]:
        """Return what the model consists of, to compare models. ``named``: the result of ``named()``, if known."""
        return specs_of(self.model, self._trained, named)

    def named(self) -> list[Named]:
        """Return every tensor of the model with its name and part: trained, frozen (or in no optimizer), or buffer."""
        return named_tensors(self.model, self._trained)

    def tensor_of(self, name: str) -> torch.Tensor:
        """Return the model's tensor of this name, as the script has it."""
        parameters = dict(self.model.named_parameters())
        return parameters[name] if name in parameters else dict(self.model.named_buffers())[name]

    def cuts(self) -> dict[str, int]:
        """Return along which dimension each tensor is cut, of those that the processes of an island share."""
        dims = {name: cut_dim(tensor) for name, tensor in self.model.named_parameters()}
        dims |= {name: cut_dim(tensor) for name, tensor in self.model.named_buffers()}
        return {name: dim for name, dim in dims.items() if dim is not None}

    def names_of(self, parameters: Sequence[nn.Parameter]) -> list[str]:
        """Return the name of each of these parameters."""
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [names[id(parameter)] for parameter in parameters]

    def still(self) -> Sequence[torch.Tensor]:
        """Return frozen parameters and buffers: everything of the state that the flat vector does not hold."""
        return [tensor for _, tensor, part in self.named() if part != "trained"]

    def still_bytes(self) -> bytes:
        return b"".join(_bytes(tensor) for tensor in self.still())

    def digest(self) -> str:
        """Return the hash of the whole state: trained parameters, frozen parameters and buffers."""
        trained: Any = self.host(self.vector).view(np.uint8)
        found = hashlib.blake2b(trained, digest_size=16)
        for tensor in self.still():
            found.update(_bytes(tensor))
        return found.hexdigest()

    def load_still(self, data: bytes | memoryview) -> None:
        _load(self.still(), data)

    def buffers(self) -> Sequence[torch.Tensor]:
        """Return the floating-point buffers (batch-norm statistics), which are averaged at the end."""
        return [b.detach() for b in self.model.buffers() if b.is_floating_point()]

    def buffer_bytes(self) -> bytes:
        """Return the buffers as float32, in order."""
        return b"".join(_bytes(tensor.to(torch.float32)) for tensor in self.buffers())

    def load_buffers(self, data: bytes) -> None:
        averaged = [torch.empty(buffer.shape, dtype=torch.float32) for buffer in self.buffers()]
        _load(averaged, data)
        for buffer, value in zip(self.buffers(), averaged, strict=True):
            buffer.copy_(value)

    def load(self, vector: npt.NDArray[np.float32] | torch.Tensor) -> None:
        with torch.no_grad():
            given = vector if isinstance(vector, torch.Tensor) else torch.from_numpy(np.array(vector, np.float32))
            self.tensor.copy_(given)
        self.masters.stale = True

    def host(self, vector: Any) -> npt.NDArray[np.float32]:
        """Return ``vector`` (as codecs hold it) in host memory; no copy on the CPU."""
        return vector if isinstance(vector, np.ndarray) else vector.detach().cpu().numpy()

    def blame(self, error: NonFiniteUpdate) -> NonFiniteUpdate:
        """Return the same error, with the name of the parameter."""
        number = int(np.searchsorted(np.cumsum(self.sizes), error.element, side="right"))
        return NonFiniteUpdate(
            f"the gradient of {self.names[number]!r} is NaN or infinite: nothing of this step was sent. "
            "Try a smaller learning rate, gradient clipping (worker.step(loss, clip_norm=1.0)), or look at the data",
            error.element,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the model's tensors as a file has them."""
        self.masters.refresh()
        return saved_tensors(self.model)


def saved_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the model's ``state_dict`` on the host, as a copy only where it must be; tied tensors under each of their
    names, parts of tensors under names that say so (``sharded.py``). The widest types come first: so each begins at a
    multiple of its size, as in any safetensors file."""
    found = {file_name(name, t): local(t).detach().cpu().contiguous() for name, t in model.state_dict().items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1].itemsize, item[0])))


def named_tensors(model: nn.Module, trained: Collection[int]) -> list[Named]:
    """Return every tensor of ``model`` with its name and part; ``trained``: the parameters that are, by ``id``."""
    parts = {True: "trained", False: "frozen"}
    parameters = [(name, local(p).detach(), parts[id(p) in trained]) for name, p in model.named_parameters()]
    return parameters + [(name, local(b).detach(), "buffer") for name, b in model.named_buffers()]


def specs_of(model: nn.Module, trained: Collection[int], named: Sequence[Named] | None = None) -> list[TensorSpec]:
    """Return what ``model`` consists of, to compare models. ``named``: the result of ``named_tensors``, if known."""
    return [
        TensorSpec(name, list(each.shape), str(each.dtype).removeprefix("torch."), part, _layout(each, part))
        for name, each, part in named or named_tensors(model, trained)
    ]


def _room(size: int, device: torch.device) -> torch.Tensor:
    """Return an empty vector; in host memory it begins with a cache line, and a large one is on huge pages.

    NumPy asks Linux for them (``MADV_HUGEPAGE``, from 4 MiB on), torch does not; on other systems there are none, and
    nothing is lost. A scan goes through two or three vectors at once, and small pages must be looked up all the time:
    with only the weights on small pages, scans of 25 million elements took 8% (``threshold``) and 19% (``tether``) more.

    >>> room = _room(5, torch.device("cpu"))
    >>> len(room), room.data_ptr() % 64
    (5, 0)
    """
    if device.type != "cpu":
        return torch.empty(size, dtype=torch.float32, device=device)
    room = np.empty(4 * size + LINE_NBYTES, np.uint8)
    start = -room.ctypes.data % LINE_NBYTES
    return torch.from_numpy(room[start : start + 4 * size].view(np.float32))


def memory_order(tensor: torch.Tensor) -> list[int]:
    """Return the dimensions from the outermost to the innermost in memory; as they are, if the tensor has gaps.

    >>> memory_order(torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))
    [0, 2, 3, 1]
    """
    order = list(range(tensor.ndim))
    if tensor.is_contiguous():
        return order
    strides = tensor.stride()
    found = sorted(order, key=lambda dim: -strides[dim])
    return found if tensor.permute(found).is_contiguous() else order


def shaped(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the flat ``part`` as a view with the shape of ``like``, and with its strides if it has no gaps.

    >>> weight = torch.zeros(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    >>> shaped(torch.zeros(120), weight).stride() == weight.stride()
    True
    """
    order = memory_order(like)
    if like.is_contiguous() or order != list(range(like.ndim)):
        return part.as_strided(like.shape, like.stride())
    return part.view(like.shape)


def _layout(tensor: torch.Tensor, part: str) -> str:
    """Return the memory order of a trained tensor that is not contiguous, as text."""
    order = memory_order(tensor)
    return "" if part != "trained" or order == list(range(tensor.ndim)) else ",".join(map(str, order))


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _load(tensors: Sequence[torch.Tensor], data: bytes | memoryview) -> None:
    expected = sum(tensor.nbytes for tensor in tensors)
    if len(data) != expected:
        raise Misuse(f"{len(data)} bytes of state", f"{expected} bytes", "do all workers build the same model?")
    offset = 0
    with torch.no_grad():
        for tensor in tensors:
            if tensor.nbytes:
                part = torch.frombuffer(bytearray(data[offset : offset + tensor.nbytes]), dtype=tensor.dtype)
                tensor.copy_(part.view(tensor.shape))
            offset += tensor.nbytes
