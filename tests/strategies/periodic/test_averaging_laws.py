"""What each method of the averaging family promises, in numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from averaging_worlds import LeastSquares, Watched, assert_equal_bits, starts, wander
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.api import Heard, HeldUp, Membership, Method
from taut.strategies.periodic import diloco
from taut.strategies.periodic.admm import ADMM
from taut.strategies.periodic.averaging import Averaging
from taut.strategies.periodic.diloco import DiLoCo
from taut.strategies.periodic.dynamic import Dynamic
from taut.strategies.periodic.fedavg import FedAvg
from taut.strategies.registry import parse
from taut.strategies.server.center import Center
from taut.strategies.server.easgd import EASGD
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

SEEDS = st.integers(0, 2**31)


def trained(method: Method, problem: LeastSquares, steps: int, *, rate: float = 0.2, seed: int = 0) -> MethodWorld:
    """Everybody has made so many steps, from zero, and is out of data."""
    workers = len(problem.a)
    world = Watched(method, [np.zeros(problem.size, np.float32)] * workers, seed=seed, step=problem.step(method, rate))
    world.run(steps, ends=True)
    return world


# ------------------------------------------------------------------------------------------------------ averaging


@settings(max_examples=15)
@given(SEEDS, st.integers(1, 5), st.sampled_from(["samples", "equal"]))
def test_averaging_every_step_is_synchronous_training(seed: int, workers: int, weights: str) -> None:
    problem = LeastSquares(workers)
    world = trained(Averaging(every=1, weights=weights), problem, 10, seed=seed)
    x = np.zeros(problem.size)
    for _ in range(10):
        x -= 0.2 * np.mean([problem.gradient(rank, x) for rank in range(workers)], axis=0)
    for mine in world.vectors():
        np.testing.assert_allclose(mine, x, rtol=1e-4, atol=1e-6)


@settings(max_examples=30)
@given(SEEDS, st.integers(2, 5), st.integers(1, 6), st.sampled_from(["none", "median"]))
def test_a_round_that_is_held_up_holds_up_nobody(seed: int, workers: int, more: int, robust: str) -> None:
    """One dies in mid-round: the others train on from what they contributed, and add that to the survivors' mean."""
    rng = np.random.default_rng(seed)
    start = [rng.standard_normal(3).astype(np.float32) for _ in range(workers)]
    moves = rng.standard_normal((workers, 64, 3)).astype(np.float32)

    def step(actor: Actor) -> int:
        actor.x += moves[actor.rank, actor.steps]
        return 1

    world = MethodWorld(Averaging(every=2, robust=robust), start, step=step, seed=seed)
    survivors = range(1, workers)
    for _ in range(2):
        for rank in survivors:
            world.take_step(rank)
    while world.deliver():
        pass
    contributed = [world.actors[rank].x.copy() for rank in survivors]
    assert not any(world.actors[rank].proceed for rank in survivors)  # worker 0 never came
    for rank in survivors:
        world.tell(rank, HeldUp())
    for _ in range(more):
        for rank in survivors:
            assert world.actors[rank].proceed
            world.take_step(rank)
    drifts = [world.actors[rank].x - x for rank, x in zip(survivors, contributed, strict=True)]
    moved = [world.actors[rank].x.copy() for rank in survivors]
    world.kill(0)
    while world.deliver() or any(world.held.get(rank) for rank in survivors):
        for rank in survivors:
            world.catch_up(rank)
    for rank, x in zip(survivors, moved, strict=True):
        np.testing.assert_array_equal(world.actors[rank].x, x)  # it is the worker's own until its next turn
    mean = np.mean(contributed, axis=0) if robust == "none" else np.median(contributed, axis=0)
    for rank, drift in zip(survivors, drifts, strict=True):
        world.take_step(rank)
        at = 2 + more
        np.testing.assert_allclose(world.actors[rank].x, mean + drift + moves[rank, at], rtol=1e-4, atol=1e-5)


def test_only_who_waits_for_a_round_drifts() -> None:
    world = MethodWorld(Averaging(every=2), [np.zeros(1, np.float32)] * 2)
    state = world.actors[0].method_state
    world.tell(0, HeldUp())
    assert not world.method.drifting(state)  # it trains
    world.run(2)
    world.tell(0, HeldUp())
    assert not world.method.drifting(state)  # the round is over


def test_samples_weigh() -> None:
    def step(actor: Actor) -> int:
        actor.x += np.float32(actor.rank)
        return (1, 3)[actor.rank]

    for weights, expected in (("samples", 0.75), ("equal", 0.5)):
        world = MethodWorld(Averaging(every=1, weights=weights), [np.zeros(1, np.float32)] * 2, step=step)
        world.run(1)
        assert [x.item() for x in world.vectors()] == [expected, expected]


def test_who_is_out_of_data_does_not_hold_the_mean_back() -> None:
    def step(actor: Actor) -> int:
        actor.x += 1
        return 4

    world = MethodWorld(Averaging(every=1), [np.zeros(1, np.float32)] * 2, step=step, seed=3)
    world.run(1, ends=True)
    world.actors[0].ended = False
    world.run(5)
    assert world.actors[0].x.item() == 6.0
    world.finish()
    assert_equal_bits(world)


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 7))
def test_traffic_of_averaging_is_that_of_its_rounds(seed: int, every: int) -> None:
    workers, size, rounds = 4, 64, 3
    world = MethodWorld(Averaging(every=every), starts(workers, size), seed=seed, step=wander)
    world.run(every * rounds)
    numbers = 3 + 4  # the group's and ours
    dense = rounds * 2 * (workers - 1) * 4 * (size + numbers)  # 2 (p - 1) / p of the vector, from each of p
    assert world.sent_nbytes == dense


# --------------------------------------------------------------------------------------------------------- fedavg


def test_only_the_chosen_train() -> None:
    method = FedAvg(fraction=0.5, steps=3, seed=4)
    world = MethodWorld(method, starts(4), step=wander, seed=1)
    for _ in range(4000):  # nobody runs out of data
        if not world._happen(sorted(world.actors)):
            raise AssertionError("nothing can happen")
    states = [actor.method_state for actor in world.actors.values()]
    rounds = states[0].rounds
    assert rounds > 20
    for rank, actor in world.actors.items():
        chosen = sum(rank in method.draw((0, 1, 2, 3), number) for number in range(rounds + 1))
        # Its first step is before any choice; the last round is not over.
        assert 3 * (chosen - 1) <= actor.steps <= 3 * chosen + 1
    assert len(method.draw(tuple(range(10)), 5)) == 5


def test_all_chosen_is_averaging() -> None:
    worlds = [MethodWorld(m, starts(3), step=wander, seed=7) for m in (FedAvg(fraction=1.0, steps=4), Averaging(every=4))]
    for world in worlds:
        world.run(12)
    for a, b in zip(worlds[0].vectors(), worlds[1].vectors(), strict=True):
        assert a.tobytes() == b.tobytes()


# ---------------------------------------------------------------------------------------------------------- easgd


@settings(max_examples=15)
@given(SEEDS, st.integers(1, 6), st.integers(1, 3), st.integers(1, 20), st.booleans())
def test_easgd_conserves_the_sum(seed: int, workers: int, every: int, shards: int, lossy: bool) -> None:
    made = np.zeros(7)

    def step(actor: Actor) -> int:
        before = actor.x.copy()
        wander(actor)
        made[:] += actor.x - before
        return 1

    method = EASGD(every=every, shards=shards)
    world = Watched(method, starts(workers, 7), seed=seed, step=step, lossy=lossy)
    total = (workers + 1) * np.arange(7.0)  # everybody's x, and the centre
    for _ in range(4):
        world.run(every)  # they all come to their exchange, and none is under way afterwards
        states = [actor.method_state for actor in world.actors.values()]
        center = np.zeros(7)
        for state in states:
            for shard in state.center.held():
                center[state.center.part(shard)] = state.center.view[state.center.part(shard)]
        np.testing.assert_allclose(center + np.sum(world.vectors(), axis=0), total + made, atol=1e-4)
    world.finish()
    assert_equal_bits(world)
    np.testing.assert_allclose(world.actors[0].x, center, rtol=1e-6)  # the centre is the model


def test_easgd_waits_for_nobody() -> None:
    world = MethodWorld(EASGD(every=1), starts(3), step=wander, seed=0)
    world.run(3)
    before = world.actors[0].steps
    for _ in range(400):  # the others do not take a single step
        if not world._happen([0]):
            raise AssertionError("worker 0 waits")
    assert world.actors[0].steps > before + 20


def test_the_centre_outlives_its_holders() -> None:
    problem = LeastSquares(4)
    world = trained(EASGD(every=2), problem, 150)
    before = problem.error(world.actors[3].method_state.center.view)
    world.kill(0)
    world.kill(1)
    world.finish()
    assert_equal_bits(world)
    assert problem.error(world.actors[3].x) < before + 0.02


def test_eamsgd_shapes_the_gradient_as_nesterov_does() -> None:
    import torch

    method = EASGD(every=1000, momentum=0.9)
    assert method.shapes_gradient
    assert not EASGD().shapes_gradient
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, nesterov=True)

    def step(actor: Actor) -> int:
        gradient = 2 * actor.x
        method.shape_gradient(actor.method_state, gradient, 0.1)
        actor.x -= np.float32(0.1) * gradient
        return 1

    world = MethodWorld(method, [np.ones(3, np.float32)], step=step)
    for _ in range(8):
        world.run(1)
        parameter.grad = 2 * parameter.detach()
        optimizer.step()
    np.testing.assert_allclose(world.actors[0].x, parameter.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("note", "payload"),
    [
        (Note("ask", 1, numbers=[0.5, 0.0]), b"123"),
        (Note("ask", 1, numbers=[0.5, 99.0]), b"1234"),
        (Note("ask", 1, numbers=[]), b""),
        (Note("ask", 1, numbers=[1.5, 0.0]), b"1234"),
        (Note("ask", 1, numbers=[float("nan"), 0.0]), b"1234"),
        (Note("answer", 1, numbers=[0.5, 0.25]), b"1234"),
        (Note("model"), b"12"),
    ],
)
def test_a_centre_refuses_what_makes_no_sense(note: Note, payload: bytes) -> None:
    world = MethodWorld(EASGD(shards=5), starts(2))
    before = world.actors[0].method_state.center.view.copy()
    with pytest.raises(MalformedMessage):
        world.tell(0, Heard(1, note, payload))
    assert np.array_equal(before, world.actors[0].method_state.center.view)


def test_shards_cover_the_vector() -> None:
    for length in (0, 1, 5, 16, 17, 100):
        for shards in (1, 7, 16):
            vector = np.zeros(length, np.float32)
            center = Center(None, Membership(0, (0,), parse_topology("complete")), None, vector, shards)  # type: ignore[arg-type]
            for shard in range(center.shards):
                assert len(vector[center.part(shard)])
                vector[center.part(shard)] += 1
            assert (vector == 1).all()


# --------------------------------------------------------------------------------------------------------- diloco


@settings(max_examples=10)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4))
def test_diloco_with_a_plain_outer_step_is_averaging(seed: int, workers: int, every: int) -> None:
    methods = (DiLoCo(every=every, outer_rate=1.0, outer_momentum=0.0), Averaging(every=every))
    worlds = [Watched(method, starts(workers), step=wander, seed=seed) for method in methods]
    for world in worlds:
        world.run(3 * every + 1)
    for a, b in zip(worlds[0].vectors(), worlds[1].vectors(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_diloco_is_torchs_nesterov_on_the_mean_change() -> None:
    import torch

    method = DiLoCo(every=2, outer_rate=0.7, outer_momentum=0.9)
    world = MethodWorld(method, starts(3), step=wander, seed=5)
    world.run(2)  # in the first round theta becomes common
    theta = torch.nn.Parameter(torch.tensor(world.actors[0].x))
    outer = torch.optim.SGD([theta], lr=0.7, momentum=0.9, nesterov=True)
    for _ in range(4):
        theta_before = theta.detach().numpy().copy()
        local = {rank: theta_before.copy() for rank in world.actors}
        samples = dict.fromkeys(local, 0)
        for rank, actor in world.actors.items():
            ghost = Actor(rank, local[rank], actor.channels, steps=actor.steps)
            for _ in range(2):
                samples[rank] += wander(ghost)
                ghost.steps += 1
        mean = sum(samples[rank] * local[rank] for rank in local) / sum(samples.values())
        theta.grad = torch.tensor(theta_before - mean)
        outer.step()
        world.run(2)
        for x in world.vectors():
            np.testing.assert_allclose(x, theta.detach().numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", [DiLoCo(every=2), DiLoCo(every=4, fragments=2, overlap=1)])
def test_the_pieces_in_which_diloco_moves_do_not_show(method: DiLoCo, monkeypatch: pytest.MonkeyPatch) -> None:
    worlds = []
    for chunk in (diloco.CHUNK, 1):
        monkeypatch.setattr(diloco, "CHUNK", chunk)
        worlds.append(trained(method, LeastSquares(3), 12))
    assert worlds[0].vectors()[0].size > 2 and np.any(worlds[0].vectors()[0])
    for one, other in zip(*(world.vectors() for world in worlds), strict=True):
        assert one.tobytes() == other.tobytes()


def test_fragments_take_turns_and_an_overlapped_average_comes_late() -> None:
    def step(actor: Actor) -> int:
        actor.x += np.float32(actor.rank)
        return 1

    method = DiLoCo(every=4, outer_rate=1.0, outer_momentum=0.0, fragments=2, overlap=1, mixing=0.0)
    world = MethodWorld(method, [np.zeros(4, np.float32)] * 2, step=step)
    world.run(3)
    assert [x.tolist() for x in world.vectors()] == [[0.0] * 4, [3.0] * 4]  # round 1: who is there, and whose turn is it
    world.run(1)
    assert [x.tolist() for x in world.vectors()] == [[0.0] * 4, [4.0] * 4]  # round 2 is under way
    world.run(1)
    assert [x.tolist() for x in world.vectors()] == [[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 2.0, 2.0]]
    world.run(2)
    assert [x.tolist() for x in world.vectors()] == [[3.0, 3.0, 2.0, 2.0], [3.0, 3.0, 4.0, 4.0]]
    world.finish()
    assert_equal_bits(world)


def test_delayed_nesterov_moves_once_for_all_workers_pushes() -> None:
    """With equal pushes, N of them are one Nesterov step."""
    import torch

    def step(actor: Actor) -> int:
        actor.x -= np.float32(0.25)
        return 1

    world = MethodWorld(DiLoCo(every=1, outer_rate=0.5, outer_momentum=0.8, delayed=True), starts(3), step=step)
    theta = torch.nn.Parameter(torch.arange(5.0))
    outer = torch.optim.SGD([theta], lr=0.5, momentum=0.8, nesterov=True)
    for _ in range(4):
        world.run(1)
        theta.grad = torch.full((5,), 0.25)
        outer.step()
        center = np.zeros(5, np.float32)
        for actor in world.actors.values():
            one = actor.method_state.center
            for shard in one.held():
                center[one.part(shard)] = one.view[one.part(shard)]
        np.testing.assert_allclose(center, theta.detach().numpy(), rtol=1e-5)
    world.finish()
    assert_equal_bits(world)
    np.testing.assert_allclose(world.actors[1].x, center, rtol=1e-6)


# -------------------------------------------------------------------------------------------------------- dynamic


@settings(max_examples=15)
@given(SEEDS, st.integers(1, 6), st.integers(1, 3))
def test_dynamic_without_tolerance_is_averaging(seed: int, workers: int, every: int) -> None:
    def stray(actor: Actor) -> int:  # no step leaves x where it was
        actor.x += np.float32(0.01) * np.float32(1 + (actor.rank + 3 * actor.steps) % 7)
        return 1 + actor.rank

    worlds = [Watched(m, starts(workers), step=stray, seed=seed) for m in (Dynamic(0.0, every), Averaging(every))]
    for world in worlds:
        world.run(3 * every)
    for a, b in zip(worlds[0].vectors(), worlds[1].vectors(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    for actor in worlds[0].actors.values():
        assert worlds[0].method.figures(actor.method_state)["syncs"] == 3


def test_dynamic_with_all_tolerance_says_nothing() -> None:
    world = Watched(Dynamic(math.inf, 1), starts(4), step=wander)
    world.run(30, ends=True)
    assert world.messages == 0
    world.finish()
    assert_equal_bits(world)


def test_strays_that_make_up_for_each_other_are_balanced_among_themselves() -> None:
    def step(actor: Actor) -> int:
        actor.x += np.float32({0: 0.0, 1: 2.0, 2: -2.0}.get(actor.rank, 0.0))
        return 1

    world = Watched(Dynamic(threshold=1.0, every=1), [np.zeros(1, np.float32)] * 8, step=step, seed=2)
    world.run(1, ends=True)
    figures = [world.method.figures(actor.method_state) for actor in world.actors.values()]
    assert all(one["syncs"] == 0 for one in figures)
    assert sum(one["balanced"] for one in figures) >= 1
    assert sum(one["strays"] for one in figures) == 2
    assert abs(world.mean().item()) < 1e-6
    assert all(x.item() ** 2 <= 1.0 for x in world.vectors())


def test_nobody_trains_on_from_further_away_than_allowed() -> None:
    threshold = 0.002
    world = Watched(Dynamic(threshold, 1), starts(5), step=wander, seed=4)
    for _ in range(1500):
        assert world._happen(sorted(world.actors))
        for actor in world.actors.values():
            away = actor.x - actor.method_state.reference
            assert not actor.proceed or float(away @ away) <= threshold * 1.001
    figures = world.method.figures(world.actors[0].method_state)
    assert 0 < figures["syncs"] < figures["checks"] / 2
    assert figures["balanced"] > 0


def test_dynamic_averaging_needs_less_than_averaging() -> None:
    problem = LeastSquares(6)
    dynamic, averaging = (trained(method, problem, 80) for method in (Dynamic(0.05, 2), Averaging(2)))
    assert dynamic.sent_nbytes < averaging.sent_nbytes / 2
    assert problem.error(dynamic.mean()) < 0.1
    messages = [dynamic.method.figures(actor.method_state)["messages"] for actor in dynamic.actors.values()]
    assert sum(messages) == dynamic.messages


@settings(max_examples=15)
@given(SEEDS, st.integers(2, 6), st.integers(1, 3), st.integers(-12, 12))
def test_the_measured_threshold_does_not_depend_on_the_scale_of_the_model(
    seed: int, workers: int, every: int, power: int
) -> None:
    scale = np.float32(2.0**power)  # exact

    def step(actor: Actor) -> int:
        actor.x /= scale
        samples = wander(actor)
        actor.x *= scale
        return samples

    worlds = [
        Watched(Dynamic(every=every), [factor * x for x in starts(workers)], step=one, seed=seed)
        for factor, one in ((np.float32(1), wander), (scale, step))
    ]
    for world in worlds:
        world.run(12 * every, freely=True)
    plain, scaled = ([world.method.figures(a.method_state) for a in world.actors.values()] for world in worlds)
    assert worlds[0].messages == worlds[1].messages
    assert len({one["threshold"] for one in plain}) == 1
    for one, other in zip(plain, scaled, strict=True):
        assert other == {**one, "threshold": one["threshold"] * float(scale) ** 2}


def test_a_newcomer_learns_the_measured_threshold_from_the_others() -> None:
    world = Watched(Dynamic(every=2), starts(4), step=wander)
    world.run(6, freely=True)
    world.join()
    world.run(6, freely=True)
    found = [world.method.figures(actor.method_state)["threshold"] for actor in world.actors.values()]
    assert len(found) == 5
    np.testing.assert_allclose(found, found[0], rtol=1e-6)
    world.finish()
    assert_equal_bits(world)


def test_steps_that_change_nothing_leave_the_threshold_open() -> None:
    world = Watched(Dynamic(every=1), starts(3), step=lambda actor: 1)
    world.run(4)
    assert all("threshold" not in world.method.figures(actor.method_state) for actor in world.actors.values())


# ----------------------------------------------------------------------------------------------------------- admm


@pytest.mark.parametrize("seed", range(3))
def test_admm_finds_the_common_optimum_where_averaging_does_not(seed: int) -> None:
    problem = LeastSquares(3, rows=12, noise=0.3, seed=seed)
    admm = trained(ADMM(rho=0.5, every=10), problem, 600)
    duals = [actor.method_state.u for actor in admm.actors.values()]
    assert max(float(np.abs(dual).max()) for dual in duals) > 1e-3
    np.testing.assert_allclose(np.sum(duals, axis=0), 0.0, atol=1e-3)
    admm.finish()
    assert_equal_bits(admm)
    averaging = trained(Averaging(every=10), problem, 600)
    assert problem.error(admm.actors[0].x) < 1e-3
    assert problem.error(averaging.mean()) > 1e-2


# ------------------------------------------------------------------------------------------------------------ all


@pytest.mark.parametrize(
    "given_method",
    [
        "averaging:every=4",
        "averaging:every=4,weights=equal",
        "fedavg:fraction=0.5,steps=4",
        "easgd:every=2",
        "easgd:every=2,momentum=0.5",
        "diloco:every=4",
        "diloco:every=4,fragments=2",
        "diloco:every=8,fragments=2,overlap=2",
        "diloco:every=4,delayed=true",
        "dynamic:threshold=0.001,every=2",
        "admm:rho=0.5,every=5",
    ],
)
def test_together_they_find_what_nobody_can_find_alone(given_method: str) -> None:
    problem = LeastSquares(4)
    world = trained(parse(given_method).method(), problem, 200)
    world.finish()
    assert_equal_bits(world)
    alone = min(problem.error(np.linalg.lstsq(a, b, rcond=None)[0]) for a, b in zip(problem.a, problem.b, strict=True))
    assert alone > 0.25
    assert problem.error(world.actors[0].x) < 0.03


@pytest.mark.parametrize(
    ("bad", "part"),
    [
        ("averaging:every=0", "every=0"),
        ("averaging:weights=loss", "one of samples, equal"),
        ("averaging:schedule=smoke", "smoke"),
        ("fedavg:fraction=0", "fraction=0"),
        ("fedavg:fraction=1.5", "up to 1"),
        ("fedavg:steps=0", "steps=0"),
        ("fedavg:samples=-1", "samples=-1"),
        ("easgd:every=0", "every=0"),
        ("easgd:alpha=1", "0.9 / workers"),
        ("easgd:alpha=-0.1", "alpha=-0.1"),
        ("easgd:momentum=1", "momentum=1"),
        ("easgd:shards=0", "shards=0"),
        ("diloco:every=0", "every=0"),
        ("diloco:outer_rate=0", "outer_rate=0"),
        ("diloco:outer_momentum=1", "outer_momentum=1"),
        ("diloco:every=4,fragments=8", "fewer fragments"),
        ("diloco:every=4,fragments=2,overlap=3", "larger every"),
        ("diloco:every=4,mixing=1", "mixing=1"),
        ("diloco:delayed=true,fragments=2", "one of the two forms"),
        ("dynamic:threshold=-1", "at least 0"),
        ("dynamic:threshold=nan", "at least 0"),
        ("dynamic:every=0", "every=0"),
        ("admm:rho=0", "above 0"),
        ("admm:rho=-1", "above 0"),
        ("admm:rho=inf", "above 0"),
        ("admm:every=0", "every=0"),
    ],
)
def test_misuse_is_told_before_anything_starts(bad: str, part: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse(bad)
    assert part in str(caught.value)
