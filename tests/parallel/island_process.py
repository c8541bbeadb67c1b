"""One process of an island, for ``test_parallel.py``: it cuts models, and compares with the whole ones.

    island_process.py RANK SIZE STORE CHECKPOINT load|save

It prints one line of JSON: how far the parts are from the whole, by name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy

from taut import parallel

FOUND: dict[str, float] = {}


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(7)
    return build()


def branch(channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(channels))


def flat_head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 5)]


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], nn.Module], tuple[int, ...]]] = {
    "columns": (lambda: nn.Linear(6, 8), parallel.columns, (4, 6)),
    "rows": (lambda: nn.Linear(6, 8), parallel.rows, (4, 6)),
    "rows without bias": (lambda: nn.Linear(7, 5, bias=False), parallel.rows, (4, 7)),
    "pair": (
        lambda: nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 5)),
        lambda m: nn.Sequential(parallel.columns(m[0], gather=False), m[1], parallel.rows(m[2], split=True)),
        (4, 6),
    ),
    "filters": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 5, 3, stride=2, bias=False), *flat_head(5)),
        lambda m: nn.Sequential(parallel.filters(m[0]), m[1], parallel.filters(m[2]), *m[3:]),
        (4, 3, 9, 9),
    ),
    "filters, one dimension": (lambda: nn.Conv1d(3, 8, 3), parallel.filters, (4, 3, 9)),
    "filters, no batch": (lambda: nn.Conv2d(3, 8, 3), parallel.filters, (3, 9, 9)),
    "paths": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 1), Both([branch(4), branch(2), branch(3)]), *flat_head(9)),
        lambda m: nn.Sequential(m[0], parallel.paths(m[1].children()), *m[2:]),
        (4, 3, 9, 9),
    ),
    "paths summed": (
        lambda: nn.Sequential(nn.Linear(6, 6), Both([nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(6, 5)], add=True)),
        lambda m: nn.Sequential(m[0], parallel.paths(m[1].children(), combine="sum")),
        (4, 6),
    ),
}


class Both(nn.ModuleList):
    """Paths in one process."""

    def __init__(self, modules: list[nn.Module], add: bool = False) -> None:
        super().__init__(modules)
        self.add = add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs = [path(x) for path in self]
        return torch.stack(outputs).sum(0) if self.add else torch.cat(outputs, 1)


def full(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Return the largest difference of the tensors in ``one`` from those of the same name."""
    assert one
    return max(float((value.double() - other[name].double()).abs().max()) for name, value in one.items())


def train(model: nn.Module, x: torch.Tensor, step: Callable[[nn.Module], torch.Tensor]) -> torch.Tensor:
    """Make three steps, and return the last output or loss."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        result = step(model)
        optimizer.step()
    return result.detach()


def compare(name: str) -> tuple[nn.Module, nn.Module]:
    build, cut, shape = CASES[name]
    whole, parts = seeded(build), cut(seeded(build))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def step(model: nn.Module) -> torch.Tensor:
        given = x.clone().requires_grad_()
        output = model(given)
        (output**2).mean().backward()
        FOUND[f"{name}: input gradient"] = 0.0
        inputs.append(given.grad.clone())
        return output

    inputs: list[torch.Tensor] = []
    one, other = train(whole, x, step), train(parts, x, step)
    FOUND[f"{name}: output"] = float((one - other).abs().max())
    FOUND[f"{name}: input gradient"] = float((inputs[0] - inputs[3]).abs().max())
    gradients = {key: full(p.grad) for key, p in parts.named_parameters()}
    FOUND[f"{name}: gradients"] = distance(gradients, {key: p.grad for key, p in whole.named_parameters()})
    gathered = parallel.gather(parts)
    assert gathered.keys() == whole.state_dict().keys()
    FOUND[f"{name}: gathered"] = distance(gathered, whole.state_dict())
    return whole, parts


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Linear(16, 5))


def compare_pipeline(schedule: str) -> None:
    whole, parts = seeded(layers), parallel.pipeline(seeded(layers), microbatches=4, schedule=schedule)
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(12, 6, generator=generator), torch.randint(5, (12,), generator=generator)

    def step(model: nn.Module) -> torch.Tensor:
        if isinstance(model, parallel.Pipeline):
            return model.loss(x, y, cross_entropy)
        loss = cross_entropy(model(x), y)
        loss.backward()
        return loss

    one, other = train(whole, x, step), train(parts, x, step)
    FOUND[f"pipeline {schedule}: loss"] = float((one - other).abs().max())
    FOUND[f"pipeline {schedule}: gathered"] = distance(parallel.gather(parts), whole.state_dict())
    FOUND[f"pipeline {schedule}: evaluation"] = float((parts(x) - whole(x)).abs().max())
    half = parallel.pipeline(seeded(layers).bfloat16(), microbatches=4, schedule=schedule)
    expected = seeded(layers).bfloat16()(x.bfloat16())
    FOUND[f"pipeline {schedule}: evaluation in bfloat16"] = float((half(x.bfloat16()) - expected).abs().max())
    FOUND[f"pipeline {schedule}: own layers"] = float(len(list(parts.children())) >= len(layers()))


def compare_clipping(name: str, whole: nn.Module, parts: nn.Module, x: torch.Tensor) -> None:
    """Clip the gradients of one batch, whole and in parts."""
    y = torch.randint(5, (len(x),), generator=torch.Generator().manual_seed(1))
    cross_entropy(whole(x), y).backward()
    if isinstance(parts, parallel.Pipeline):
        parts.loss(x, y, cross_entropy)
    else:
        cross_entropy(parts(x), y).backward()
    for limit in (0.05, 1e3):
        norm = float(nn.utils.clip_grad_norm_(whole.parameters(), limit))
        FOUND[f"{name}: norm before clipping to {limit}"] = abs(parallel.clip_grad_norm(parts, limit) - norm)
    gradients = {key: full(each.grad) for key, each in parts.named_parameters()}
    FOUND[f"{name}: clipped"] = distance(gradients, {key: each.grad for key, each in whole.named_parameters()})


def main(rank: int, size: int, store: str, checkpoint: str, what: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    if what == "save":
        models = {name: compare(name)[1] for name in CASES}
        for schedule in ("gpipe", "1f1b"):
            compare_pipeline(schedule)
        for name in ("pair", "filters", "paths"):
            build, cut, shape = CASES[name]
            compare_clipping(name, seeded(build), cut(seeded(build)), torch.ones(shape))
        compare_clipping("pipeline", seeded(layers), parallel.pipeline(seeded(layers)), torch.ones(12, 6))
        saved = {name: parallel.gather(model) for name, model in models.items()}
        if rank == 0:
            torch.save(saved, checkpoint)
    else:
        for name, whole in torch.load(checkpoint).items():
            build, cut, shape = CASES[name]
            one, parts = build(), cut(build())
            one.load_state_dict(whole)
            parallel.scatter(parts, whole)
            x = torch.randn(shape)
            dist.broadcast(x, 0)
            FOUND[f"{name}: loaded"] = float((one(x) - parts(x)).abs().max())
    dist.destroy_process_group()
    print(json.dumps(FOUND), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
