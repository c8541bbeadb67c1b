"""A model of which a part is missing is never taken for a whole one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from taut.cli.islands import join_models
from taut.errors import RunFailed


def ended(folder: Path, name: str, tensors: dict[str, torch.Tensor]) -> Any:
    save_file(tensors, folder / name)
    return SimpleNamespace(model=folder / name)


def test_parts_become_one_model(tmp_path: Path) -> None:
    first = ended(tmp_path, "model.safetensors", {"w@0": torch.zeros(2, 3), "b": torch.ones(1)})
    join_models(tmp_path, first, [ended(tmp_path, "other.safetensors", {"w@0": torch.ones(1, 3)})])
    assert {name: tuple(each.shape) for name, each in load_file(first.model).items()} == {"w": (3, 3), "b": (1,)}


@pytest.mark.parametrize("missing", [None, SimpleNamespace(model=None)])
def test_a_missing_part_is_a_failure(missing: Any, tmp_path: Path) -> None:
    first = ended(tmp_path, "model.safetensors", {"w@0": torch.zeros(2, 3)})
    with pytest.raises(RunFailed, match="part 1 of the model was not saved"):
        join_models(tmp_path, first, [missing])
    assert list(load_file(first.model)) == ["w@0"]
