"""Linear layers by columns (outputs) or rows (inputs): torch's own parallel styles, with what they leave to the user.

    y = x [W1 W2] + [b1 b2]          columns: each process computes some outputs
    y = x1 W1 + x2 W2 + b            rows: each process takes some inputs, and the parts are summed

``columns(first, gather=False)`` then ``rows(second, split=True)`` exchange once, not twice (Megatron's pair).
Paper: Shoeybi et al. 2019, "Megatron-LM".
"""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed.tensor.parallel.style import ParallelStyle

from taut.errors import Misuse
from taut.parallel.island import Island, check_device, island, note_cut


def columns(linear: nn.Linear, *, gather: bool = True, group: Island | None = None) -> nn.Module:
    """Cut ``linear`` by its outputs. ``gather``: return all outputs to every process; else each has its own part."""
    group = _check(_linear(linear).out_features, "outputs", not gather, group)
    return _cut(linear, ColwiseParallel(output_layouts=Replicate() if gather else Shard(-1)), group)


def rows(linear: nn.Linear, *, split: bool = False, group: Island | None = None) -> nn.Module:
    """Cut ``linear`` by its inputs. ``split``: each process has its part of the inputs only, from ``columns``."""
    group = _check(_linear(linear).in_features, "inputs", split, group)
    return _cut(linear, RowwiseParallel(input_layouts=Shard(-1) if split else Replicate()), group)


def _linear(layer: nn.Module) -> nn.Linear:
    if not isinstance(layer, nn.Linear):
        given = f"{type(layer).__name__} to be cut by columns or rows"
        raise Misuse(given, "a torch.nn.Linear", "filters() cuts convolutions")
    return layer


def _check(width: int, what: str, stays_split: bool, group: Island | None) -> Island:
    group = group or island()
    group.share_of(width, what)
    if stays_split and width % group.size:
        expected = f"a number of {what} that {group.size}, the size of the island, divides"
        raise Misuse(f"{width} {what} that stay split", expected, "gather=True and split=False take any number")
    return group


def _cut(linear: nn.Linear, style: ParallelStyle, group: Island) -> nn.Module:
    if group.size == 1:
        return linear
    check_device(linear.named_parameters(), group.device_type)
    note_cut(linear)
    return parallelize_module(linear, group.mesh, style)
