"""The whole model's ``state_dict``, from the parts of an island, and back into parts: into as many as there are now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from taut.errors import Misuse
from taut.parallel.island import Island, island


class Held(msgspec.Struct):
    """A tensor that a process holds whole."""

    name: str
    shape: list[int]
    dtype: str


def gather(model: nn.Module, *, group: Island | None = None) -> dict[str, torch.Tensor]:
    """Return the ``state_dict`` of the whole model, on the host, at every process of the island."""
    group = group or island()
    mine = {name: value.detach() for name, value in model.state_dict().items()}
    found = {name: value.full_tensor().cpu() for name, value in mine.items() if isinstance(value, DTensor)}
    plain = {name: value.cpu().contiguous() for name, value in mine.items() if name not in found}
    if group.size == 1:
        return found | plain
    listed = [Held(name, list(value.shape), str(value.dtype).removeprefix("torch.")) for name, value in plain.items()]
    for owner, held in enumerate(_exchange(listed, group)):
        for one in held:
            if one.name not in found:
                value = (
                    plain[one.name] if owner == group.rank else torch.empty(one.shape, dtype=getattr(torch, one.dtype))
                )
                found[one.name] = _broadcast(value, owner, group)
    return dict(sorted(found.items()))


def held_by(model: nn.Module, group: Island) -> dict[str, list[int]]:
    """Return which processes hold each tensor of the model: of those that are cut, this one alone, as far as it knows."""
    listed = [Held(name, [], "") for name, value in model.state_dict().items() if not _cut(value)]
    found: dict[str, list[int]] = {name: [group.rank] for name, value in model.state_dict().items() if _cut(value)}
    for owner, held in enumerate(_exchange(listed, group)):
        for one in held:
            found.setdefault(one.name, []).append(owner)
    return found


def scatter(model: nn.Module, whole: Mapping[str, torch.Tensor]) -> None:
    """Load a whole ``state_dict`` into a model that is cut: each process takes its part."""
    mine: dict[str, Any] = model.state_dict()
    missing = sorted(set(mine) - set(whole))
    if missing:
        raise Misuse(f"a state_dict without {missing[0]!r}", "the whole model's, as gather() returns it")
    for name, target in mine.items():
        value = whole[name]
        if value.shape != target.shape:
            raise Misuse(f"{name} of shape {tuple(value.shape)}", f"{tuple(target.shape)}, as the model has it")
        with torch.no_grad():
            if isinstance(target, DTensor):
                target.copy_(distribute_tensor(value.to(target.device), target.device_mesh, target.placements))
            else:
                target.copy_(value)


def _cut(value: torch.Tensor) -> bool:
    return isinstance(value, DTensor) and any(placement.is_shard() for placement in value.placements)


def _exchange(listed: list[Held], group: Island) -> list[list[Held]]:
    """Return what each process holds; as JSON, so that nothing is unpickled."""
    text = torch.frombuffer(bytearray(msgspec.json.encode(listed)), dtype=torch.uint8)
    lengths = torch.zeros(group.size, dtype=torch.int64)
    lengths[group.rank] = len(text)
    lengths = _all_reduce(lengths, group)
    rooms = [text if owner == group.rank else torch.empty(int(n), dtype=torch.uint8) for owner, n in enumerate(lengths)]
    return [
        msgspec.json.decode(_broadcast(room, owner, group).numpy().tobytes(), type=list[Held])
        for owner, room in enumerate(rooms)
    ]


def _all_reduce(value: torch.Tensor, group: Island) -> torch.Tensor:
    there = value.to(group.device_type)
    dist.all_reduce(there)
    return there.cpu()


def _broadcast(value: torch.Tensor, owner: int, group: Island) -> torch.Tensor:
    there = value.to(group.device_type)
    dist.broadcast(there, owner)
    return there.cpu()
