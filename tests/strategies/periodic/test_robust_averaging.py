"""Robust averages: wrong weights, and lies about rounds and results, move nobody's model; all agree to the bit."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.strategies.allreduce.final_model import KIND
from taut.strategies.allreduce.robust_group import RobustGroup
from taut.strategies.allreduce.robust_mean import trimmed_count
from taut.strategies.api import Draining, Heard, HeldUp, Membership, Tell
from taut.strategies.registry import parse
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

KINDS = ("median", "trimmed", "clip")
SHAPE = parse_topology("complete")
SIZE = 3
VALUES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=SIZE, max_size=SIZE)
WILD = st.lists(st.floats(width=32), min_size=SIZE, max_size=SIZE)


def members(kind: str, count: int) -> list[RobustGroup]:
    ranks = tuple(range(count))
    return [RobustGroup(Membership(rank, ranks, SHAPE, 1), SIZE, kind) for rank in ranks]


def deliver(groups: list[RobustGroup], under_way: list[tuple[int, Tell]], seed: int = 0) -> None:
    """In order per pair, else in any."""
    dice = random.Random(seed)
    while under_way:
        pairs = sorted({(sender, tell.to) for sender, tell in under_way})
        pair = dice.choice(pairs)
        membership = next(n for n, (sender, tell) in enumerate(under_way) if (sender, tell.to) == pair)
        sender, tell = under_way.pop(membership)
        more = groups[tell.to].heard(sender, tell.note, bytes(tell.payload))
        under_way += [(tell.to, one) for one in more]


def merged(kind: str, vectors: list[list[float]], seed: int = 0) -> list[np.ndarray]:
    groups = members(kind, len(vectors))
    under_way = []
    for rank, group in enumerate(groups):
        under_way += [(rank, tell) for tell in group.begin(np.float32(vectors[rank]), weight=float(rank), extra=(1.0,))]
    deliver(groups, under_way, seed)
    found = [np.zeros(SIZE, np.float32) for _ in groups]
    for group, out in zip(groups, found, strict=True):
        assert group.done and group.mean(out) == group.contributors == group.extra[0]
    return found


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), honest=st.lists(VALUES, min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=some(40), deadline=None)
def test_liars_move_nobody_and_all_agree(kind: str, data: st.DataObject, honest: list, seed: int) -> None:
    """Weights that are not finite are left out; of the rest, as many may be wrong as the method allows."""
    bounds = [trimmed_count(p) if kind == "trimmed" else (p - 1) // 2 for p in range(12)]
    count = data.draw(st.integers(0, 5).filter(lambda f: f <= bounds[len(honest) + f]), label="liars")
    liars = [data.draw(WILD) for _ in range(count)]
    finite = sum(np.isfinite(np.float32(liar)).all() for liar in liars)
    if kind == "trimmed" and finite > trimmed_count(len(honest) + finite):
        return
    everybody = data.draw(st.permutations(honest + liars))
    found = merged(kind, everybody, seed)
    assert len({x.tobytes() for x in found}) == 1, "the same bits everywhere"
    rows = np.float32(honest)
    if kind != "clip":
        assert (rows.min(axis=0) <= found[0]).all() and (found[0] <= rows.max(axis=0)).all()
        return
    middle = merged("median", everybody)[0].astype(np.float64)
    furthest = max(np.linalg.norm(row - middle) for row in rows)
    assert np.linalg.norm(found[0] - middle) <= furthest * (1 + 1e-5) + 1e-3


@pytest.mark.parametrize("kind", KINDS)
@given(VALUES, st.integers(1, 7))
@settings(max_examples=20, deadline=None)
def test_of_equal_weights_it_is_those_and_of_two_their_mean(kind: str, values: list[float], count: int) -> None:
    assert all(np.array_equal(x, np.float32(values)) for x in merged(kind, [values] * count))
    other = [1.0, -2.0, 1e5]
    assert merged(kind, [values, other])[0] == pytest.approx(np.mean([values, other], axis=0), rel=1e-5, abs=1e-2)


def test_everybody_sends_its_weights_to_everybody() -> None:
    """p / 2 times what a ring sends."""
    sent = {}
    for written in ("averaging:every=2,robust=median", "averaging:every=2"):
        world = MethodWorld(parse(written).method(), [np.zeros(1000, np.float32)] * 5)
        world.run(2)
        sent[written] = world.sent_nbytes
    assert sent["averaging:every=2,robust=median"] == 5 * 4 * 4 * (1000 + 5)
    assert sent["averaging:every=2,robust=median"] / sent["averaging:every=2"] == pytest.approx(5 / 2, rel=0.01)


def test_a_share_that_is_refused_does_not_hold_the_others_up() -> None:
    def step(actor: Actor) -> int:
        actor.x[:] = np.nan if actor.rank == 2 else float(actor.rank)
        return 1

    world = MethodWorld(parse("averaging:every=2,robust=median").method(), [np.zeros(2, np.float32)] * 4, step=step)
    world.run(4)
    assert [world.actors[rank].x.tolist() for rank in (0, 1, 3)] == [[1.0, 1.0]] * 3
    assert {sender for sender, _ in world.refused} == {2} and len(world.refused) == 6  # by three, in two rounds
    world.finish()


@pytest.mark.parametrize("robust", ["none", "median"])
def test_nobody_hands_a_model_to_those_who_took_part(robust: str) -> None:
    world = MethodWorld(parse(f"averaging:every=1,robust={robust}").method(), [np.zeros(2, np.float32)] * 4)
    world.run(1)
    for rank in (1, 2, 3):
        world.tell(rank, Draining())
        world.tell(rank, Heard(0, Note(KIND), np.float32([7, 7]).tobytes()))
    assert not any((world.actors[rank].x == 7).any() for rank in (1, 2, 3))


def test_a_latecomer_believes_more_than_half_of_those_before_it() -> None:
    world = MethodWorld(parse("averaging:every=1,robust=median").method(), [np.zeros(2, np.float32)] * 3)
    world.run(1)
    world.finish()
    late = world.join()
    for pair, queue in world.queues.items():  # what they hand on, we say here
        world.queues[pair] = deque(item for item in queue if item.note.kind != KIND)
    while world.deliver():
        pass
    world.catch_up(late)
    world.tell(late, Draining())
    world.tell(late, Heard(0, Note(KIND), np.float32([7, 7]).tobytes()))
    world.tell(late, Heard(1, Note(KIND), np.float32([3, 3]).tobytes()))
    with pytest.raises(MalformedMessage, match="not finite"):
        world.tell(late, Heard(2, Note(KIND), np.float32([3, np.nan]).tobytes()))
    assert not world.actors[late].finished
    world.tell(late, Heard(2, Note(KIND), np.float32([3, 3]).tobytes()))
    assert world.actors[late].finished and world.actors[late].x.tolist() == [3.0, 3.0]


def test_a_lie_about_where_one_stands_brings_no_result_and_no_harm() -> None:
    """Worker 0 says that it has completed the round; when it is gone, the others complete it."""
    groups = members("median", 4)
    under_way = [(rank, tell) for rank in range(4) for tell in groups[rank]._tell_last_round()]
    deliver(groups, under_way)
    tells = {rank: groups[rank].begin(np.float32([rank] * SIZE)) for rank in (1, 2, 3)}
    assert all(tells.values())  # under way when the members change, and then void
    for rank in (1, 2, 3):
        membership = Membership(rank, (0, 1, 2, 3), SHAPE, 2)
        under_way += [(rank, tell) for tell in groups[rank].members_changed(membership) if tell.to]
        under_way.append((0, Tell(rank, Note("stand", 2, 0, [2, 0.0]))))
    deliver(groups, under_way)
    assert not any(group.done for group in groups)
    assert not groups[1].hears(Note("result", 1, 0, [2]))
    for rank in (1, 2, 3):
        under_way += [(rank, tell) for tell in groups[rank].members_changed(Membership(rank, (1, 2, 3), SHAPE, 3))]
    deliver(groups, under_way)
    out = np.zeros(SIZE, np.float32)
    assert all(groups[rank].done and groups[rank].mean(out) == 3.0 and out[0] == 2.0 for rank in (1, 2, 3))


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
@settings(max_examples=10, deadline=None)
def test_the_outer_step_of_diloco_is_along_honest_changes(seed: int, kind: str) -> None:
    """One of five lies wildly in each round: theta, after outer steps of 1 without momentum, is within honest bounds."""
    rng = np.random.default_rng(seed)

    def step(actor: Actor) -> int:
        actor.x += rng.standard_normal(3).astype(np.float32) * (1e6 if actor.rank == 4 else 1.0)
        return 1

    method = parse(f"diloco:every=2,outer_rate=1,outer_momentum=0,robust={kind}").method()
    world = MethodWorld(method, [np.zeros(3, np.float32)] * 5, step=step, seed=seed)
    for _ in range(3):
        world.run(2)
        thetas = [actor.method_state.theta for actor in world.actors.values()]
        assert all(theta.tobytes() == thetas[0].tobytes() for theta in thetas)
        assert np.abs(thetas[0]).max() < 40.0


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
@settings(max_examples=some(10), deadline=None)
def test_the_mean_of_the_chosen_of_fedavg_is_among_honest_ones(seed: int, kind: str) -> None:
    """One of seven lies wildly whenever it is chosen; all have the same bits in every round, and none is far off."""
    rng = np.random.default_rng(seed)

    def step(actor: Actor) -> int:
        actor.x += rng.standard_normal(3).astype(np.float32) * (1e6 if actor.rank == 6 else 1.0)
        return 1

    method = parse(f"fedavg:steps=2,fraction=0.7,seed={seed % 100},robust={kind}").method()
    world = MethodWorld(method, [np.zeros(3, np.float32)] * 7, step=step, seed=seed)
    world.run(8, freely=True)
    commons = {(actor.method_state.rounds, actor.method_state.common.tobytes()) for actor in world.actors.values()}
    assert len(commons) == len({rounds for rounds, _ in commons}) <= 2
    assert all(np.abs(np.frombuffer(common, np.float32)).max() < 60.0 for _, common in commons)
    world.finish()
    assert len({actor.x.tobytes() for actor in world.actors.values()}) == 1


def test_who_claims_to_have_trained_is_not_chosen_by_that() -> None:
    """Worker 4 trains in every round, whoever is drawn, and what it has counts only when it is."""
    method = parse("fedavg:steps=1,fraction=0.6,robust=median").method()

    def step(actor: Actor) -> int:
        actor.x += np.float32(100.0 if actor.rank == 4 else 1.0)
        return 1

    world = MethodWorld(method, [np.zeros(1, np.float32)] * 5, step=step, seed=2)
    world.run(6, freely=True)
    drawn = [method.draw((0, 1, 2, 3, 4), round) for round in range(6)]  # type: ignore[attr-defined]
    assert all(len(one) == 3 for one in drawn) and sum(4 in one for one in drawn) > 0
    assert all(actor.method_state.common.max() < 50.0 for actor in world.actors.values())
    assert world.actors[0].method_state.group.voted == method.draw(  # type: ignore[attr-defined]
        (0, 1, 2, 3, 4), world.actors[0].method_state.group.completed - 1
    )


def test_what_was_done_without_being_chosen_counts_when_its_turn_comes() -> None:
    """A round is held up, and who was not chosen trains on: it keeps that on top of the mean, and gives it when drawn."""
    method = parse("fedavg:steps=1,fraction=0.6,robust=median").method()
    world = MethodWorld(method, [np.zeros(2, np.float32)] * 5, seed=2)
    world.run(2, freely=True)
    state = world.actors[0].method_state
    for _ in range(3000):
        drawn = method.draw((0, 1, 2, 3, 4), state.group.completed)  # type: ignore[attr-defined]
        if 0 not in drawn and not world.actors[0].proceed and state.begun and not state.group.done:
            break
        world._happen(sorted(world.actors))
    world.tell(0, HeldUp())
    assert world.actors[0].proceed
    world.actors[0].x[1] += np.float32(8.0)
    world.take_step(0)
    held = state.rounds
    while state.rounds < held + 12:
        assert world._happen(sorted(world.actors))
        if 0 in state.group.voted and state.rounds > held + 1:
            break
        if state.rounds > held and not state.begun:
            assert world.actors[0].x[1] - state.common[1] == 8.0
    assert 0 in state.group.voted


def simulated(strategy: str) -> Simulated:
    job = str(Path(__file__).parents[2] / "simulator" / "poisoned_job.py")
    links = Links(Link(1e9, 1e-4))
    return simulate_script(
        Scenario(script=job, args=("--epochs=2",), workers=5, strategy=strategy, speeds=Speeds(step_s=0.01), links=links)
    )


@pytest.mark.parametrize(
    "strategy",
    ["averaging:every=4,robust=median", "diloco:every=4,robust=median", "fedavg:steps=4,fraction=1,robust=median"],
)
def test_a_run_with_a_hostile_worker_learns_all_the_same(strategy: str) -> None:
    """One of five says that its weights are -30 times what they are."""
    robust = simulated(strategy)
    assert robust.error == "" and robust.identical
    assert robust.validation is not None and robust.validation.chosen is not None and robust.validation.chosen > 0.9


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value).*:RuntimeWarning")
def test_without_it_it_does_not() -> None:
    plain = simulated("averaging:every=4")
    assert plain.validation is None or plain.validation.chosen is None or plain.validation.chosen < 0.6


@pytest.mark.parametrize(
    "written",
    [
        "averaging:robust=medain",
        "averaging:robust=median,schedule=tree",
        "diloco:robust=mean",
        "fedavg:robust=mean",
        "fedavg:robust=clip,schedule=tree",
        "diloco:robust=clip,fragments=2",
        "diloco:robust=clip,delayed=true",
    ],
)
def test_what_cannot_be_asked_for_is_refused(written: str) -> None:
    with pytest.raises(Misuse):
        parse(written)


def test_of_two_chosen_none_can_be_outvoted() -> None:
    with pytest.raises(Misuse, match=r"2 in a round.*at least 3"):
        parse("fedavg:robust=median").method().check_shape(SHAPE, 4)
    parse("fedavg:robust=median,fraction=0.75").method().check_shape(SHAPE, 4)
