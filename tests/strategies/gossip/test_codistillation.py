"""Codistillation: teachers are stale, students agree with them, and the task does not suffer."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.api import Draining, Heard, MembersChanged, Proceed, Stepped, Tell
from taut.strategies.gossip.codistillation import Codistillation, CodistillationState, Teacher
from taut.strategies.registry import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.worker.exchange.distillation import Distillation, disagreement
from taut.worker.model.flat_params import FlatParams


def count(actor: Actor) -> int:
    actor.x += 1.0
    return 1


@given(seed=st.integers(0, 2**31), workers=st.integers(1, 6), every=st.integers(1, 5), lossy=st.booleans())
@settings(max_examples=30, deadline=None)
def test_weights_travel_rarely_and_are_as_they_were(seed: int, workers: int, every: int, lossy: bool) -> None:
    choose = random.Random(seed)
    world = MethodWorld(
        Codistillation(every=every),
        [np.zeros(3, np.float32) for _ in range(workers)],
        topology=choose.choice(["complete", "ring"]),
        seed=seed,
        step=count,
        lossy=lossy,
    )
    world.run(12)
    for rank, actor in world.actors.items():
        neighbours = world.membership(rank).neighbours()
        assert actor.method_state.sent + actor.method_state.withheld == 12 // every * len(neighbours)
        assert sorted(actor.method_state.teachers) == (sorted(neighbours) if every <= 12 else [])
        for teacher in actor.method_state.teachers.values():
            assert teacher.steps % every == 0
            assert teacher.weights.tolist() == [float(teacher.steps)] * 3, "the weights of that step, not of now"
    if workers > 1 and choose.random() < 0.5:
        world.kill(choose.randrange(workers))
        assert all(set(a.method_state.teachers) <= set(world.actors) for a in world.actors.values())
    world.join()
    world.run(2)
    world.finish()


def test_nobody_waits() -> None:
    world = MethodWorld(Codistillation(every=1), [np.zeros(2, np.float32)] * 3, step=count)
    for _ in range(30):
        world.take_step(0)
    assert world.actors[0].steps == 30


def test_a_teacher_of_another_size_is_refused() -> None:
    world = MethodWorld(Codistillation(), [np.zeros(2, np.float32)] * 2)
    with pytest.raises(MalformedMessage):
        world.method.on(world.actors[0].method_state, Heard(1, Note("weights", 1), bytes(4)), 0.0)
    assert not world.actors[0].method_state.teachers


@pytest.mark.parametrize("spec", ["every=0", "weight=0", "weight=-1", "burn_in=-1", "loss=huber"])
def test_misuse_is_told(spec: str) -> None:
    with pytest.raises(Misuse, match=spec.partition("=")[0]):
        parse(f"codistillation:{spec}")


# --------------------------------------------------------------------------------------- the agreement, in torch


class Student:
    """A model with its flat parameters, method and distillation, as a session would hold them, without the network."""

    def __init__(self, seed: int, method: Codistillation, model: nn.Module | None = None) -> None:
        torch.manual_seed(seed)
        self.model = model or nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.params = FlatParams(self.model)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.method = method
        self.membership = MethodWorld(method, [np.zeros(1, np.float32)] * 2).membership
        self.state = method.start(self.membership(seed % 2), SimpleNamespace(x=self.params.vector, coder=None))  # type: ignore[arg-type]
        rounds = SimpleNamespace(method=method, method_state=self.state)
        self.distillation = Distillation(self.model, self.params, rounds)  # type: ignore[arg-type]

    def step(self, x: torch.Tensor, y: torch.Tensor) -> list[Tell]:
        loss = F.cross_entropy(self.model(x), y)
        term = self.distillation.term()
        if term is not None:
            loss = loss + term
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return [action for action in self.method.on(self.state, Stepped(len(x), 0.1), 0.0) if isinstance(action, Tell)]


def toy(samples: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, 8, generator=draw)
    clean = (x @ torch.randn(8, 3, generator=torch.Generator().manual_seed(99))).argmax(1)
    noisy = torch.randint(0, 3, (samples,), generator=draw)
    return x, torch.where(torch.rand(samples, generator=draw) < 0.25, noisy, clean)


def train(weight: float, seed: int) -> tuple[float, float]:
    """Two workers on halves of a noisy problem: how far apart what they say is at the end, and their accuracy."""
    method = Codistillation(every=10, weight=weight, burn_in=20)
    students = [Student(2 * seed + rank, method) for rank in range(2)]
    x, y = toy(120, seed)
    for turn in range(250):
        for rank, student in enumerate(students):
            at = random.Random(turn * 2 + rank).sample(range(60 * rank, 60 * rank + 60), 20)
            for tell in student.step(x[at], y[at]):
                other = students[1 - rank]
                method.on(other.state, Heard(rank, tell.note, bytes(tell.payload)), 0.0)
    test_x, _ = toy(1000, 1000 + seed)
    test_y = (test_x @ torch.randn(8, 3, generator=torch.Generator().manual_seed(99))).argmax(1)
    with torch.no_grad():
        said = [student.model(test_x) for student in students]
    accuracy = sum(float((each.argmax(1) == test_y).float().mean()) for each in said) / 2
    return float(disagreement(said[0], [said[1]])), accuracy


def test_students_agree_and_are_no_worse_than_alone() -> None:
    alone = [train(1e-12, seed) for seed in range(2)]
    together = [train(1.0, seed) for seed in range(2)]
    assert sum(apart for apart, _ in together) < 0.5 * sum(apart for apart, _ in alone)
    assert sum(accuracy for _, accuracy in together) >= sum(accuracy for _, accuracy in alone) - 0.01


def test_the_term_is_the_disagreement_with_the_stale_copy() -> None:
    method = Codistillation(every=1, weight=0.5)
    student, peer = Student(0, method), Student(1, method)
    x, _ = toy(10, 0)
    stale = peer.params.vector.copy()
    student.state.teachers[1] = Teacher(stale, 1, 0)
    with torch.no_grad():
        predicted = peer.model(x)
        peer.params.tensor.mul_(3.0)  # the peer goes on; its stale copy does not
    own = student.model(x)
    term = student.distillation.term()
    assert term is not None
    assert torch.allclose(term, 0.5 * disagreement(own, [predicted]))
    term.backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.any() for p in student.model.parameters())
    assert student.distillation.term() is None, "there was no forward pass since"


def test_burn_in_and_evaluation_ask_for_nothing() -> None:
    method = Codistillation(burn_in=5)
    student = Student(0, method)
    x, y = toy(10, 0)
    student.state.teachers[1] = Teacher(student.params.vector.copy(), 1, 0)
    student.model(x)
    assert student.distillation.term() is None, "still in the burn-in"
    for _ in range(5):
        student.step(x, y)
    student.model.eval()
    student.model(x)
    assert student.distillation.term() is None, "evaluation is no training"
    student.model.train()
    student.model(x)
    assert student.distillation.term() is not None


def test_teachers_leave_the_model_as_it_is() -> None:
    """Batch norm's running statistics, dropout's mode and the weights are those of the student alone."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 3))
    student = Student(0, Codistillation(), model)
    student.state.teachers[1] = Teacher(student.params.vector * 2, 1, 0)
    x, _ = toy(10, 0)
    student.model(x)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    draws = torch.get_rng_state()
    assert student.distillation.term() is not None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), draws), "teachers draw no random numbers: the run stays repeatable"
    assert model[2].training


def test_tied_weights_and_odd_outputs() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Linear(8, 4, bias=False)
            self.decode = nn.Linear(4, 8, bias=False)
            self.decode.weight = nn.Parameter(self.encode.weight.detach().T.clone())
            self.again = self.encode

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, torch.Tensor]:
            return {"made": scale * self.decode(self.again(x)).unsqueeze(1)}

    student = Student(0, Codistillation(weight=1.0), Tied())
    student.state.teachers[1] = Teacher(student.params.vector.copy() * 2, 1, 0)
    x, _ = toy(10, 0)
    own = student.model(x, scale=0.5)["made"]
    term = student.distillation.term()
    assert term is not None
    assert torch.allclose(term, (3 * own).square().mean(), rtol=1e-4)  # 4 times the output, as both layers are doubled


def test_a_broken_teacher_teaches_nothing() -> None:
    student = Student(0, Codistillation())
    student.state.teachers[1] = Teacher(np.full_like(student.params.vector, np.nan), 1, 0)
    student.model(toy(4, 0)[0])
    assert student.distillation.term() is None


def test_the_gone_are_forgotten_and_the_end_is_at_once() -> None:
    method = Codistillation(every=1)
    world = MethodWorld(method, [np.zeros(2, np.float32)] * 2, step=count)
    world.run(2)
    state: CodistillationState = world.actors[0].method_state
    assert set(state.teachers) == {1}
    assert [type(a) for a in method.on(state, Stepped(0), 0.0)] == [Proceed], "idle turns send nothing"
    world.kill(1)
    assert not state.teachers
    method.on(state, MembersChanged(world.membership(0)), 0.0)
    assert method.on(state, Ended(), 0.0) == []
    assert len(method.on(state, Draining(), 0.0)) == 1
