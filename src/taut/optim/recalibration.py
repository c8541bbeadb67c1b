"""Batch-norm statistics that fit the weights at hand: after averaging, those of the replicas do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from taut.errors import Misuse


def recalibrate(model: nn.Module, batches: Iterable[Any], limit: int | None = None) -> int:
    """Compute the running statistics of all batch-norm layers anew, from training data. Gives the number of batches used.

        running_mean = mean of all values a layer saw        running_var = their variance, with n - 1

    These are the figures of the pooled data, whatever the sizes of the batches; the average of the batches' variances
    would leave out how their means differ. Layers see their own batch's statistics meanwhile, as in training; all
    other layers are in evaluation mode, so dropout is off. Afterwards every module's mode is as before; if the model
    raises, so are the statistics.

    ``model``: without batch norm (or none that tracks statistics), nothing is done and 0 returned. ``batches``: inputs,
    or tuples that begin with the input; each is moved to the model's device. ``limit``: use this many batches at most;
    some thousand samples do.

    >>> model = nn.Sequential(nn.BatchNorm1d(1), nn.Dropout())
    >>> recalibrate(model, [torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0], [5.0]])])
    2
    >>> model[0].running_mean.item(), model[0].running_var.item(), model.training
    (3.0, 2.5, True)

    Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", 2018, arXiv:1803.05407.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise Misuse(f"recalibrate(limit={limit!r})", "a whole number of batches, at least 1", "None uses all")
    tallies = [_Tally(layer) for layer in _norms(model)]
    if not tallies:
        return 0
    device = _device(model)
    used = 0
    with _only_norms_train(model, tallies), torch.no_grad():
        for batch in islice(batches, limit):
            model(input_of(batch).to(device))
            used += 1
        if not any(tally.count for tally in tallies):
            expected = "some training data, through the module that holds the layers"
            remedy = "is the iterator used up, or the model compiled? give a DataLoader and the plain module"
            raise Misuse(f"recalibrate over {used} batches, in which no batch-norm layer was run", expected, remedy)
        for tally in tallies:
            tally.write()
    return used


def is_recalibrated(model: nn.Module) -> bool:
    """Return whether ``recalibrate`` has anything to do."""
    return bool(_norms(model))


def _norms(model: nn.Module) -> list[_BatchNorm]:
    return [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and _tracks(layer)]


class _Tally:
    """The pooled mean and squared deviation of what one layer saw, joined batch by batch (Chan et al. 1979)."""

    def __init__(self, layer: _BatchNorm) -> None:
        self.layer, self.momentum = layer, layer.momentum
        self.kept = {name: buffer.clone() for name, buffer in _statistics(layer)}
        self.count = 0
        self.mean, self.deviation = torch.tensor(0.0), torch.tensor(0.0)

    def begin(self) -> None:
        self.layer.reset_running_stats()  # a NaN in there would survive even a momentum of 1
        self.layer.momentum = 1.0  # after each call the running statistics are those of the batch

    def add(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Add the batch's statistics, which torch has just put into the layer (a forward hook)."""
        mean, variance = self.layer.running_mean, self.layer.running_var
        assert mean is not None
        assert variance is not None
        wide = torch.promote_types(mean.dtype, torch.float32)
        count = output.numel() // mean.numel()
        mean, deviation = mean.to(wide, copy=True), variance.to(wide) * (count - 1)
        if self.count:
            total = self.count + count
            apart = mean - self.mean
            deviation += self.deviation + apart.square() * (self.count * count / total)
            mean = self.mean + apart * (count / total)
        self.mean, self.deviation, self.count = mean, deviation, self.count + count

    def write(self) -> None:
        if not self.count:  # a branch that was never taken: what it had is better than nothing
            self.restore()
            return
        for name, buffer in _statistics(self.layer):
            if name == "running_mean":
                buffer.copy_(self.mean)
            elif name == "running_var":
                buffer.copy_(self.deviation / (self.count - 1))

    def restore(self) -> None:
        for name, buffer in _statistics(self.layer):
            buffer.copy_(self.kept[name])


@contextmanager
def _only_norms_train(model: nn.Module, tallies: list[_Tally]) -> Iterator[None]:
    """Put norm layers into training mode and everything else into evaluation mode; put everything back at the end."""
    modes = [(module, module.training) for module in model.modules()]
    hooks = [tally.layer.register_forward_hook(tally.add) for tally in tallies]
    try:
        for module, _ in modes:
            module.training = False  # not .eval(): models override that to do more
        for tally in tallies:
            tally.layer.training = True
            tally.begin()
        yield
    except BaseException:
        with torch.no_grad():
            for tally in tallies:
                tally.restore()
        raise
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
        for tally in tallies:
            tally.layer.momentum = tally.momentum


def _tracks(layer: _BatchNorm) -> bool:
    if layer.running_mean is not None and is_lazy(layer.running_mean):
        raise Misuse("a LazyBatchNorm that has seen no data", "a layer of known size", "run the model once before")
    return layer.track_running_stats and layer.running_mean is not None


def _statistics(layer: _BatchNorm) -> Iterator[tuple[str, Tensor]]:
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        buffer = getattr(layer, name)
        if buffer is not None:
            yield name, buffer


def _device(model: nn.Module) -> torch.device:
    """Return the device of the first parameter, or of a model without parameters its statistics': inputs go there."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    raise AssertionError("a layer that tracks statistics has buffers")


def input_of(batch: Any) -> Tensor:
    """Return the input in a batch of training data."""
    found = batch[0] if isinstance(batch, list | tuple) and batch else batch
    if not isinstance(found, Tensor):
        raise Misuse(f"a batch of type {type(batch).__name__}", "a tensor, or a tuple (input, ...) that begins with one")
    return found
