"""Models and optimizers of docs/scripts.md: right alone and together, or refused, and in the same words."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripts import EVERYWHERE, TOGETHER, ran

from taut.simulator.faults import Fail, Join

RIGHT = {
    "plain": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker)
""",
    "one cycle of rate and momentum": """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=256)
def step(loss):
    worker.step(loss)
    schedule.step()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, step)
""",
    "cyclic betas": """
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.03, total_steps=256)
def step(loss):
    worker.step(loss)
    schedule.step()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 6, step)
""",
    "a first group without rate": """
optimizer = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}], lr=0.3)
before = model[0].weight.clone()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 8)
    report(moved=(model[0].weight - before).abs().max())
""",
    "two optimizers in one step": """
optimizers = [torch.optim.SGD(model[0].parameters(), lr=0.3), torch.optim.Adam(model[2].parameters(), lr=0.03)]
with taut.join(model, optimizers, validate=accuracy) as worker:
    train(worker)
""",
    "two optimizers in turn": """
one, other = torch.optim.SGD(model[0].parameters(), lr=0.3), torch.optim.Adam(model[2].parameters(), lr=0.03)
with taut.join(model, [one, other], validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=4):
        for optimizer in (one, other):
            model.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
        worker.exchange(loss)
""",
    "two optimizers, one of them in every third step": """
one, other = torch.optim.SGD(model[0].parameters(), lr=0.3), torch.optim.Adam(model[2].parameters(), lr=0.03)
with taut.join(model, [one, other], validate=accuracy) as worker:
    for number, (inputs, targets) in enumerate(worker.batches((x, y), batch_size=16, epochs=4)):
        model.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        (other if number % 3 else one).step()
        worker.exchange(loss)
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
    "its own step and no exchange": """
def step(loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker, 2, step)
report(steps=worker.steps)
""",
    "layers that are frozen after join, and unfrozen later": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    model[0].requires_grad_(False)
    train(worker, 1)
    model[0].requires_grad_(True)
    train(worker, 2)
""",
    "weights clamped in a hook": """
with taut.join(model, optimizer, validate=accuracy) as worker:
    def clamp(*_):
        for parameter in model.parameters():
            parameter.data.clamp_(-1.0, 1.0)
    optimizer.register_step_post_hook(clamp)
    train(worker)
""",
    "an optimizer in a wrapper": """
class Wrapper(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer = optimizer
    @property
    def param_groups(self):
        return self.optimizer.param_groups
    def zero_grad(self):
        self.optimizer.zero_grad()
    def step(self):
        self.optimizer.step()
wrapped = Wrapper(optimizer)
def step(loss):
    wrapped.zero_grad()
    loss.backward()
    wrapped.step()
    worker.exchange(loss)
with taut.join(model, wrapped, validate=accuracy) as worker:
    train(worker, 2, step)
""",
    "accelerate's optimizer": """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model, prepared = accelerator.prepare(model, optimizer)
def step(loss):
    prepared.zero_grad()
    accelerator.backward(loss)
    prepared.step()
    worker.exchange(loss)
with taut.join(model, prepared, validate=accuracy) as worker:
    train(worker, 2, step)
""",
    "sparse gradients": """
table = nn.Embedding(512, 3, sparse=True)
both = nn.ModuleList([model, table])
x = torch.cat([x, torch.arange(512.0).unsqueeze(1)], 1)
def predict(x):
    return model(x[:, :3]) + table(x[:, 3].long())
def accuracy(_):
    return float((predict(x).argmax(dim=1) == y).float().mean())
with taut.join(both, [optimizer, torch.optim.SparseAdam(table.parameters(), lr=0.01)], validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=6):
        worker.step(F.cross_entropy(predict(inputs), targets))
""",
    "sparse gradients and SGD": """
table = nn.Embedding(512, 3, sparse=True)
both = nn.ModuleList([model, table])
x = torch.cat([x, torch.arange(512.0).unsqueeze(1)], 1)
def predict(x):
    return model(x[:, :3]) + table(x[:, 3].long())
def accuracy(_):
    return float((predict(x).argmax(dim=1) == y).float().mean())
with taut.join(both, torch.optim.SGD(both.parameters(), lr=0.3), validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=16, epochs=8):
        worker.step(F.cross_entropy(predict(inputs), targets))
""",
    "tied, frozen, unused, whole-number and complex parameters": """
class Whole(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers, self.tied, self.unused = layers, layers[2].weight, nn.Parameter(torch.zeros(2))
        frozen = [torch.zeros(2), torch.arange(3), torch.zeros(2, dtype=torch.complex64)]
        self.others = nn.ParameterList(nn.Parameter(each, requires_grad=False) for each in frozen)
    def forward(self, x):
        return self.layers(x)
model = Whole(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker)
    report(moved=model.unused.abs().max(), kept=model.tied is model.layers[2].weight)
""",
    "weights in a transposed layout": """
model[0].weight.data = model[0].weight.data.t().contiguous().t()
with taut.join(model, optimizer, validate=accuracy) as worker:
    train(worker)
    report(kept=model[0].weight.stride() == (1, 16))
""",
}
REFUSED = {
    "an optimizer of another model": (
        "taut.join(copy.deepcopy(model), optimizer)",
        "that the model does not have",
        EVERYWHERE,
    ),
    "a parameter in two optimizers": (
        "taut.join(model, [optimizer, torch.optim.SGD(model[0].parameters(), lr=0.1)])",
        "'0.weight' in two optimizers",
        EVERYWHERE,
    ),
    "a lazy module": (
        """
model = nn.Sequential(nn.LazyLinear(16), nn.Linear(16, 3))
taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
""",
        "run one batch through the model first",
        EVERYWHERE,
    ),
    "float64": (
        "model.double(); taut.join(model, optimizer)",
        "type torch.float64: expected float32, bfloat16 or float16",
        EVERYWHERE,
    ),
    "complex": (
        """
model[0] = nn.Linear(3, 16, dtype=torch.complex64)
taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
""",
        "type torch.complex64: expected float32",
        EVERYWHERE,
    ),
    "parameters on two devices": (
        """
model[2] = nn.Linear(16, 3, device="meta")
taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))
""",
        "parameters on cpu and meta ('2.weight'): expected one device per worker; start one worker per device",
        EVERYWHERE,
    ),
    "a layer that loses rows after join": (
        """
with taut.join(model, optimizer) as worker:
    train(worker, 1)
    model[2].weight.data, model[2].bias.data = model[2].weight.data[:2], model[2].bias.data[:2]
    y = y % 2
    train(worker, 1)
""",
        "of shape (2, 16), which was (3, 16) at join",
        EVERYWHERE,
    ),
    "a layer that is replaced after join": (
        """
with taut.join(model, optimizer) as worker:
    train(worker, 1)
    model[2] = nn.Linear(16, 4)
    train(worker, 4)
""",
        "has lost a parameter of shape (3, 16) since join",
        EVERYWHERE,
    ),
    "a buffer that no model file holds": (
        """
model.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
taut.join(model, optimizer)
""",
        "'phase' of type torch.complex128",
        EVERYWHERE,
    ),
    "a model that is converted after join": (
        """
with taut.join(model, optimizer) as worker:
    model.double()
    x = x.double()
    train(worker)
""",
        "moved or converted after join",
        EVERYWHERE,
    ),
    "weights that are assigned after join": (
        """
with taut.join(model, optimizer) as worker:
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)
    train(worker)
""",
        "before taut.join",
        EVERYWHERE,
    ),
    "layers that are unfrozen after join": (
        """
model[0].requires_grad_(False)
with taut.join(model, optimizer) as worker:
    train(worker, 1)
    model[0].requires_grad_(True)
    train(worker, 1)
""",
        "'0.weight', unfrozen after join",
        EVERYWHERE,
    ),
    "a group that is added after join": (
        """
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.3)
with taut.join(model, optimizer) as worker:
    train(worker, 1)
    optimizer.add_param_group({"params": model[0].parameters()})
    train(worker, 1)
""",
        "all its groups before taut.join",
        EVERYWHERE,
    ),
    "a second optimizer that was not joined": (
        """
one, other = torch.optim.SGD(model[0].parameters(), lr=0.3), torch.optim.SGD(model[2].parameters(), lr=0.3)
def step(loss):
    model.zero_grad()
    loss.backward()
    one.step()
    other.step()
    worker.exchange(loss)
with taut.join(model, one) as worker:
    train(worker, 1, step)
""",
        "join them all: taut.join(model, [optimizer, other_optimizer])",
        EVERYWHERE,
    ),
    "weights that are moved by hand": (
        """
def step(loss):
    model.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        parameter.data -= 0.1 * parameter.grad
    worker.exchange(loss)
with taut.join(model, optimizer) as worker:
    train(worker, 1, step)
""",
        "outside of the joined optimizer's step",
        ("sync",),
    ),
    "weights that are clamped by hand": (
        """
def step(loss):
    worker.step(loss)
    for parameter in model.parameters():
        parameter.data.clamp_(-0.1, 0.1)
with taut.join(model, optimizer) as worker:
    train(worker, 1, step)
""",
        "register_step_post_hook",
        ("sync",),
    ),
    "LBFGS": (
        "taut.join(model, torch.optim.LBFGS(model.parameters()))",
        "take SGD or Adam",
        TOGETHER,
    ),
}


@pytest.mark.parametrize("how", EVERYWHERE)
@pytest.mark.parametrize("script", RIGHT)
def test_is_right(script: str, how: str, tmp_path: Path) -> None:
    if "accelerate" in script:
        pytest.importorskip("accelerate")
    found = ran(tmp_path, RIGHT[script], how)
    assert found.error == "" and found.identical in (True, None)
    assert found.score is not None and found.score > 0.9
    assert len(found.told) == 2 or how == "alone"
    for told in found.told:
        assert told.get("moved", 0.0) < 1e-5, "rounding to the grid apart, a layer whose rate is 0 stays"
        assert told.get("steps", 1) > 0 and told.get("kept", 1)


@pytest.mark.parametrize("how", ["sync", "sync:backup=1"])
def test_several_optimizers_survive_a_death_and_are_given_to_a_newcomer(how: str, tmp_path: Path) -> None:
    script = RIGHT["two optimizers, one of them in every third step"].replace("epochs=4", "epochs=12")
    found = ran(tmp_path, script, how, workers=3, faults=(Fail(1, 0.3), Join(1, 0.6)))
    assert found.identical and "silent" in found.error and len(found.told) == 4
    assert found.score is not None and found.score > 0.9


def test_steps_of_two_optimizers_before_one_exchange_are_one_step(tmp_path: Path) -> None:
    script = """
optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in (model[0], model[2])]
def step(loss):
    model.zero_grad()
    loss.backward()
    for each in optimizers:
        each.step()
    worker.exchange(loss)
with taut.join(model, optimizers) as worker:
    train(worker, 1, step)
report(steps=worker.steps)
"""
    assert sum(told["steps"] for told in ran(tmp_path, script, "async").told) == 512 / 16


@pytest.mark.parametrize(("script", "how"), [(name, how) for name, case in REFUSED.items() for how in case[2]])
def test_is_refused(script: str, how: str, tmp_path: Path) -> None:
    body, words, _ = REFUSED[script]
    assert words in ran(tmp_path, body, how).error
