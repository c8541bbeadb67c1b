"""Gossip with a compressor: means and totals of push-sum are conserved; nobody waits for ever, whoever comes and goes;
a codec that leaves nothing out gives the bits of dense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import parse as parse_codec
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.plugins import CODECS as REGISTRY
from taut.strategies import parse
from taut.strategies.api import Heard
from taut.strategies.compatibility import codecs_of, combine
from taut.strategies.gossip.codistillation import Codistillation
from taut.testing.checks.method_check import check_method
from taut.testing.worlds.codec_actor import with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 24
METHODS = [  # with a topology
    ("dpsgd", "ring"),
    ("dpsgd:mixing=uniform", "exponential"),
    ("dpsgd:mixing=uniform", "one-peer"),
    ("dpsgd", "matcha"),
    ("dpsgd:tracking=true", "ring"),
    ("dpsgd:momentum=quasi-global", "torus"),
    ("dpsgd:every=3", "complete"),
    ("choco", "ring"),
    ("gossipgrad", "complete"),
    ("sgp", "exponential"),
    ("sgp:overlap=1", "one-peer"),
    ("relaysgd", "ring"),
    ("adpsgd", "ring"),
    ("codistillation:every=2", "complete"),
]
CODECS = [
    "topk:density=0.1",
    "sign",
    "int8",
    "randomk:density=0.3",
    "qsgd",
    "terngrad",
    "powersgd:rank=1",
    "dgc:density=0.1",
]
FINE = ["int8", "fp8", "fp16", "bf16"]
CONSERVING = [pair for pair in METHODS if pair[0].partition(":")[0] in ("dpsgd", "choco", "gossipgrad", "adpsgd", "sgp")]


@pytest.mark.parametrize(("method", "topology"), METHODS)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 5), codec=st.sampled_from(CODECS))
@settings(max_examples=some(12), deadline=None)
def test_nobody_waits_for_ever_whoever_comes_and_goes(
    method: str, topology: str, seed: int, lossy: bool, workers: int, codec: str
) -> None:
    if method == "relaysgd":
        codec = FINE[seed % len(FINE)]
    world = check_method(parse(method).method(), seed, topology=topology, workers=workers, lossy=lossy, codec=codec)
    assert not world.refused
    for sender, receiver, sent, held in copies_of(world):
        assert sent.tobytes() == held.tobytes(), (sender, receiver)


def copies_of(world: MethodWorld) -> list[tuple[int, int, Any, Any]]:
    """Return what senders think that receivers have, and what they have, by what both have read."""
    found = []
    for sender, actor in world.actors.items():
        sent = getattr(actor.method_state, "copies", None)
        for receiver, other in world.actors.items():
            theirs = getattr(other.method_state, "copies", None)
            if sender == receiver or not hasattr(sent, "asked") or sender not in theirs.held:
                continue  # rounds may end with messages that were not merged
            found.append((sender, receiver, sent.sent.copy(receiver), theirs.held[sender].x))
    return found


def wandering(method: str, topology: str, codec: str, seed: int, workers: int = 4) -> tuple[MethodWorld, Any]:
    dice = np.random.default_rng(seed)
    moved = np.zeros(SIZE)

    def step(actor: Actor) -> int:
        change = dice.normal(size=SIZE).astype(np.float32)
        actor.x += change
        moved[:] += change
        return 1

    made = parse(method).method()
    actor = None if codec == "dense" else with_coder(codec, workers)
    start = [dice.normal(size=SIZE).astype(np.float32) for _ in range(workers)]
    moved[:] = np.sum(start, axis=0)
    return MethodWorld(made, start, step=step, topology=topology, seed=seed, actor=actor), moved


@pytest.mark.parametrize(("method", "topology"), CONSERVING)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(CODECS))
@settings(max_examples=some(8), deadline=None)
def test_only_steps_move_the_mean(method: str, topology: str, seed: int, codec: str) -> None:
    world, moved = wandering(method, topology, codec, seed)
    world.run(8)
    states = [actor.method_state for actor in world.actors.values()]
    if method.startswith("sgp"):
        mass, weight = np.zeros(SIZE), 0.0
        for state in states:
            mass += state.x + (state.local.x - state.x / np.float32(state.w))  # the last step is on z, and not in x yet
            weight += state.w
        in_boxes = [heard for state in states for heard in state.inbox.values()]
        if in_boxes:  # shares that are under way
            return
        assert abs(weight - 4.0) < 1e-9
        np.testing.assert_allclose(mass, moved, atol=1e-3)
    elif all(getattr(state, "turn", None) is None and getattr(state, "asked", None) is None for state in states):
        np.testing.assert_allclose(np.sum(world.vectors(), axis=0), moved, atol=2e-3)


@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "qsgd"])
@pytest.mark.parametrize("topology", ["exponential", "one-peer"])
def test_the_totals_of_push_sum_are_conserved_with_shares_under_way(codec: str, topology: str) -> None:
    world, _ = wandering("sgp:overlap=1", topology, codec, seed=3)
    world.run(12)
    weight = sum(actor.method_state.w for actor in world.actors.values())
    waiting = [heard for actor in world.actors.values() for heard in actor.method_state.inbox.values()]
    assert waiting and abs(weight + sum(one.note.numbers[0] for one in waiting) - 4.0) < 1e-9
    for actor in world.actors.values():  # merge what waits, as at the end of a run
        state = actor.method_state
        world.method.late(state, [state.inbox.pop(key) for key in sorted(state.inbox)])  # type: ignore[attr-defined]
    assert abs(sum(actor.method_state.w for actor in world.actors.values()) - 4.0) < 1e-9


@pytest.mark.parametrize(("method", "topology"), [pair for pair in METHODS if pair[0] != "choco"])
def test_a_codec_that_leaves_nothing_out_gives_the_bits_of_dense(method: str, topology: str) -> None:
    runs = []
    for codec in ("dense", "topk:density=1", "randomk:density=1"):
        world, _ = wandering(method, topology, codec, seed=1)
        world.run(9)
        runs.append([x.tobytes() for x in world.vectors()])
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("topology", ["ring", "torus"])
def test_dpsgd_with_a_compressor_is_choco(topology: str) -> None:
    runs = []
    for method in ("dpsgd", "choco"):
        world, _ = wandering(method, topology, "topk:density=0.1", seed=5, workers=6)
        world.run(9)
        runs.append([x.tobytes() for x in world.vectors()])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("codec", [*CODECS[:2], *(pytest.param(codec, marks=pytest.mark.long) for codec in CODECS[2:])])
@pytest.mark.parametrize(
    ("method", "topology"),
    [pair for pair in METHODS if not pair[0].startswith("codistillation") and pair[0] != "dpsgd:tracking=true"],
)
def test_workers_that_do_not_train_agree(method: str, topology: str, codec: str) -> None:
    start = np.random.default_rng(0).normal(size=(4, SIZE)).astype(np.float32)
    if method == "relaysgd":
        codec = FINE[CODECS.index(codec) % len(FINE)]
    world = MethodWorld(parse(method).method(), list(start), topology=topology, actor=with_coder(codec, 4))
    before, mean = world.spread(), world.mean()
    world.run(some(1500 if method.endswith("every=3") else 500))
    # What of a vector signs leave out is small, but shrinks slowly.
    assert world.spread() < (0.15 if codec in ("sign", "powersgd:rank=1") else 0.02) * before
    if method.partition(":")[0] not in ("relaysgd", "sgp"):  # counts models of different ages; has shares under way
        np.testing.assert_allclose(world.mean(), mean, atol=2e-3)


@pytest.mark.parametrize("codec", ["topk:density=0.2", "sign", "int8"])
def test_teachers_come_to_what_their_peers_are(codec: str) -> None:
    vectors = [np.random.default_rng(rank).normal(size=SIZE).astype(np.float32) for rank in range(3)]
    world = MethodWorld(Codistillation(every=1), vectors, actor=with_coder(codec, 3))

    def shifted(actor: Actor) -> int:
        actor.x += np.float32(0.1 if actor.steps < 5 else 0.0)
        return 1

    world.step = shifted
    world.run(60)
    for rank, actor in world.actors.items():
        assert set(actor.method_state.teachers) == set(world.actors) - {rank}
        for other, teacher in actor.method_state.teachers.items():
            np.testing.assert_allclose(teacher.weights, world.actors[other].x, atol=0.05)


@pytest.mark.parametrize(("method", "topology"), METHODS)
def test_messages_that_make_no_sense_are_refused(method: str, topology: str) -> None:
    world, _ = wandering(method, topology, "topk:density=0.1", seed=2)
    world.run(3)
    made, state = world.method, world.actors[0].method_state
    version, round = world.version, getattr(state, "round", 0)
    for kind in ("x", "whole", "ask", "whole-ask", "answer", "whole-answer", "weights", "moved"):
        for numbers in ([], [1.0], [0.5, 7.0], [-1.0], [0.5, float(2**60)], [2.0, 0.25], [0.5, 0.25, 9.0]):
            for payload in (b"nonsense", b"\xff" * 4 * SIZE, b"\xff" * 8 * SIZE):
                heard = Heard(1, Note(kind, round + 1, version, numbers), payload)
                try:
                    world._carry_out(0, made.on(state, heard, 0.0))
                except MalformedMessage:
                    continue
                for key in [key for key in getattr(state, "inbox", {}) if key[1] == round + 1]:
                    assert state.inbox[key] is None, (kind, numbers, payload)
                    del state.inbox[key]
    assert all(np.isfinite(x).all() for x in world.vectors())


def test_a_vector_that_is_not_finite_stops_nobody_and_is_forgotten() -> None:
    world, _ = wandering("dpsgd", "ring", "topk:density=0.1", seed=4)
    world.run(3)
    kept = world.actors[0].x.copy()
    world.actors[0].x[0] = np.nan
    world.step = lambda actor: 1
    world.run(2)
    assert world.refused
    world.actors[0].x[:] = kept
    del world.refused[:]
    world.run(300)
    assert world.spread() < 0.05 and not world.refused[8:]


def test_gossip_takes_every_compressor() -> None:
    for method in {method.partition(":")[0] for method, _ in METHODS} - {"relaysgd"}:
        assert {"topk", "sign", "int8", "qsgd", "powersgd", "dgc", "demo"} <= set(codecs_of(parse(method).kind)), method
    with pytest.raises(Misuse, match="compares whole vectors"):
        combine("dpsgd:robust=median", codec="topk")
    with pytest.raises(Misuse, match="relays do not conserve the mean"):
        combine("relaysgd", codec="topk")
    fine = set(codecs_of(parse("relaysgd").kind)) - {"dense"}
    for name, kind in REGISTRY.items():
        error = parse_codec(name).facts.error
        if not kind.not_for_vectors and name != "dense":
            assert (name in fine) == (error is not None and error < 0.01), name
    assert combine("sgp", codec="topk:density=0.01").codec == "topk:density=0.01"
