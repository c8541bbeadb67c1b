"""Scripts as users write them, run alone and by two workers in virtual time: the same words for the same mistake."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path

from taut.errors import Misuse, RunFailed
from taut.simulator.faults import Fault
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script

EVERYWHERE = ("alone", "sync", "async")
TOGETHER = ("sync", "async")
HEAD = """
import copy
import torch
from torch import nn
from torch.nn import functional as F
import taut

x = torch.randn(512, 3, generator=torch.Generator().manual_seed(0))
y = x.argmax(dim=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)

def accuracy(model):
    return float((model(x).argmax(dim=1) == y).float().mean())

def train(worker, epochs=2, step=None, batch_size=16):
    for inputs, targets in worker.batches((x, y), batch_size=batch_size, epochs=epochs):
        loss = F.cross_entropy(model(inputs), targets)
        worker.step(loss) if step is None else step(loss)

def report(**numbers):
    print(" ".join(f"{name}={float(torch.as_tensor(value).detach()):.9g}" for name, value in numbers.items()))
"""


@dataclass(frozen=True)
class Ran:
    """How a script ended. ``error``: of the first worker that failed; ``told``: what each worker's ``report`` printed."""

    error: str = ""
    score: float | None = None
    identical: bool | None = None
    told: tuple[dict[str, float], ...] = ()


def ran(folder: Path, body: str, how: str, workers: int = 2, faults: tuple[Fault, ...] = ()) -> Ran:
    """Run HEAD and ``body``: ``alone``, as a run of one, or by ``workers`` under strategy ``how``, with ``faults``."""
    script = folder / "script.py"
    script.write_text(HEAD + body)
    if how == "alone":
        try:
            names = runpy.run_path(str(script))
        except Misuse as error:
            return Ran(str(error))
        return Ran(score=names["accuracy"](names["model"]))
    output = folder / how.partition(":")[0]
    output.mkdir(exist_ok=True)
    speeds, links = Speeds(step_s=0.01), Links(Link(1e9, 1e-4))
    scenario = Scenario(script=str(script), workers=workers, strategy=how, speeds=speeds, links=links, faults=faults)
    try:
        found = simulate_script(scenario, output=output, limit_s=600.0)
    except (Misuse, RunFailed) as error:
        return Ran(str(error))
    told = tuple(_numbers(file) for file in sorted(output.iterdir()) if file.is_file())
    score = found.validation.chosen if found.validation is not None else None
    return Ran(found.error or " ".join(found.gone.values()), score, found.identical, told)


def _numbers(file: Path) -> dict[str, float]:
    words = [word.partition("=") for word in file.read_text().split()]
    return {name: float(value) for name, equals, value in words if equals}
