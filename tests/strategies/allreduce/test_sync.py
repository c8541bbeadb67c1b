"""Law 3: sync over p workers is one worker with p times the batch; replicas stay equal to the last bit, whoever dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import SyncState, cut_buckets
from taut.strategies.api import Heard, Membership, Stepped
from taut.strategies.registry import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.vector_views import Gradients

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-3),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class Trainee(Actor):
    """A torch model whose gradients are exchanged; it does what the driver does around a turn."""

    def prepare(self, optimizer: str) -> None:
        self.model = network()
        self.params = FlatParams(self.model)
        self.gradients = Gradients(self.params)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.sizes, self.present, self.x = self.gradients.sizes, self.gradients.present, self.gradients.x

    def learn(self, x: torch.Tensor, y: torch.Tensor) -> int:
        self.optimizer.zero_grad(set_to_none=True)
        if len(x):
            F.cross_entropy(self.model(x), y).backward()
        self.gradients.fetch()
        return len(x)

    def proceeded(self) -> None:
        self.gradients.put_back()
        self.optimizer.step()


def world_of(method: Sync, workers: int, optimizer: str, step: Callable[[Actor], int], seed: int) -> MethodWorld:
    # A world starts its methods at once, so the model has to be there as soon as the actor is.
    def actor(rank: int, vector: np.ndarray, channels: object) -> Trainee:
        made = Trainee(rank, vector, channels)  # type: ignore[arg-type]
        made.prepare(optimizer)
        return made

    return MethodWorld(method, [np.zeros(1, np.float32)] * workers, step=step, seed=seed, actor=actor)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("schedule", ["ring", "tree", "halving-doubling", "torus"])
def test_sync_is_one_worker_with_all_the_batches(optimizer: str, schedule: str) -> None:
    generator, steps = torch.Generator().manual_seed(1), 6
    sizes = [[4, 4, 4], [1, 7, 3], [5, 0, 2], [8, 1, 1], [2, 2, 9], [3, 3, 3]]  # of each worker's batch
    data = [
        [(torch.randn(n, 6, generator=generator), torch.randint(3, (n,), generator=generator)) for n in row]
        for row in sizes
    ]
    world = world_of(
        Sync(schedule=schedule, bucket_mib=1e-4),
        3,
        optimizer,
        lambda actor: actor.learn(*data[actor.steps][actor.rank]),  # type: ignore[attr-defined]
        seed=3,
    )
    world.run(steps)
    alone = network()
    whole = OPTIMIZERS[optimizer](alone.parameters())
    for row in data:
        whole.zero_grad(set_to_none=True)
        F.cross_entropy(alone(torch.cat([x for x, _ in row])), torch.cat([y for _, y in row])).backward()
        whole.step()
    expected = torch.cat([p.detach().reshape(-1) for p in alone.parameters()]).numpy()
    for actor in world.actors.values():
        np.testing.assert_allclose(actor.params.vector, expected, rtol=1e-4, atol=1e-6)  # type: ignore[attr-defined]
    assert len({actor.params.vector.tobytes() for actor in world.actors.values()}) == 1  # type: ignore[attr-defined]
    world.finish()


@dataclass
class Walker(Actor):
    """Weights with momentum that follow the mean gradient. ``history``: the rounds that moved them."""

    weights: np.ndarray = field(default_factory=lambda: np.zeros(12, np.float32))
    velocity: np.ndarray = field(default_factory=lambda: np.zeros(12, np.float32))
    sizes: tuple[int, ...] = (5, 3, 4)

    def proceeded(self) -> None:
        state: SyncState = self.method_state
        if state.rate is None:
            return  # nobody had data
        assert state.rate == pytest.approx(0.1, rel=1e-6)
        self.velocity = np.float32(0.9) * self.velocity + self.x
        self.weights = self.weights - np.float32(state.rate) * self.velocity


def walk(actor: Actor) -> int:
    generator = np.random.default_rng([actor.rank, actor.steps])
    actor.x[:] = generator.normal(size=12)
    return int(generator.integers(1, 5))


def walkers(method: Sync, workers: int, seed: int, **more: object) -> MethodWorld:
    vectors = [np.zeros(12, np.float32)] * workers
    return MethodWorld(method, vectors, step=walk, seed=seed, actor=Walker, **more)  # type: ignore[arg-type]


def live(world: MethodWorld, events: int, kills: float, slow: int = -1) -> None:
    """Steps and deliveries in any order; now and then somebody dies, and now and then one has no data left."""
    for _ in range(events):
        if len(world.actors) > 1 and world.random.random() < kills:
            world.kill(world.random.choice(sorted(world.actors)))
        if world.random.random() < kills:
            world.actors[world.random.choice(sorted(world.actors))].ended = True
        able = [rank for rank in sorted(world.actors) if rank != slow or world.random.random() < 0.02]
        if not world._happen(able) and not world._happen(sorted(world.actors)):
            raise AssertionError("nothing can happen: everybody waits")


def check_equal(world: MethodWorld) -> None:
    assert len({actor.weights.tobytes() for actor in world.actors.values()}) == 1  # type: ignore[attr-defined]


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 5),
    method=st.sampled_from(["sync", "sync:bucket_mib=0", "sync:tree,bucket_mib=1e-5", "sync:torus"]),
    lossy=st.booleans(),
    kills=st.sampled_from([0.0, 0.005, 0.02]),
)
@settings(max_examples=some(80), deadline=None)
def test_replicas_stay_equal_whoever_dies(seed: int, workers: int, method: str, lossy: bool, kills: float) -> None:
    chosen = parse(method).method()
    assert isinstance(chosen, Sync)
    world = walkers(chosen, workers, seed, lossy=lossy)
    live(world, 300, kills)
    world.finish()
    check_equal(world)
    if not kills:  # else all may have run out of data at once
        assert all(actor.weights.any() for actor in world.actors.values())  # type: ignore[attr-defined]


@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(2, 5),
    backup=st.integers(1, 3),
    lossy=st.booleans(),
    kills=st.sampled_from([0.0, 0.005, 0.02]),
    slow=st.integers(-1, 2),
)
@settings(max_examples=some(120), deadline=None)
def test_with_backup_workers_replicas_stay_equal_whoever_dies(
    seed: int, workers: int, backup: int, lossy: bool, kills: float, slow: int
) -> None:
    world = walkers(Sync(backup=backup), workers, seed, lossy=lossy)
    live(world, 400, kills, slow)
    world.finish()
    check_equal(world)


@pytest.mark.parametrize("straggler", [0, 2])  # the coordinator itself, or another
def test_a_straggler_does_not_hold_up_those_with_a_backup(straggler: int) -> None:
    """The slow one's gradients come too late, are dropped and counted; it ends with the same weights."""
    method = Sync(backup=1)
    world = walkers(method, 3, 5)
    for event in range(1500):
        world._happen([rank for rank in range(3) if rank != straggler])
        late = world.actors[straggler]
        if event % 50 == 0 and late.proceed:  # it has computed since the last time
            late.steps += 1
            late.proceed = False
            world.tell(straggler, Stepped(walk(late), 0.1))
            while late.proceed and method.owed(late.method_state):
                world.take_step(straggler)  # what it missed
    steps = {rank: actor.steps for rank, actor in world.actors.items()}
    world.finish()
    check_equal(world)
    figures = {rank: method.figures(actor.method_state) for rank, actor in world.actors.items()}
    fast = [rank for rank in range(3) if rank != straggler]
    assert min(steps[rank] for rank in fast) > 3 * steps[straggler]
    assert figures[straggler]["dropped"] > 0.5 * steps[straggler]
    assert len({figure["rounds"] for figure in figures.values()}) == 1, "everybody took every round"


def test_who_has_no_data_is_not_counted_as_one_of_the_first() -> None:
    """Three of four have ended: the last one's gradients must all be used."""
    method = Sync(backup=1)
    world = walkers(method, 4, 1)
    for rank in (0, 1, 2):
        world.actors[rank].ended = True
    live(world, 600, 0.0)
    world.finish()
    check_equal(world)
    assert world.actors[3].steps > 5
    assert method.figures(world.actors[3].method_state)["dropped"] == 0


def test_a_parameter_that_only_one_worker_used_moves_everywhere() -> None:
    """Also if its gradient is zero: momentum and weight decay move it all the same, as they would in one large batch."""
    model = network()
    gradients = Gradients(FlatParams(model))
    next(model.parameters()).grad = torch.zeros(8, 6)
    gradients.fetch()
    assert gradients.present.tolist() == [1, 0, 0, 0]
    gradients.present[:] = [0, 2, 0, 0]
    gradients.put_back()
    assert [p.grad is not None for p in model.parameters()] == [False, True, False, False]


@given(sizes=st.lists(st.integers(1, 2 << 18), min_size=1, max_size=20), mib=st.sampled_from([0.0, 0.5, 4.0]))
def test_buckets_cover_everything_from_the_end(sizes: list[int], mib: float) -> None:
    found = cut_buckets(sizes, mib)
    assert found[0][1] == len(sizes) and found[-1][0] == 0
    assert all(later[1] == earlier[0] for earlier, later in pairwise(found))
    assert all(sum(sizes[first:last]) * 4 >= mib * (1 << 20) for first, last in found[:-1])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("sync:schedule=rings", "did you mean 'ring'"),
        ("sync:gather", "one of ring"),
        ("sync:every=0", "at least 1"),
        ("sync:backup=-1", "at least 0"),
        ("sync:bucket_mib=-1", "0 (one bucket) or more"),
        ("sync:schedule=gloo,backup=1", "leave schedule out"),
    ],
)
def test_misuse(spec: str, says: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse(spec)
    assert says in str(caught.value)


def test_what_is_not_its_own_is_refused() -> None:
    membership = Membership(0, (0, 1), parse_topology("complete"), 1)
    for method in (Sync(), Sync(backup=1)):
        state = method.start(membership, walkers(method, 1, 0).actors[0])
        with pytest.raises(MalformedMessage):
            method.on(state, Heard(1, Note("weights"), b""), 0.0)
    for note, payload in [
        (Note("gradient", 1, 0, [1, 0]), b"12345"),
        (Note("gradient", 1, 0, [1, 0]), bytes(8)),
        (Note("mean", 5, 0, [1, 0, 0]), bytes(80)),
        (Note("mean", 1, 0, [1, 0, 0]), bytes(8)),
        (Note("have", 1, 0, []), b""),
    ]:
        state = method.start(membership, walkers(method, 1, 0).actors[0])
        method.on(state, Heard(1, Note("last", 0, 0, [1, 1])), 0.0)
        with pytest.raises(MalformedMessage):
            method.on(state, Heard(1, note, payload), 0.0)
