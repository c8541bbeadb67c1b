"""Islands as one process sees them: models that are cut without one, and scalers that agree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from taut.errors import Misuse
from taut.parallel import Island
from taut.worker.joining.island_member import IslandMember, island_member
from taut.worker.optimizer.loss_scaling import LossScaling


@pytest.fixture
def of_four() -> Iterator[None]:
    """Four processes, of which this one is the first, and the others are made up."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("mesh", [[0, 1, 2, 3], [[0, 1], [2, 3]]])
@pytest.mark.usefixtures("of_four")
def test_a_part_of_a_model_is_no_worker_without_islands(mesh: list[Any]) -> None:
    model = fully_shard(nn.Linear(4, 4), mesh=DeviceMesh("cpu", mesh, mesh_dim_names=("a", "b")[: np.ndim(mesh)]))
    with pytest.raises(Misuse) as raised:
        island_member(model, list(model.parameters()))
    told = "'weight', of which this process has a part, in a run without islands: expected the whole model in each worker"
    assert told in str(raised.value) and "taut run --workers 4 --island 4" in str(raised.value)


@pytest.mark.usefixtures("of_four")
def test_a_mesh_of_two_dimensions_is_named() -> None:
    model = fully_shard(nn.Linear(4, 4), mesh=DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("a", "b")))
    with pytest.raises(Misuse) as raised:
        IslandMember(Island(0, 4), model, list(model.parameters()))
    assert "'weight' on a mesh of 2 x 2 processes in an island of 4: expected a mesh of 4, in one dim" in str(
        raised.value
    )


@pytest.mark.usefixtures("of_four")
def test_a_model_on_another_device_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, device="meta"))
    with pytest.raises(Misuse) as raised:
        IslandMember(Island(0, 4), model, list(model.parameters()))
    assert "'1.weight' on meta in an island: expected a model on the processor" in str(raised.value)
    assert "leave --island out, for a worker on each GPU" in str(raised.value)


def test_a_whole_model_needs_no_island() -> None:
    model = nn.Linear(4, 2)
    assert island_member(model, list(model.parameters())) is None


@pytest.mark.parametrize(("here", "elsewhere"), [(False, False), (True, False), (False, True)])
def test_an_overflow_of_one_process_is_the_island_s(here: bool, elsewhere: bool) -> None:
    layer = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    scaling = LossScaling()
    for step, overflow in enumerate((here or elsewhere, False)):
        assert scaling.take(scaler)
        layer.zero_grad()
        scale = scaler.get_scale()
        bad = here and step == 0
        scaling.scaled(layer(torch.full((2,), torch.inf if bad else 3.0)).sum()).backward()
        assert (
            scaling.unscale_parts(optimizer, lambda value, step=step: max(value, float(elsewhere and not step)))
            == overflow
        )
        assert scaler.get_scale() == (scale / 2 if overflow else scale * 2)
        assert bad or layer.weight.grad.tolist() == [[3.0, 3.0]]
