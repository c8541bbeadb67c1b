"""Servers and centers with a compressor: nothing is lost, both sides keep the same copies, whoever comes and goes."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import parse
from taut.codecs.vector_codec import VectorCodec
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Method
from taut.strategies.delivery.copies import HeldCopy, SentCopies, Written
from taut.strategies.server.compressed_center import CompressedCenter
from taut.strategies.server.easgd import EASGD
from taut.strategies.server.server import Server
from taut.testing.checks.method_check import check_method
from taut.testing.worlds.codec_actor import with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 24
METHODS: list[Method] = [
    Server(),
    Server(shards=3, push=2, pull=3, staleness="dc"),
    EASGD(every=2),
    EASGD(every=1, shards=3, alpha=0.4),
]
NAMES = ["server", "server-shards", "easgd", "easgd-shards"]
CODECS = ["topk:density=0.1", "sign", "int8", "randomk:density=0.3", "qsgd", "powersgd:rank=1", "dgc:density=0.1"]


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 5), codec=st.sampled_from(CODECS))
@settings(max_examples=some(12), deadline=None)
def test_replicas_agree_to_the_last_bit_whoever_comes_and_goes(
    method: Method, seed: int, lossy: bool, workers: int, codec: str
) -> None:
    check_method(method, seed, workers=workers, lossy=lossy, codec=codec)


def trained(method: Method, codec: str, steps: int) -> tuple[MethodWorld, np.ndarray]:
    dice = np.random.default_rng(0)
    targets = dice.normal(size=(4, SIZE)).astype(np.float32)

    def step(actor: Actor) -> int:
        actor.x -= np.float32(0.1 / (1 + actor.steps / 40)) * (actor.x - targets[actor.rank])
        return 4

    start = dice.normal(size=SIZE).astype(np.float32)
    actor = None if codec == "dense" else with_coder(codec, 4)
    world = MethodWorld(method, [start] * 4, step=step, actor=actor, topology="complete")
    world.run(steps)
    return world, targets.mean(axis=0)


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
def test_a_codec_that_leaves_nothing_out_gives_the_bits_of_dense(method: Method) -> None:
    runs = [trained(method, each, 12)[0] for each in ("dense", "topk:density=1")]
    assert [x.tobytes() for x in runs[0].vectors()] == [x.tobytes() for x in runs[1].vectors()]


@pytest.mark.parametrize("method", [Server(), EASGD(every=1, shards=2)], ids=["server", "easgd"])
@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "int8", pytest.param("qsgd", marks=pytest.mark.long)])
def test_a_compressed_run_ends_near_the_dense_one(method: Method, codec: str) -> None:
    offs = []
    for each in ("dense", codec):
        world, target = trained(method, each, 250)
        world.finish()
        offs.append(float(np.linalg.norm(world.vectors()[0] - target) / np.linalg.norm(target)))
    assert offs[1] < offs[0] + 0.1, offs


@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "int8", "qsgd"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_elastic_forces_conserve_the_sum_of_all_vectors_and_the_center(codec: str, seed: int) -> None:
    dice = np.random.default_rng(seed)
    moved = np.zeros(SIZE)

    def step(actor: Actor) -> int:
        change = dice.normal(size=SIZE).astype(np.float32)
        actor.x += change
        moved[:] += change
        return 1

    world = MethodWorld(
        EASGD(every=1), [np.zeros(SIZE, np.float32)] * 3, step=step, seed=seed, actor=with_coder(codec, 3)
    )
    world.run(6)
    centers = [actor.method_state.center for actor in world.actors.values()]
    assert all(isinstance(center, CompressedCenter) and not center.asking for center in centers)
    center = np.zeros(SIZE)
    for each in centers:
        for shard in each.held():
            center[each.part(shard)] = each.view[each.part(shard)]
    np.testing.assert_allclose(sum(world.vectors()) + center, moved, atol=1e-3)


@given(seed=st.integers(0, 2**32), drops=st.booleans())
@settings(max_examples=20, deadline=None)
def test_copies_stay_equal_whatever_the_receiver_misses(seed: int, drops: bool) -> None:
    dice = np.random.default_rng(seed)
    coder, sender, held = VectorCodec(parse("topk:density=0.2"), SIZE), SentCopies(3), HeldCopy()
    for _ in range(20):
        x = dice.normal(size=SIZE).astype(np.float32)
        sent = sender.write("a", held.stamp, x, coder)
        if drops and dice.random() < 0.3:
            continue  # the next one is whole
        copy = held.read(sent, x.nbytes, coder)
        assert copy.tobytes() == sender.copy("a").tobytes()
    for _ in range(5):  # x stands still: the copy comes to it
        copy = held.read(sender.write("a", held.stamp, x, coder), x.nbytes, coder)
    np.testing.assert_allclose(copy, x, atol=1e-6)


def test_messages_that_make_no_sense_are_refused() -> None:
    coder, held = VectorCodec(parse("topk:density=0.2"), SIZE), HeldCopy()
    for sent in (Written(b"12345678", 1.0, True), Written(b"1", 1.0, False), Written(b"\xff" * 4 * SIZE, 1.0, True)):
        with pytest.raises(MalformedMessage):
            held.read(sent, 4 * SIZE, coder)
    for method in METHODS:
        world, _ = trained(method, "topk:density=0.1", 3)
        state = world.actors[0].method_state
        for kind in ("push", "pull", "weights", "moved", "ask", "answer"):
            for numbers in ([], [1.0], [1.0, 2.0], [0.1, 99.0, 0.0, 0.0], [-1.0], [0.0, 1e9]):
                for payload in (b"", b"nonsense", b"\xff" * 4 * SIZE):
                    try:
                        method.on(state, Heard(1, Note(kind, 1, 0, numbers), payload), 0.0)
                    except MalformedMessage:
                        continue
        world.run(3)
        assert all(np.isfinite(x).all() for x in world.vectors())
