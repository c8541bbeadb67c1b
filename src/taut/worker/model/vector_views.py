"""What a method sees of a torch worker: its weights, or its gradients, as one float32 vector in host memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from taut.codecs import Codec, merge, validate
from taut.codecs.vector_codec import VectorCodec
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
        self._prepared: bytes | None = None

    def prepare(self, v: Vector, weight: float) -> None:
        """Encode in advance: during ``encode`` itself the communication thread may have to wait."""
        if weight:
            with self._encoding():
                self._prepared = super().encode(v, weight)

    def encode(self, v: Vector, weight: float = 1.0) -> bytes:
        prepared, self._prepared = self._prepared, None
        return super().encode(v, weight) if prepared is None else prepared

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


class Weights(Local):
    """The flat vector itself on the CPU; on a GPU a copy, fetched before a turn and put back after it. ``coder``: the
    run's codec, for methods that compress vectors."""

    coder: FlatParamsCodec | None = None

    def __init__(self, replica: Replica) -> None:
        self.replica, self.params = replica, replica.params
        host = self.params.host(self.params.vector)
        self.x: Vector = host if self.params.on_cpu else host.copy()
        self._copied = (
            not self.params.on_cpu and not replica.uses_codec
        )  # a codec works on the flat vector, wherever that is

    def fetch(self) -> None:
        if self._copied:
            self.x[:] = self.params.host(self.params.vector)

    def put_back(self) -> None:
        if self._copied:
            self.params.vector.copy_(torch.from_numpy(self.x))

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
    are put back, too, and what was in their place is laid ``aside``."""

    coder: FlatParamsCodec | None = None

    def __init__(self, params: FlatParams) -> None:
        self.wishes = [Wish([0.0])]
        self.owners = [0] * len(params.sizes)
        self.aside: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []
        self.params, self.sizes = params, params.sizes
        self.x: Vector = np.zeros(params.size, np.float32)
        self.present: Vector = np.zeros(len(params.sizes), np.float32)
        self.since = 0  # the round after which the weights are; ``round_agreement.NEW``: they are still to come
        self.scale = 1.0  # of what is fetched: a sum over samples becomes a mean
        self._starts = np.cumsum([0, *params.sizes]).tolist()

    def fetch(self, first: int = 0, last: int | None = None) -> None:
        """Copy the gradients here, or those of parameters ``first`` to ``last`` - 1."""
        for number in range(first, len(self.sizes) if last is None else last):
            parameter = self.params.parameters[number]
            steps = self.wishes[self.owners[number]].steps
            part, gradient = self._part(number), parameter.grad if steps else None
            self.present[number] = gradient is not None
            if gradient is None:
                part[:] = 0.0
            else:
                view = shaped(torch.from_numpy(part), local(parameter))
                view.copy_(gradient.to_dense() if gradient.is_sparse else local(gradient))
                if self.scale != 1.0:
                    part *= np.float32(self.scale)

    def put_back(self, vector: torch.Tensor | None = None, present: Sequence[float] | Vector | None = None) -> None:
        """Copy what is here, or ``vector``, into the gradients of those parameters that anybody had one for."""
        vector = torch.from_numpy(self.x) if vector is None else vector
        present = self.present if present is None else present
        for number, (parameter, part) in enumerate(self.params.views(vector)):
            wish = self.wishes[self.owners[number]]
            if not wish.steps:
                if not wish.share:
                    continue
                self.aside.append((parameter, parameter.grad))
                parameter.grad = None
            if not present[number]:
                parameter.grad = None
                continue
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = like_whole(torch.empty_like(local(parameter)), parameter)
            gradient = local(parameter.grad)
            gradient.copy_(part)
            if wish.share != 1.0:  # the mean is over the samples of all optimizers
                gradient /= wish.share

    def take_back(self) -> None:
        """Give the script the gradients that were laid aside."""
        for parameter, gradient in self.aside:
            parameter.grad = gradient
        self.aside.clear()

    def _part(self, number: int) -> Vector:
        return self.x[self._starts[number] : self._starts[number + 1]]
