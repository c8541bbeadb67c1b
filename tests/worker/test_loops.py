"""Loops of every form (docs/loops.md): right alone and under every strategy, or refused with what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import ran

from taut.strategies import REGISTRY

USUAL = ("alone", "sync", "async", "averaging")
SHORT = "sparseloco:every=2"  # a hundredth of a change is sent in a round: a few rounds send hardly anything
OTHERS = sorted({*REGISTRY, "dpsgd:momentum=quasi-global", "sync:every=2", SHORT} - {*USUAL, "sparseloco"})
LOOPS = {
    "an update by hand": """
with taut.join(model, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        model.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.3)
        worker.exchange(loss)
""",
    "an update as a function": """
def descend():
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.3)
with taut.join(model, descend, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        worker.step(F.cross_entropy(model(inputs), targets), clip_norm=5.0)
""",
    "two models and two optimizers": """
head, body = nn.Linear(16, 3), nn.Sequential(nn.Linear(3, 16), nn.Tanh())
def accuracy(both):
    return float((both[0](both[1](x)).argmax(dim=1) == y).float().mean())
optimizers = [torch.optim.SGD(head.parameters(), lr=0.3), torch.optim.Adam(body.parameters(), lr=0.03)]
model = [head, body]
with taut.join(model, optimizers, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        for one in optimizers:
            head.zero_grad()
            body.zero_grad()
            loss = F.cross_entropy(head(body(inputs)), targets)
            loss.backward()
            one.step()
        worker.exchange(loss)
""",
    "a closure": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            return loss
        worker.exchange(optimizer.step(closure))
""",
}


REFUSED = {
    ("an update by hand", "sync"): "sync averages gradients before it; give the update as a function, "
    "taut.join(model, update), and call worker.step(loss)",
    ("an update by hand", "admm"): "since admm changes gradients before it",
    ("an update by hand", "dpsgd:momentum=quasi-global"): "under dpsgd",
    ("an update by hand", "sync:every=2"): "averages gradients",
    ("an update as a function", "dpsgd:momentum=quasi-global"): "an optimizer with a learning rate",
    ("two models and two optimizers", "dpsgd:momentum=quasi-global"): "without momentum of its own",
    ("two models and two optimizers", "admm"): "2 optimizers under admm",
}


def is_long(name: str) -> object:
    return pytest.param(name, marks=pytest.mark.long)


@pytest.mark.parametrize("how", [*USUAL, *map(is_long, OTHERS)])
@pytest.mark.parametrize("loop", LOOPS)
def test_is_right_or_refused_with_what_to_write(loop: str, how: str, tmp_path: Path) -> None:
    found = ran(tmp_path, LOOPS[loop], how)
    if (loop, how) in REFUSED:
        assert REFUSED[loop, how] in found.error
        return
    assert found.error == ""
    assert found.score is not None and found.score > 0.85


BEFORE, AFTER = "compiled = torch.compile(model, backend=BACKEND)", "model.compile(backend=BACKEND)"
COMPILED = """
BACKEND = "{backend}"
{before}
with taut.join({joined}, optimizer, validate=accuracy) as worker:
    {after}
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        worker.step(F.cross_entropy({called}(inputs), targets))
report(named=[name for name, _ in worker.model.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"])
"""


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method")  # inductor's own imports use it
@pytest.mark.parametrize("backend", ["aot_eager", is_long("inductor")])
@pytest.mark.parametrize("how", ["sync", *map(is_long, ("alone", "async"))])
@pytest.mark.parametrize(
    ("before", "joined", "after", "called"),
    [
        (BEFORE, "compiled", "pass", "compiled"),
        (BEFORE + "; compiled(x[:16]).sum().backward(); model.zero_grad()", "compiled", "pass", "compiled"),
        ("pass", "model", BEFORE, "compiled"),
        ("pass", "model", AFTER, "model"),
    ],
    ids=["before", "before, and has run", "after", "after, in place"],
)
def test_a_compiled_model_trains_under_the_names_of_the_plain_one(
    before: str, joined: str, after: str, called: str, how: str, backend: str, tmp_path: Path
) -> None:
    script = COMPILED.format(backend=backend, before=before, joined=joined, after=after, called=called)
    found = ran(tmp_path, script, how)
    assert found.error == "" and all(told["named"] for told in found.told)
    assert found.score is not None and found.score > 0.85
