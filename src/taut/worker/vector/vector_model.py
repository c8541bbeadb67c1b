"""An array of the script's own as a module of named parts, in the array's own memory: nothing is copied.

Everything behind the flat vector (codecs, strategies, checkpoints, the saved model) sees parameters as of any model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.dlpack import from_dlpack

from taut.errors import Misuse

CPU = 1  # of DLPack's numbers of devices
WHOLE = "vector"  # the name of the only part, where the script names none
Parts = Mapping[str, Sequence[int]]


class VectorModel(nn.Module):
    """``array`` as ``parts``: names and shapes, in the order of the array's elements. ``tensor``: the same memory, flat.

    >>> w = np.zeros(5, np.float32)
    >>> model = VectorModel(w, {"weight": (2, 2), "bias": (1,)})
    >>> with torch.no_grad(): model.state_dict()["bias"].fill_(2.0).tolist(), w.tolist()
    ([2.0], [0.0, 0.0, 0.0, 0.0, 2.0])
    """

    def __init__(self, array: Any, parts: Parts | None = None) -> None:
        super().__init__()
        shaped = tensor_of(array)
        self.array, self.tensor = array, shaped.view(-1)
        sizes = check_parts(parts, len(self.tensor)) if parts is not None else {WHOLE: tuple(shaped.shape)}
        offset = 0
        for name, shape in sizes.items():
            part = self.tensor[offset : offset + prod(shape)].view(shape)
            self._parameters[name] = nn.Parameter(part)  # not `register_parameter`, which refuses names with dots
            offset += part.numel()

    def parts(self) -> dict[str, Any]:
        """Return each part by its name, as a view of the array's memory."""
        return {name: like(self.array, each.detach()) for name, each in self.named_parameters()}


def tensor_of(array: Any) -> torch.Tensor:
    """Return a tensor in the memory of ``array``. Raises ``Misuse`` for one that cannot be trained in place."""
    if isinstance(array, torch.Tensor):
        found = array.detach()
    elif hasattr(array, "__array_interface__"):
        found = _of_numpy(np.asarray(array))
    elif hasattr(array, "__dlpack__") and array.__dlpack_device__()[0] == CPU:
        found = _of_numpy(np.from_dlpack(array))
    elif hasattr(array, "__dlpack__"):
        found = from_dlpack(array)
    else:
        expected = "a NumPy array, or one with the array interface or DLPack"
        raise Misuse(f"join_vector({type(array).__name__})", expected, "make an array: numpy.array(w, numpy.float32)")
    _check_contiguous(found.is_contiguous())
    if found.dtype != torch.float32:
        raise _other_type(str(found.dtype).removeprefix("torch."))
    if not found.numel():
        raise Misuse("join_vector(an empty array)", "at least one element")
    return found


def _of_numpy(array: Any) -> torch.Tensor:
    if array.dtype != np.float32:  # float32 of the other byte order is another type, too
        raise _other_type(str(array.dtype))
    if not array.flags.writeable:
        raise Misuse(
            "join_vector(a read-only array)",
            "an array that is trained in place",
            "give a copy, numpy.array(w), and train that; for arrays of JAX there is taut.jax.join",
        )
    _check_contiguous(array.flags.c_contiguous)
    return torch.from_numpy(array)


def _check_contiguous(contiguous: bool) -> None:
    if not contiguous:
        raise Misuse(
            "join_vector(an array that is not contiguous)",
            "one whose elements follow each other in memory, in C order",
            "make a contiguous copy, w = numpy.ascontiguousarray(w), and train that",
        )


def _other_type(given: str) -> Misuse:
    return Misuse(
        f"join_vector(an array of type {given})",
        "float32, as codecs and strategies work on",
        "convert it before, w = w.astype(numpy.float32); gradients may be of any type",
    )


def check_parts(parts: Parts, size: int) -> dict[str, tuple[int, ...]]:
    """Return the parts with shapes as tuples. Raises ``Misuse`` unless they make up ``size`` elements."""
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in parts.items():
        if not isinstance(name, str) or not name:
            raise Misuse(f"parts={{{name!r}: ...}}", "names of parts as text")
        try:
            found[name] = tuple(int(each) for each in shape)
        except TypeError:
            raise Misuse(f"parts={{{name!r}: {shape!r}}}", "its shape, a tuple of whole numbers") from None
        if min(found[name], default=1) < 1:
            raise Misuse(f"parts={{{name!r}: {shape!r}}}", "sizes of at least 1")
    total = sum(prod(shape) for shape in found.values())
    if total != size:
        raise Misuse(f"parts of {total:,} elements", f"{size:,}, as many as the array has")
    return found


def like(array: Any, tensor: torch.Tensor) -> Any:
    """Return ``tensor`` as an array of the same library as ``array``, in the tensor's memory.

    >>> type(like(np.zeros(1), torch.zeros(1))).__name__, type(like(torch.zeros(1), torch.zeros(1))).__name__
    ('ndarray', 'Tensor')
    """
    if isinstance(array, torch.Tensor):
        return tensor
    if tensor.device.type == "cpu":
        return tensor.numpy()
    return array.__array_namespace__().from_dlpack(tensor)
