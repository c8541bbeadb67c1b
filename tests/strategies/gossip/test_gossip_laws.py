"""Law 5, method by method: what each conserves, how fast it agrees, and what its messages may be."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from gossip_histories import happen, starts, wander
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse, RunFailed
from taut.strategies.api import Heard, MembersChanged, Method, Stepped
from taut.strategies.gossip.adpsgd import ADPSGD
from taut.strategies.gossip.choco import Choco
from taut.strategies.gossip.dpsgd import DPSGD
from taut.strategies.gossip.gossip import Gossip
from taut.strategies.gossip.gossipgrad import GossipGraD, partners, shuffled
from taut.strategies.gossip.relaysgd import RelaySGD
from taut.strategies.gossip.sgp import SGP, SGPState, limit_weights
from taut.testing.worlds.codec_actor import with_codec
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse

UNEVEN = "edges:0>1,1>2,2>3,3>0,0>2,1>0"  # strongly connected; nobody's weights stay 1
CONSERVING: list[tuple[Method, str]] = [
    (DPSGD(), "ring"),
    (DPSGD(), "star"),
    (DPSGD(), "matcha"),
    (DPSGD(mixing="uniform"), "one-peer"),
    (DPSGD(mixing="uniform"), "exponential"),
    (DPSGD(tracking=True), "torus"),
    (GossipGraD(), "complete"),
    (ADPSGD(), "ring"),
    (ADPSGD(every=3, seed=5), "complete"),
]


def total(world: MethodWorld) -> np.ndarray:
    return np.sum(np.stack(world.vectors()).astype(np.float64), axis=0)


def written(method: Method) -> str:
    return str(method)


@pytest.mark.parametrize(("method", "topology"), CONSERVING, ids=written)
@settings(max_examples=some(8), deadline=None)
@given(workers=st.integers(2, 9), seed=st.integers(0, 10**6), lossy=st.booleans())
def test_the_mean_moves_by_the_steps_alone(method: Method, topology: str, workers: int, seed: int, lossy: bool) -> None:
    """Whatever order messages and steps come in, once nothing is under way and everybody is in the same round."""
    world = MethodWorld(method, starts(workers, seed=seed), topology=topology, seed=seed, step=wander, lossy=lossy)
    before = total(world)
    world.run(12)
    world.run(0)  # the answers to what was heard at the end
    made = sum(0.01 * ((rank + 3 * step) % 7 - 3) for rank in range(workers) for step in range(12))
    assert total(world) == pytest.approx(before + made, abs=2e-5)


@pytest.mark.parametrize("topology", ["ring", "torus", "star", "line", "random", "complete"])
@pytest.mark.parametrize("workers", [5, 8])
def test_disagreement_shrinks_at_least_by_the_second_eigenvalue(topology: str, workers: int) -> None:
    workers += workers % 2 if topology == "random" else 0
    second = 1.0 - parse(topology).wire(range(workers)).spectral_gap()
    world = MethodWorld(DPSGD(), starts(workers, seed=3), topology=topology)
    distance = distance_from_mean(world)
    for _ in range(8):
        world.run(1)
        left = distance_from_mean(world)
        assert left <= second * distance * 1.001 + 1e-5
        distance = left


@pytest.mark.parametrize("topology", ["ring", "torus", "star"])
def test_along_the_second_eigenvector_it_is_exactly_the_eigenvalue(topology: str) -> None:
    mixing = parse(topology).wire(range(9)).matrix()
    values, vectors = np.linalg.eigh(mixing)
    membership = int(np.argsort(np.abs(values))[-2])
    world = MethodWorld(DPSGD(), [np.full(1, x, np.float32) for x in vectors[:, membership]], topology=topology)
    world.run(6)
    assert distance_from_mean(world) == pytest.approx(abs(values[membership]) ** 6, rel=1e-3)


def distance_from_mean(world: MethodWorld) -> float:
    stacked = np.stack(world.vectors()).astype(np.float64)
    return float(np.linalg.norm(stacked - stacked.mean(axis=0)))


def test_one_peer_gives_the_exact_mean_after_log_rounds() -> None:
    world = MethodWorld(DPSGD(mixing="uniform"), [np.full(1, 8.0 * r, np.float32) for r in range(8)], topology="one-peer")
    world.run(3)
    assert [float(x[0]) for x in world.vectors()] == [28.0] * 8


@pytest.mark.parametrize("topology", ["matcha", "one-peer"])
def test_rounds_agree_after_deaths_and_joins(topology: str) -> None:
    method = DPSGD(mixing="uniform" if topology == "one-peer" else "metropolis")
    world = MethodWorld(method, starts(6), topology=topology, step=wander)
    for _ in range(40):  # some are a round ahead, some wait
        happen(world, world.random, deaths=False)
    world.kill(2)
    world.join()
    world.step = lambda actor: 1
    before = total(world)
    world.run(7)
    assert {actor.method_state.round for actor in world.actors.values()} == {7}
    assert total(world) == pytest.approx(before, abs=1e-5)


# ------------------------------------------------------------------------------------------------------ push-sum


def pushed(world: MethodWorld) -> tuple[float, np.ndarray]:
    """The totals of w and x, those under way included."""
    states: list[SGPState] = [actor.method_state for actor in world.actors.values()]
    w = sum(state.w + sum(one.note.numbers[0] for one in state.inbox.values()) for state in states)
    x = np.zeros(len(states[0].x))
    for state in states:
        trained = state.local.x.astype(np.float64) - state.x / np.float64(state.w)
        x += state.x + (trained if state.turn is None else 0.0)
        x += sum(np.frombuffer(one.payload, np.float32).astype(np.float64) for one in state.inbox.values())
    return w, x


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("topology", [UNEVEN, "exponential", "one-peer", "star"])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10**6), lossy=st.booleans())
def test_push_sum_conserves_weight_and_sum_under_delay(topology: str, overlap: int, seed: int, lossy: bool) -> None:
    world = MethodWorld(SGP(overlap), starts(4, seed=seed), topology=topology, seed=seed, step=wander, lossy=lossy)
    before = total(world)
    world.run(9)
    made = sum(0.01 * ((rank + 3 * step) % 7 - 3) for rank in range(4) for step in range(9))
    w, x = pushed(world)
    assert w == pytest.approx(4.0, abs=1e-9)
    assert x == pytest.approx(before + made, abs=2e-4)


@pytest.mark.parametrize("overlap", [0, 2])
def test_push_sum_finds_the_mean_where_no_doubly_stochastic_weights_are(overlap: int) -> None:
    vectors = starts(4, seed=2)
    world = MethodWorld(SGP(overlap), vectors, topology=UNEVEN)
    world.run(60)
    weights = [actor.method_state.w for actor in world.actors.values()]
    assert max(weights) - min(weights) > 0.3  # it is the division that does it
    assert world.spread() < 1e-4
    assert world.mean() == pytest.approx(np.mean(vectors, axis=0), abs=1e-5)


def test_at_the_end_all_weight_is_still_there() -> None:
    world = MethodWorld(SGP(overlap=3), starts(4), topology=UNEVEN, step=wander, seed=4)
    world.run(9)
    world.finish()
    assert sum(actor.method_state.w for actor in world.actors.values()) == pytest.approx(4.0, abs=1e-9)


def test_overlap_does_not_wait_for_the_round_under_way() -> None:
    """Nothing is delivered: a synchronous worker makes one step, one with an overlap of 2 makes three."""
    for overlap in (0, 2):
        world = MethodWorld(SGP(overlap), starts(4), topology="exponential")
        for _ in range(6):
            world.take_step(0)
        assert world.actors[0].steps == overlap + 1


def test_weights_that_would_vanish_are_refused_before_the_start() -> None:
    """Each sends to the next and to the first: weights halve along the chain."""
    edges = ",".join(f"{i}>{i + 1},{i}>0" for i in range(1, 29)) + ",0>1,29>0"
    shape = parse(f"edges:{edges}")
    assert sum(limit_weights(shape.wire(range(30))).values()) == pytest.approx(30.0)
    with pytest.raises(Misuse, match=r"worker 29 would tend to .*--topology exponential"):
        SGP().check_shape(shape, 30)
    SGP().check_shape(parse("exponential"), 30)
    SGP().check_shape(parse("star"), 30)


def test_a_weight_that_vanishes_all_the_same_ends_the_run_with_a_reason() -> None:
    world = MethodWorld(SGP(), starts(2), topology="complete")
    world.actors[0].method_state.w = 2.0**-30
    world.take_step(0)
    tiny = Heard(1, Note("x", 0, 1, [2.0**-40]), bytes(16))
    with pytest.raises(RunFailed, match="weight of worker 0 fell to"):
        world.tell(0, tiny)


# ---------------------------------------------------------------------------------------------- the other methods


@pytest.mark.parametrize("topology", ["line", "ring", "tree", "star"])
def test_relays_give_the_uniform_mean_of_the_past(topology: str) -> None:
    """After as many rounds as the diameter: everybody's x, as old as it is far away."""
    workers, rounds = 7, 14
    after_step: dict[int, list[np.ndarray]] = {rank: [] for rank in range(workers)}

    def step(actor: Actor) -> int:
        wander(actor)
        after_step[actor.rank].append(actor.x.copy())
        return 1

    world = MethodWorld(RelaySGD(), starts(workers), topology=topology, step=step)
    world.run(rounds)
    tree = parse(topology).wire(range(workers)).spanning_tree()
    assert tree.diameter() < rounds
    for rank, actor in world.actors.items():
        away = distances(tree.neighbour_lists, rank)
        expected = np.mean([after_step[other][rounds - max(1, away[other])] for other in range(workers)], axis=0)
        assert actor.x == pytest.approx(expected, abs=1e-5)


def distances(lists: dict[int, list[int]], start: int) -> dict[int, int]:
    away, waiting = {start: 0}, [start]
    for rank in waiting:
        for other in lists[rank]:
            if other not in away:
                away[other] = away[rank] + 1
                waiting.append(other)
    return away


def test_gossipgrad_sends_one_message_a_step_and_deals_places_anew() -> None:
    for workers in (4, 13):
        world = MethodWorld(GossipGraD(), starts(workers), step=wander)
        world.run(20)
        assert world.messages == 20 * workers
    members = tuple(range(13))
    for round in range(12):
        to = [partners(members, round, rank, 0)[0] for rank in members]
        assert sorted(to) == list(members)
        assert all(partners(members, round, other, 0)[1] == rank for rank, other in enumerate(to))
    assert shuffled(members, 1, 0) != shuffled(members, 2, 0)


def test_gossipgrad_gives_the_exact_mean_after_log_rounds() -> None:
    world = MethodWorld(GossipGraD(), [np.full(1, 8.0 * rank, np.float32) for rank in range(8)])
    world.run(3)
    assert [float(x[0]) for x in world.vectors()] == [28.0] * 8


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), workers=st.integers(2, 7))
def test_adpsgd_never_waits(seed: int, workers: int) -> None:
    world = MethodWorld(ADPSGD(), starts(workers), topology="ring", seed=seed, step=wander)
    for count in range(60):
        rank = world.random.randrange(workers)
        world.catch_up(rank)
        world.take_step(rank)
        assert world.actors[rank].proceed
        assert world.actors[rank].method_state.turns == world.actors[rank].steps
        if count % 3 == 0:
            world.deliver()
    assert world.messages < 60 * 2  # one question of its own under way, not one a step


def test_adpsgd_forgets_the_question_to_a_dead_partner() -> None:
    world = MethodWorld(ADPSGD(), starts(3), topology="ring", step=wander)
    world.take_step(0)
    partner = world.actors[0].method_state.asked[0]
    world.kill(partner)
    assert world.actors[0].method_state.asked is None
    world.take_step(0)
    assert world.actors[0].method_state.asked[0] == 3 - partner
    world.run(5)
    world.finish()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), lossy=st.booleans(), topology=st.sampled_from(["ring", "torus", "star"]))
def test_gossip_goes_one_hop_and_loses_nothing(seed: int, lossy: bool, topology: str) -> None:
    """Steps are whole numbers, so sums are exact: x is one's own steps and the neighbours', and nobody else's."""

    def step(actor: Actor) -> int:
        actor.x[actor.rank] += 1
        return 1

    world = MethodWorld(
        Gossip(mix=0), [np.zeros(9, np.float32)] * 9, topology=topology, seed=seed, step=step, lossy=lossy
    )
    world.run(5)
    world.finish()
    graph = parse(topology).wire(range(9))
    for rank, actor in world.actors.items():
        heard = {rank, *graph.neighbours(rank)}
        assert actor.x.tolist() == [5.0 if other in heard else 0.0 for other in range(9)]


@pytest.mark.parametrize("codec", ["tether", "threshold:tau=2^-8"])
def test_gossip_among_all_is_complete(codec: str) -> None:
    """Where everybody is a neighbour, one hop is enough: the shared weights agree to the last bit, with a real codec."""
    numbers = np.random.default_rng(0)

    def step(actor: Actor) -> int:
        actor.x += (0.01 * numbers.normal(size=len(actor.x))).astype(np.float32)
        return 1

    start = (0.05 * numbers.normal(size=256)).astype(np.float32)
    world = MethodWorld(Gossip(mix=0), [start] * 4, step=step, actor=with_codec(codec, 4), seed=7)
    world.run(60)
    world.finish()
    shared = {actor.shared.tobytes() for actor in world.actors.values()}  # type: ignore[attr-defined]
    assert len(shared) == 1
    assert shared != {start.tobytes()}
    assert {actor.codec_state.workers for actor in world.actors.values()} == {4}  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------------------------- bad messages


@pytest.mark.parametrize(
    ("method", "note", "payload"),
    [
        (DPSGD(), Note("x", 0, 1), bytes(15)),
        (DPSGD(tracking=True), Note("x", 0, 1), bytes(16)),
        (SGP(), Note("x", 0, 1), bytes(16)),
        (SGP(), Note("x", 0, 1, [float("nan")]), bytes(16)),
        (SGP(), Note("x", 0, 1, [-0.5]), bytes(16)),
        (RelaySGD(), Note("x", 0, 1, [0.5]), bytes(16)),
        (RelaySGD(), Note("x", 0, 1, [float("inf")]), bytes(16)),
        (ADPSGD(), Note("ask"), bytes(8)),
        (ADPSGD(), Note("answer"), bytes(20)),
        (Choco(), Note("whole", 0, 1), bytes(12)),
        (Choco(), Note("x", 1, 1), bytes(12)),
    ],
    ids=str,
)
def test_what_is_no_message_is_refused_and_changes_nothing(method: Method, note: Note, payload: bytes) -> None:
    world = MethodWorld(method, starts(3), topology="complete")
    before = world.actors[0].x.copy()
    try:
        world.tell(0, Heard(1, note, payload))
    except MalformedMessage as error:
        world.refused.append((1, str(error)))
    assert [sender for sender, _ in world.refused] == [1]
    assert world.actors[0].x.tobytes() == before.tobytes()
    world.run(3)
    world.finish()


def test_a_message_that_comes_twice_is_refused_and_one_of_the_past_dropped() -> None:
    world = MethodWorld(DPSGD(), starts(2))
    message = Heard(1, Note("x", 0, 1), bytes(16))
    world.tell(0, message)
    with pytest.raises(MalformedMessage, match="second message"):
        world.tell(0, message)
    world.version += 1
    world.tell(0, MembersChanged(world.membership(0)))
    world.tell(0, message)
    assert world.actors[0].method_state.dropped == 2  # the one that waited, and the one that came late
    assert not world.actors[0].method_state.inbox


def test_a_round_that_a_change_of_members_ends_is_gone_on_from() -> None:
    world = MethodWorld(DPSGD(), starts(3), topology="complete")
    before = world.actors[0].x.copy()
    world.take_step(0)
    assert not world.actors[0].proceed
    world.kill(2)
    assert world.actors[0].proceed
    assert world.actors[0].x.tobytes() == before.tobytes()


def test_what_the_local_step_left_is_sent() -> None:
    """A message is a copy: the worker trains on, and the neighbour still gets the x of the round."""
    method, world = DPSGD(), MethodWorld(DPSGD(), starts(2))
    sent = world.actors[0].x.copy()
    actions = method.on(world.actors[0].method_state, Stepped(1), 0.0)
    world.actors[0].x += 1.0
    assert bytes(actions[0].payload) == sent.tobytes()  # type: ignore[union-attr]


@given(seed=st.integers(0, 2**32), topology=st.sampled_from(["ring", "torus", "line", "exponential"]))
@settings(max_examples=15, deadline=None)
def test_mixing_pulls_gossiping_replicas_together(seed: int, topology: str) -> None:
    def spread(mix: int) -> float:
        starts = [np.full(4, float(rank), np.float32) for rank in range(6)]  # they differ, and nobody trains
        world = MethodWorld(Gossip(mix=mix), starts, topology=topology, seed=seed)
        world.run(60)
        return world.spread()

    assert spread(mix=2) < 0.3 * spread(mix=0)
