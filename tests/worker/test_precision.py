"""Scripts in half precision, alone and with several workers: docs/precision.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import EVERYWHERE, TOGETHER, ran

from taut.simulator.faults import Fail, Join

HALF = """
class Half(nn.Module):
    def __init__(self, dtype, layers):
        super().__init__()
        self.layers = layers.to(dtype)
    def forward(self, x):
        return self.layers(x.to(self.layers[0].weight.dtype)).float()
model = Half(torch.{dtype}, model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
"""
RIGHT = {
    "plain": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker)
""",
    "stochastic rounding": """
with taut.join(model, optimizer, validate=accuracy, rounding="stochastic") as worker:
    train(worker)
""",
    "a scheduler, and clipping": """
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=256)
def step(loss):
    worker.step(loss, clip_norm=1.0)
    schedule.step()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 4, step)
""",
    "a scaler": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, lambda loss: worker.step(loss, clip_norm=5.0, scaler=scaler))
""",
    "a loop of its own with a scaler, of two batches a step": """
def step(loss):
    scaler.scale(loss / 2).backward()
    if worker.samples // 16 % 2:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        worker.exchange(loss)
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 4, step)
""",
    "a closure": """
def step(loss):
    def closure():
        optimizer.zero_grad()
        loss.backward()
        return loss
    optimizer.step(closure)
    worker.exchange(loss)
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, step)
""",
    "two optimizers": """
first, _, last = model.layers
optimizer, other = torch.optim.SGD(first.parameters(), lr=0.3), torch.optim.Adam(last.parameters(), lr=0.03)
with taut.join(model, [optimizer, other], validate=accuracy) as worker:
    train(worker, 2, lambda loss: worker.step(loss, scaler=scaler))
""",
    "frozen and unused parameters, tied weights": """
model.frozen = nn.Linear(2, 2).bfloat16().requires_grad_(False)
model.unused = nn.Linear(2, 2).bfloat16()
model.tied = model.layers[2].weight
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
kept = [p.detach().clone() for p in (model.frozen.weight, model.unused.weight)]
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker)
    report(moved=sum((a != b).sum() for a, b in zip(kept, (model.frozen.weight, model.unused.weight))))
""",
}


CASES = [
    pytest.param(script, dtype, marks=[pytest.mark.long] if (at + number) % 2 else [])
    for at, script in enumerate(RIGHT)
    for number, dtype in enumerate(("bfloat16", "float16"))
]


@pytest.mark.parametrize(("script", "dtype"), CASES)
@pytest.mark.parametrize("how", EVERYWHERE)
def test_is_right(script: str, dtype: str, how: str, tmp_path: Path) -> None:
    found = ran(tmp_path, HALF.replace("{dtype}", dtype) + RIGHT[script], how)
    assert found.error == "" and found.identical in (True, None)
    assert found.score is not None and found.score > 0.9
    assert all(told.get("moved", 0) == 0 for told in found.told)


@pytest.mark.parametrize("how", ["sync", "sync:every=2", "async", "averaging:every=3"])
def test_a_death_and_a_newcomer(how: str, tmp_path: Path) -> None:
    script = """
with taut.join(model, optimizer, validate=accuracy, rounding="stochastic") as worker:
    train(worker, 8, lambda loss: worker.step(loss, scaler=scaler))
    report(bits=model.layers[0].weight.view(torch.int16).int().sum())
"""
    found = ran(
        tmp_path, HALF.replace("{dtype}", "float16") + script, how, workers=3, faults=(Fail(1, 0.3), Join(1, 0.6))
    )
    assert found.identical and "silent" in found.error and len(found.told) == 4
    assert found.score is not None and found.score > 0.9


def test_the_bits_repeat(tmp_path: Path) -> None:
    """Law: the same seed gives the same rounded weights; under ``sync`` all workers have the same ones."""
    script = """
with taut.join(model, optimizer, rounding="stochastic") as worker:
    for number, (inputs, targets) in enumerate(worker.batches((x, y), batch_size=16, epochs=1)):
        worker.step(F.cross_entropy(model(inputs), targets))
        if number == 9:
            report(bits=sum(p.view(torch.int16).double().sum() for p in model.parameters()))
"""
    found = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(ran(folder, HALF.replace("{dtype}", "bfloat16") + script, "sync"))
    assert found[0].told == found[1].told and found[0].told[0] == found[0].told[1]


OVERFLOW = """
steps = []
def step(loss):
    bad = worker.rank == 1 and len(steps) in (3, 4)
    before = [p.detach().clone() for p in model.parameters()]
    worker.step(loss * (1e38 if bad else 1.0), scaler=scaler)
    moved = any((a != b).any() for a, b in zip(before, model.parameters()))
    steps.append((bad, moved))
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, step)
finite = all(p.isfinite().all() for p in model.parameters())
report(scale=scaler.get_scale(), moved=sum(moved for bad, moved in steps if bad), finite=finite)
"""


@pytest.mark.parametrize("how", ["sync", "sync:every=2", "sync:backup=1", "async", "averaging:every=4"])
def test_an_overflow_of_one_worker_is_not_sent(how: str, tmp_path: Path) -> None:
    """Under ``sync`` the worker takes the step of the others' mean; else it makes none. No other worker notices."""
    found = ran(tmp_path, HALF.replace("{dtype}", "float16") + OVERFLOW, how, workers=3)
    assert found.error == "" and found.identical and found.score is not None and found.score > 0.9
    scales = [told["scale"] for told in found.told]
    assert scales[0] == scales[2] == 1024.0 and scales[1] < 1024.0
    assert all(told["finite"] for told in found.told)
    assert found.told[1]["moved"] == 2 or how != "sync"


def test_an_overflow_of_all_workers_is_no_step(tmp_path: Path) -> None:
    script = OVERFLOW.replace("worker.rank == 1", "True")
    found = ran(tmp_path, HALF.replace("{dtype}", "float16") + script, "sync")
    assert found.error == "" and found.identical
    assert [(told["moved"], told["scale"]) for told in found.told] == [(0.0, 256.0)] * 2


@pytest.mark.parametrize("how", EVERYWHERE)
def test_a_loss_that_is_not_finite_is_an_overflow_until_the_scale_is_1(how: str, tmp_path: Path) -> None:
    once = """
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, lambda loss: worker.step(loss * (float("inf") if worker.steps == 3 else 1.0), scaler=scaler))
"""
    half = HALF.replace("{dtype}", "float16")
    found = ran(tmp_path, half + once, how)
    assert found.error == "" and found.score is not None and found.score > 0.9
    if how != "alone":
        always = once.replace("if worker.steps == 3 ", "if worker.steps >= 3 ")
        assert "loss is inf" in ran(tmp_path, half + always, how).error


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("taut.join(model, optimizer, rounding='down')", "'nearest' or 'stochastic'"),
        (
            "with taut.join(model, optimizer) as worker: worker.step(model(x).sum(), scaler=1.0)",
            "expected a torch.amp.GradScaler",
        ),
    ],
)
def test_is_refused(script: str, words: str, tmp_path: Path) -> None:
    assert words in ran(tmp_path, HALF.replace("{dtype}", "float16") + script, "alone").error


@pytest.mark.parametrize("how", TOGETHER)
def test_weights_that_are_moved_by_hand(how: str, tmp_path: Path) -> None:
    script = """
with taut.join(model, optimizer, validate=accuracy) as worker:
    def step(loss):
        worker.step(loss)
        with torch.no_grad():
            model.layers[0].bias.fill_(0.25)
    train(worker, 3, step)
report(bias=model.layers[0].bias.float().mean())
"""
    found = ran(tmp_path, HALF.replace("{dtype}", "bfloat16") + script, how)
    if how == "sync":
        assert "outside of the joined optimizer's step" in found.error
    else:
        assert found.error == "" and all(abs(told["bias"] - 0.25) < 0.1 for told in found.told)
