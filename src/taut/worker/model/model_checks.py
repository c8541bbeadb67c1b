"""Refuse models and optimizers that cannot be trained correctly: at ``taut.join``, and when a script changes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from taut.errors import Misuse
from taut.worker.model.sharded import local
from taut.worker.model.tensor_file import is_saved
from taut.worker.optimizer.joined import Optimizer, members_of, parameters_of

MODULES_PERIOD = 16  # checks: at one in so many, the model is asked for its parameters
HALVES = (torch.bfloat16, torch.float16)  # types of weights that follow a float32 master


def check_model(model: nn.Module, optimizer: Optimizer) -> list[nn.Parameter]:
    """Return the parameters that are trained: those of the optimizer that require gradients, in the model's order.

    Raise ``Misuse`` for a model or an optimizer that taut cannot train, alone or together.
    """
    _check_tensors(model)
    named = dict(model.named_parameters())
    _check_optimizer(named, optimizer)
    owned = {id(parameter) for parameter in parameters_of(optimizer)}
    trained = {name: each for name, each in named.items() if each.requires_grad and id(each) in owned}
    if not trained:
        raise Misuse("a model without trainable parameters", "at least one with requires_grad=True in the optimizer")
    first = next(iter(trained.values()))
    for name, parameter in trained.items():
        _check_type(name, parameter)
        if parameter.device != first.device:
            given = f"parameters on {first.device} and {parameter.device} ({name!r})"
            remedy = (
                "start one worker per device; a model that is too large for one is cut in an island: docs/parallel.md"
            )
            raise Misuse(given, "one device per worker", remedy)
    return list(trained.values())


def _check_type(name: str, parameter: nn.Parameter) -> None:
    if parameter.dtype == torch.float32:
        return
    given = f"parameter {name!r} of type {parameter.dtype}"
    if parameter.dtype not in HALVES:
        raise Misuse(given, "float32, bfloat16 or float16 weights", "keep float32 weights; see docs/precision.md")
    if local(parameter) is not parameter:
        remedy = "keep float32 weights; FSDP computes in half precision by MixedPrecisionPolicy(param_dtype=...)"
        raise Misuse(f"{given} that is cut into parts", "float32 weights", remedy)
    if not hasattr(parameter, "grad_dtype"):
        remedy = "take torch 2.10 or later, or keep float32 weights and compute under torch.autocast"
        raise Misuse(f"{given} with torch {torch.__version__}", "tensors with grad_dtype", remedy)


def check_shareable(optimizer: Optimizer) -> None:
    """Raise ``Misuse`` for an optimizer whose step is wrong when other workers move the weights."""
    for member in members_of(optimizer):
        if isinstance(member, torch.optim.LBFGS):
            raise Misuse(
                "LBFGS in a run of several workers",
                "an optimizer whose step needs one gradient: LBFGS compares gradients at weights that others have moved",
                "take SGD or Adam; or train with LBFGS alone (python train.py), or with --strategy independent",
            )


def _check_tensors(model: nn.Module) -> None:
    for name, each in [*model.named_parameters(), *model.named_buffers()]:
        if isinstance(each, UninitializedParameter | UninitializedBuffer):
            raise Misuse(
                f"{name!r} of a lazy module, which has no shape yet",
                "a model whose parameters all have their shapes",
                "run one batch through the model first, then make the optimizer and join",
            )
        if not is_saved(each.dtype):
            raise Misuse(
                f"{name!r} of type {each.dtype}",
                "tensors of types that safetensors has, since the model is saved in that format",
                "convert it before taut.join, or keep it outside of the model",
            )


def _check_optimizer(named: dict[str, nn.Parameter], optimizer: Optimizer) -> None:
    own, seen = {id(each) for each in named.values()}, set[int]()
    for parameter in parameters_of(optimizer):
        if id(parameter) not in own:
            raise Misuse(
                f"an optimizer with a parameter of shape {tuple(parameter.shape)} that the model does not have",
                "an optimizer of the model's own parameters",
                "make it from model.parameters() of the model that you join; if something beside the model is trained, "
                "join both as one: torch.nn.ModuleList([model, other])",
            )
        if id(parameter) in seen:
            name = next(name for name, each in named.items() if each is parameter)
            raise Misuse(f"parameter {name!r} in two optimizers", "one optimizer for each parameter")
        seen.add(id(parameter))


class ModelGuard:
    """Notices when a script changes its trained parameters after ``join``. ``trained``: those that are exchanged.

    ``check`` takes about 0.4 microseconds for each parameter.

    >>> layer = nn.Linear(2, 1)
    >>> guard = ModelGuard(layer, torch.optim.SGD(layer.parameters(), lr=0.1), list(layer.parameters()))
    >>> guard.check(); layer.double(); guard.check()
    Traceback (most recent call last):
    taut.errors.Misuse: parameter 'weight', moved or converted after join (now torch.float64 on cpu): \
expected the parameters where they were at join; call model.to(...), .cuda() or .double() before taut.join, and load \
weights with load_state_dict without assign=True
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, trained: Sequence[nn.Parameter]) -> None:
        self._model, self._optimizer, self._trained = model, optimizer, trained
        kept = {id(parameter) for parameter in trained}
        others = [parameter for parameter in model.parameters() if id(parameter) not in kept]
        self._frozen = [parameter for parameter in others if not parameter.requires_grad]
        self._unowned = [parameter for parameter in others if parameter.requires_grad]  # no optimizer has them
        self._unowned_versions: list[int] | None = None  # as of the first step
        self._sharded = any(local(parameter) is not parameter for parameter in trained)
        self._addresses = self._places()
        self._shapes = [parameter.shape for parameter in trained]
        self._held = _held(optimizer)
        self._checks = 0

    def check(self) -> None:
        """Raise ``Misuse`` if the script changed the parameters or the optimizer since ``join``."""
        addresses = self._places()
        if addresses != self._addresses:
            self._refuse_moved(next(at for at, address in enumerate(addresses) if address != self._addresses[at]))
        if [parameter.shape for parameter in self._trained] != self._shapes:
            self._refuse_shape()
        if self._frozen and any(parameter.requires_grad for parameter in self._frozen):
            parameter = next(parameter for parameter in self._frozen if parameter.requires_grad)
            raise Misuse(
                f"parameter {self._name(parameter)}, unfrozen after join",
                "parameters that were trainable at join",
                "call taut.join while everything that will ever be trained requires gradients and is in the optimizer; "
                "freeze it after that, and unfreeze it when it is time",
            )
        if _held(self._optimizer) != self._held:
            raise Misuse(
                f"{_held(self._optimizer)} parameters per group of the optimizer",
                f"{self._held}, as at join",
                "give the optimizer all its groups before taut.join, with lr=0 for those that are to wait",
            )
        if self._unowned:
            self._check_unowned()
        if self._checks % MODULES_PERIOD == 0:
            self.check_modules()
        self._checks += 1

    def _places(self) -> list[int]:
        """Return where the trained parameters are in memory."""
        if self._sharded:
            return [local(parameter).data_ptr() for parameter in self._trained]
        return [parameter.data_ptr() for parameter in self._trained]

    def begin(self) -> None:
        """Note that the script trains from now on; before, it may have loaded weights."""
        if self._unowned_versions is None:
            self._unowned_versions = [parameter._version for parameter in self._unowned]

    def has_gradients(self) -> bool:
        """Return whether a backward pass left gradients."""
        return any(parameter.grad is not None for parameter in self._trained)

    def check_modules(self) -> None:
        """Raise ``Misuse`` if the model has no longer the parameters that it had at ``join``. Slower than ``check``."""
        present = {id(parameter) for parameter in self._model.parameters()}
        gone = [parameter for parameter in self._trained if id(parameter) not in present]
        if gone:
            raise Misuse(
                f"a model that has lost a parameter of shape {tuple(gone[0].shape)} since join",
                "the parameters that it had at join",
                "replace layers, and load weights with assign=True, before taut.join",
            )

    def _name(self, wanted: nn.Parameter) -> str:
        return next((repr(name) for name, each in self._model.named_parameters() if each is wanted), "that is gone")

    def _refuse_moved(self, at: int) -> None:
        parameter = self._trained[at]
        now = f"{parameter.dtype} on {parameter.device}"
        raise Misuse(
            f"parameter {self._name(parameter)}, moved or converted after join (now {now})",
            "the parameters where they were at join",
            "call model.to(...), .cuda() or .double() before taut.join, and load weights with load_state_dict "
            "without assign=True",
        )

    def _refuse_shape(self) -> None:
        parameter, shape = next(
            (p, shape) for p, shape in zip(self._trained, self._shapes, strict=True) if p.shape != shape
        )
        raise Misuse(
            f"parameter {self._name(parameter)} of shape {tuple(parameter.shape)}, which was {tuple(shape)} at join",
            "parameters that keep their shapes",
            "change the model before taut.join; a model that grows or shrinks is another run, from the saved one",
        )

    def _check_unowned(self) -> None:
        self.begin()
        versions = [parameter._version for parameter in self._unowned]
        if versions == self._unowned_versions or self._unowned_versions is None:
            return
        at = next(at for at, version in enumerate(versions) if version != self._unowned_versions[at])
        raise Misuse(
            f"parameter {self._name(self._unowned[at])}, changed though no optimizer that was joined has it",
            "all optimizers that train the model",
            "join them all: taut.join(model, [optimizer, other_optimizer])",
        )


def _held(optimizer: Optimizer) -> list[int]:
    return [len(group["params"]) for member in members_of(optimizer) for group in member.param_groups]


class WeightSample:
    """A sample of the weights, compared between one step's end and the next step's begin.

    Where gradients are exchanged, replicas stay equal only if nothing but the optimizer's step moves the weights.
    ``vector``: all trained weights, as a NumPy array or a tensor on a GPU, where a comparison makes the host wait and so
    happens at the first exchanges and then rarely.
    """

    SIZE = 4096
    ON_GPU = (4, 64)  # comparisons at the first 4 steps, and at one in 64 after them

    def __init__(self, vector: Any) -> None:
        self._sample = vector[:: -(-len(vector) // self.SIZE)]
        self._on_gpu = isinstance(vector, torch.Tensor)
        self._compared = 0
        self.renew()

    def renew(self) -> None:
        self._kept = self._sample.clone() if self._on_gpu else self._sample.copy()

    def moved(self) -> bool:
        """Return whether the weights have changed since ``renew``."""
        self._compared += 1
        first, period = self.ON_GPU
        if self._on_gpu and self._compared > first and self._compared % period:
            return False
        return not bool((self._sample == self._kept).all())

    def check(self) -> None:
        """Raise ``Misuse`` if the weights have changed since ``renew``."""
        if self.moved():
            raise Misuse(
                "weights that changed outside of the joined optimizer's step",
                "no other change, since under sync only gradients are exchanged",
                "join every optimizer: taut.join(model, [one, other]); make changes by hand (clamping, projections) in a "
                "hook of it: optimizer.register_step_post_hook(...); or take another strategy, such as async",
            )
