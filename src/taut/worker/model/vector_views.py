"""What a method sees of a torch worker: its weights, or its gradients, as one float32 vector.

The vector is in host memory, but for gradients on a GPU that are compressed there. What is copied from a GPU goes through
pinned memory, and only when the method asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from taut.codecs import Codec, merge, validate
from taut.codecs.device_vectors import DeviceVectorCodec
from taut.codecs.vector_codec import VectorCodec, Written
from taut.errors import NonFiniteUpdate
from taut.strategies.local import Local, Wish
from taut.worker.model.flat_params import FlatParams, shaped
from taut.worker.model.replica import Replica
from taut.worker.model.sharded import like_whole, local
from taut.worker.standalone.worker import Vector
from taut.worker.time_split import Stopwatch


class FlatParamsCodec(VectorCodec):
    """For vectors in the flat vector's order: encoding is charged as such, and what is not finite named."""

    def __init__(self, codec: Codec, params: FlatParams, watch: Stopwatch, seed: int, workers: int) -> None:
        super().__init__(codec, params.size, params.shapes, seed, workers)
        self.params, self.watch = params, watch
        self._prepared: Written | None = None

    def prepare(self, v: Vector, weight: float) -> None:
        """Encode in advance: during ``encode`` itself the communication thread may have to wait."""
        if weight:
            with self._encoding():
                self._prepared = self._weighted(v, weight)

    def encode(self, v: Vector, weight: float = 1.0, tail: bytes = b"") -> Written:
        prepared, self._prepared = self._prepared, None
        return super().encode(v, weight, tail) if prepared is None else self._joined(prepared, tail)

    def residual_parts(self) -> Iterator[bytes]:
        prepared, self._prepared = self._prepared, None
        left = self.left
        if prepared and left is not None:
            self.add(prepared, left)  # a turn that was broken off: nobody was told
        yield from super().residual_parts()

    def difference(self, v: Vector) -> bytes:
        with self._encoding():
            return super().difference(v)

    @contextmanager
    def _encoding(self) -> Iterator[None]:
        try:
            yield
        except NonFiniteUpdate as error:
            raise self.params.blame(error) from None
        finally:
            self.watch.charge("encode")


class DeviceGradientsCodec(FlatParamsCodec, DeviceVectorCodec):
    """For gradients that stay on the model's device."""

    def __init__(self, codec: Codec, params: FlatParams, watch: Stopwatch, seed: int, workers: int) -> None:
        super().__init__(codec, params, watch, seed, workers)
        self.device = params.tensor.device


class Weights(Local):
    """The flat vector itself on the CPU; on a GPU a copy, which is made when the method asks for it in a turn, and put
    back after that turn. ``coder``: the run's codec, for methods that compress vectors."""

    coder: FlatParamsCodec | None = None

    def __init__(self, replica: Replica) -> None:
        self.replica, self.params = replica, replica.params
        self._copied = (
            not self.params.on_cpu and not replica.uses_codec
        )  # a codec works on the flat vector, wherever that is
        on_cpu, device = self.params.on_cpu, self.params.tensor.device
        self._x: Vector = self.params.vector if on_cpu else host_memory(self.params.size, device).numpy()
        self._behind = not on_cpu  # the weights have moved since the copy was made

    @property
    def x(self) -> Vector:
        if self._behind:
            torch.from_numpy(self._x).copy_(self.params.tensor)
            self._behind = False
        return self._x

    @x.setter
    def x(self, value: Vector) -> None:
        self.x[:] = value  # ``x += d`` ends here, too

    def fetch(self) -> None:
        """Let the method see the weights as they are now."""
        self._behind = self._copied

    def put_back(self) -> None:
        """Give the model what the method has made of the weights, if it asked for them."""
        if self._copied and not self._behind:
            self.params.tensor.copy_(torch.from_numpy(self._x))
        self.params.masters.stale = True

    def emit(self) -> bytes | None:
        return self.replica.emit()

    def absorb(self, payload: bytes) -> None:
        self.replica.absorb(payload, -1)

    # What a relay needs beside that (``taut.strategies.local.CodedLocal``).

    def check(self, payload: bytes) -> None:
        validate(payload, self.params.size)

    def merge(self, payloads: Sequence[bytes]) -> bytes:
        return merge(payloads, self.params.size)

    def flush(self) -> list[bytes]:
        return self.replica.flush()

    def retune(self, workers: int, staleness: float) -> None:
        self.replica.retune(workers, staleness)

    @property
    def shared(self) -> Vector:
        return self.params.host(self.replica.shared())

    def shift(self, change: Vector) -> None:
        """Move by ``change``, and the shared weights with it: the codec has nothing to say of it."""
        state = self.replica.codec_state
        state.kernels.add_values(state.w, state.b, 0, change)

    def shadow(self, name: str, workers: int, step_s: float) -> Any:
        """Return a codec on a copy of the weights, to see what it would cost (``taut probe``)."""
        from taut.worker.codec_costs.shadow import ShadowCodec

        return ShadowCodec(name, self.x, workers, step_s)

    def adopt(self, shared: Vector) -> None:
        self.replica.codec.adopt(self.replica.codec_state, shared)


class Gradients(Local):
    """The parameters' gradients in the order of the flat vector. ``present[i]``: how many workers have a gradient for
    parameter i (this one alone, after ``fetch``). A parameter without one counts as zero. One that nobody has a gradient
    for gets none, so that the optimizer passes over it as it would alone; one that somebody has a gradient for gets one,
    even if it is zero, since momentum and weight decay move it then. ``coder``: the run's codec, unless that is dense.

    ``wishes``: one for each optimizer of the script; ``owners``: of each parameter, the number of its optimizer. Only
    gradients for optimizers whose ``steps`` is set are fetched. Gradients that others have computed for another optimizer
    are put back, too, and what was in their place is laid ``aside``. ``sparse``: the optimizers that take no others."""

    coder: FlatParamsCodec | None = None

    def __init__(self, params: FlatParams) -> None:
        self.wishes = [Wish([0.0])]
        self.owners = [0] * len(params.sizes)
        self.sparse: Sequence[int] = ()
        self.aside: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []
        self.params, self.sizes = params, params.sizes
        self._tensor: torch.Tensor | None = None  # made on first use
        self._stays = False  # on the model's device
        self.present: Vector = np.zeros(len(params.sizes), np.float32)
        self.since = 0  # the round after which the weights are; ``round_agreement.NEW``: they are still to come
        self.scale = 1.0  # of what is fetched: a sum over samples becomes a mean
        self._starts = np.cumsum([0, *params.sizes]).tolist()

    def stay_on_device(self) -> None:
        """Keep the vector where the model is: the codec works there (``DeviceGradientsCodec``)."""
        self._stays = True
        self._place(torch.zeros_like(self.params.tensor))

    def fetch(self, first: int = 0, last: int | None = None) -> None:
        """Copy the gradients here, or those of parameters ``first`` to ``last`` - 1."""
        tensor, last = self.tensor, len(self.sizes) if last is None else last
        views = self._views
        targets, sources = list[torch.Tensor](), list[torch.Tensor]()
        for number in range(first, last):
            steps = self.wishes[self.owners[number]].steps
            gradient = self.params.parameters[number].grad if steps else None
            self.present[number] = gradient is not None
            if gradient is None:
                views[number].zero_()
            else:
                dense = gradient.to_dense() if gradient.is_sparse else local(gradient)
                targets.append(_fitting(views[number], dense))
                sources.append(dense)
        self._copy(targets, sources)
        if self.scale != 1.0:
            tensor[self._starts[first] : self._starts[last]] *= self.scale

    def put_back(self, vector: torch.Tensor | None = None, present: Sequence[float] | Vector | None = None) -> None:
        """Copy what is here, or ``vector``, into the gradients of those parameters that anybody had one for."""
        vector = self.tensor if vector is None else vector
        if vector.is_cuda:  # the communication thread has made it, on the default stream
            torch.cuda.current_stream(vector.device).wait_stream(torch.cuda.default_stream(vector.device))
        present = self.present if present is None else present
        targets, sources, shared = list[torch.Tensor](), list[torch.Tensor](), list[tuple[torch.Tensor, float]]()
        parts = self._views if vector is self.tensor else [part for _, part in self.params.views(vector)]
        for number, (parameter, part) in enumerate(zip(self.params.parameters, parts, strict=True)):
            wish = self.wishes[self.owners[number]]
            if not wish.steps:
                if not wish.share:
                    continue
                self.aside.append((parameter, parameter.grad))
                parameter.grad = None
            if not present[number]:
                parameter.grad = None
                continue
            if self.owners[number] in self.sparse:
                parameter.grad = (part / wish.share).to_sparse(1)  # of the rows that anybody's gradient has
                continue
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = like_whole(torch.empty_like(local(parameter), dtype=torch.float32), parameter)
            gradient = local(parameter.grad)
            targets.append(gradient)
            sources.append(_fitting(part, gradient))
            if wish.share != 1.0:  # the mean is over the samples of all optimizers
                shared.append((gradient, wish.share))
        self._copy(targets, sources)
        for each, share in shared:
            each /= share  # noqa: PLW2901  # in place

    def _copy(self, targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
        """Copy tensors with few launches, and wait for those that come from a GPU, or go to it."""
        if not targets:
            return
        with torch.no_grad():
            torch._foreach_copy_(targets, sources, non_blocking=True)
        if self.params.tensor.is_cuda and not self.tensor.is_cuda:
            torch.cuda.current_stream(self.params.tensor.device).synchronize()

    def take_back(self) -> None:
        """Give the script the gradients that were laid aside."""
        for parameter, gradient in self.aside:
            parameter.grad = gradient
        self.aside.clear()

    @property
    def tensor(self) -> torch.Tensor:
        """Return the vector."""
        if self._tensor is None:
            self._place(host_memory(self.params.size, self.params.tensor.device))
        assert self._tensor is not None
        return self._tensor

    @property
    def x(self) -> Vector:
        vector: Any = self.tensor
        return vector if self._stays else vector.numpy()  # type: ignore[no-any-return]

    @x.setter
    def x(self, value: Vector) -> None:
        self.x[:] = value

    def _place(self, vector: torch.Tensor) -> None:
        self._tensor = vector
        self._views = [view for _, view in self.params.views(vector)]


def _fitting(part: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the part in the shape of ``like``: a model that has changed its shape is refused later."""
    return part if part.shape == like.shape else shaped(part.reshape(-1), like)


def host_memory(size: int, device: torch.device) -> torch.Tensor:
    """Return zeros in host memory, pinned if ``device`` is a GPU."""
    if device.type == "cuda":
        return torch.zeros(size, pin_memory=True)
    return torch.from_numpy(np.zeros(size, np.float32))  # which takes no memory before it is written
