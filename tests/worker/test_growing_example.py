"""The example of growing resolution: the grown model computes what the small one did, and the script runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

import taut

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "growing_resolution.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("growing_resolution", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_grown_model_sees_in_full_size_what_the_small_one_saw_in_means(example: ModuleType) -> None:
    torch.manual_seed(0)
    small, full = example.Net().eval(), example.FullNet().eval()
    names = example.carry(small, full)
    assert {name.partition(".")[0] for name in names} == {"entry", "body"}
    images = torch.rand(3, 1, 32, 32)
    torch.testing.assert_close(full(images), small(torch.nn.functional.avg_pool2d(images, 2)))


def test_the_example_trains_and_grows(example: ModuleType) -> None:
    right, _, worker = example.train(taut.data.Resolutions([(16, 1), (32, 1)]), samples=64)
    assert 0.0 <= right <= 1.0 and worker.steps == 4 and isinstance(worker.model, example.FullNet)
