"""Growing a model in mid-run: another model takes the place of the one that was trained, and what fits is carried over.

    carried   a parameter or buffer that both models hold, or of which ``carry`` says so: its weights are the old ones',
              which all workers have alike; its optimizer state goes along where the shapes agree
    new       everything else: the initial values of the worker with the lowest rank, at all workers

Where replicas differ when a phase ends, carried weights are averaged. So with w_i the new model of worker i of n,

    w  <-  w_i  or  (1/n) sum_i w_i              carried
    w  <-  sum_i e_i w_i / sum_i e_i             new, with e_i = 2^(-30 min(i, 3)), i from the lowest rank on

which is w_0 but for what float32 does not show, is the same everywhere, and is another worker's where the first ones die
in that round. (Training at growing resolution: Tan and Le 2021, "EfficientNetV2"; widening: Chen et al. 2016, "Net2Net".)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from taut.errors import Misuse
from taut.strategies.local import Local
from taut.worker.model.flat_params import FlatParams, specs_of
from taut.worker.optimizer.joined import members_of, parameters_of

if TYPE_CHECKING:
    from taut.core.messages import TensorSpec
    from taut.worker.model.master_weights import Rounding
    from taut.worker.standalone.worker import Vector

Carry = Callable[[nn.Module, nn.Module], Collection[str] | None]
FADING = 2.0**-30  # of what the next worker gives of new weights


def by_name(old: nn.Module, new: nn.Module) -> list[str]:
    """Copy to ``new`` every parameter and buffer of ``old`` that has its name and its shape; return the names.

    >>> old, new = nn.Sequential(nn.Linear(2, 3)), nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    >>> by_name(old, new)
    ['0.weight', '0.bias']
    >>> bool((new[0].weight == old[0].weight).all())
    True
    """
    given, names = _tensors(old), []
    with torch.no_grad():
        for name, tensor in _tensors(new).items():
            if name in given and given[name].shape == tensor.shape:
                tensor.copy_(given[name])
                names.append(name)
    return names


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


@dataclass
class Growth:
    """The ``model`` and the ``optimizer`` that follow on ``old`` and ``old_optimizer``. ``trained``: its parameters that
    the optimizer has; ``also``: as for ``taut.join``. After ``apply``: ``params``, and the names that were
    ``carried``."""

    old: nn.Module
    old_optimizer: torch.optim.Optimizer
    model: nn.Module
    optimizer: torch.optim.Optimizer
    trained: Sequence[nn.Parameter]
    carry: Carry = by_name
    also: Mapping[str, Any] = field(default_factory=dict)
    params: FlatParams | None = None
    carried: frozenset[str] = frozenset()
    unchanged: frozenset[str] = frozenset()  # of those: as they were, and under their old name

    def specs(self) -> list[TensorSpec]:
        """Return what the new model consists of."""
        return specs_of(self.model, {id(each) for each in self.trained})

    def apply(self, rounding: Rounding | None, old_params: FlatParams | None = None) -> None:
        """Carry weights and optimizer state over. ``rounding``: of a new flat vector; None: no vector is needed."""
        masters = _masters(old_params)
        shared = _shared(self.old, self.model)
        if rounding is not None:
            self.params = FlatParams(self.model, self.trained, rounding)
        names = self.carry(self.old, self.model)
        carried = set(shared) | set(names or ())
        unknown = sorted(carried - _tensors(self.model).keys())
        if unknown:
            raise Misuse(f"carry, which names {unknown[0]!r}", "names of tensors of the new model, which it has filled")
        if self.params is not None:
            self._keep_masters(masters, shared, exact=self.carry is by_name)
        for parameter in self.trained:
            parameter.grad = None
        self._carry_moments(shared, carried)
        self.carried = frozenset(carried)
        same = {name: shared.get(name, name) for name in carried if self.carry is by_name or name in shared}
        self.unchanged = frozenset(name for name, before in same.items() if before == name)

    def _keep_masters(self, masters: Mapping[str, torch.Tensor], shared: Mapping[str, str], exact: bool) -> None:
        """Give parameters of half precision the float32 weights that they had, not the rounded ones."""
        params = self.params
        assert params is not None
        params.masters.take_changes()
        with torch.no_grad():
            for name, (parameter, view) in zip(params.names, params.views(params.tensor), strict=True):
                master = masters.get(shared.get(name, name if exact else ""))
                if parameter.dtype != torch.float32 and master is not None and master.shape == view.shape:
                    view.copy_(master)
        params.masters.stale = True
        params.masters.refresh()

    def _carry_moments(self, shared: Mapping[str, str], carried: Collection[str]) -> None:
        """Take over the optimizer state of carried parameters, where optimizer and shapes are the same."""
        if self.optimizer is self.old_optimizer:
            return
        before = dict(self.old.named_parameters())
        owners = _owners(self.old_optimizer)
        mine = _owners(self.optimizer)
        for name, parameter in self.model.named_parameters():
            source = before.get(shared.get(name, name)) if name in carried else None
            if source is None or id(parameter) not in mine or id(source) not in owners:
                continue
            old, new = owners[id(source)], mine[id(parameter)]
            state = old.state.get(source)
            if type(old) is type(new) and state and source.shape == parameter.shape and parameter not in new.state:
                new.state[parameter] = state


def _masters(params: FlatParams | None) -> dict[str, torch.Tensor]:
    if params is None:
        return {}
    params.masters.take_changes()
    return {name: view for name, (_, view) in zip(params.names, params.views(params.tensor), strict=True)}


def _shared(old: nn.Module, new: nn.Module) -> dict[str, str]:
    """Return the tensors that both models hold: by their names in the new one, those in the old one."""
    known = {id(tensor): name for name, tensor in _tensors(old).items()}
    return {name: known[id(tensor)] for name, tensor in _tensors(new).items() if id(tensor) in known}


def _owners(optimizer: torch.optim.Optimizer) -> dict[int, torch.optim.Optimizer]:
    return {id(each): member for member in members_of(optimizer) for each in parameters_of(member)}


class NewValues(Local):
    """The values that workers agree upon for a grown model: its new weights, trained or frozen, and with ``averages`` the
    carried ones. ``position``: of this worker, counted from the lowest rank. The last element counts what was given."""

    def __init__(self, growth: Growth, averages: bool, position: int) -> None:
        assert growth.params is not None
        params, carried = growth.params, growth.carried
        self._params, self._share = params, FADING ** min(position, 3)
        self._new = np.concatenate(
            [np.full(size, name not in carried) for name, size in zip(params.names, params.sizes, strict=True)]
        )
        self._sent = np.full(params.size, True) if averages else self._new
        self._frozen = [
            tensor
            for name, tensor, part in params.named()
            if part == "frozen" and name not in carried and tensor.is_floating_point()
        ]
        self.needed = bool(self._sent.any()) or bool(self._frozen)
        self.x = np.zeros(0, np.float32)
        self.fetch()

    def fetch(self) -> None:
        own: Vector = np.array(self._params.host(self._params.vector), np.float32)
        own[self._new] *= np.float32(self._share)
        frozen = [each.detach().float().cpu().numpy().ravel() * np.float32(self._share) for each in self._frozen]
        self.x = np.concatenate([own[self._sent], *frozen, np.array([self._share], np.float32)], dtype=np.float32)

    def put_back(self) -> None:
        given = self.x[-1]
        if not given > 0.0:
            raise Misuse("new weights that are NaN or infinite at every worker", "a model with finite initial weights")
        own: Vector = np.array(self._params.host(self._params.vector), np.float32)
        count = int(self._sent.sum())
        own[self._sent] = self.x[:count]
        own[self._new] /= given
        self._params.load(own)
        self._params.masters.refresh()
        for each in self._frozen:
            part = torch.from_numpy(self.x[count : count + each.numel()] / given)
            with torch.no_grad():
                each.copy_(part.view(each.shape))
            count += each.numel()
