"""Synchronous rounds and public copies in a codec's words: the same bits at everybody, whoever dies, and nothing lost."""

from __future__ import annotations

import numpy as np
import pytest
from gossip_histories import starts, wander
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, Codec, expand, parse
from taut.codecs.vector_codec import VectorCodec
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse, NonFiniteUpdate
from taut.strategies.allreduce.compressed_group import CompressedGroup, pays
from taut.strategies.allreduce.group import Group
from taut.strategies.allreduce.sync import Sync
from taut.strategies.allreduce.sync_state import SyncState
from taut.strategies.api import Heard, Membership
from taut.strategies.compatibility import codecs_of, combine
from taut.strategies.gossip.choco import Choco
from taut.strategies.gossip.dpsgd import DPSGD
from taut.testing.worlds.codec_actor import CoderActor, with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

SIZE = 32
GATHERED = [name for name in REGISTRY if name not in ("tether", "dense")]
COMPRESSED = [name for name in REGISTRY if not issubclass(REGISTRY[name], Codec)]
ALIKE = ("onebit", "terngrad", "qsgd", "dgc", "randomk", "fp8", "bf16")  # another codec of their kind is tried
# Those with feedback; momentum (dgc, demo) makes more of what it is given.
KEEPING = [name for name in GATHERED if getattr(parse(name), "keep", True) and name not in ("dgc", "demo")]
GENTLE = {
    "threshold": "threshold:tau=2^-2",
    "topk": "topk:density=0.1",
    "chunked": "chunked:density=0.1",
    "dgc": "dgc:density=0.1",
    "randomk": "randomk:density=0.2",
}


def written(name: str) -> str:
    return GENTLE.get(name, name)


class Walker(CoderActor):
    """Weights that follow the mean gradient; ``sent``: what its coder made of its own gradients, decoded."""

    weights: np.ndarray

    def proceeded(self) -> None:
        state: SyncState = self.method_state
        if state.rate is not None:
            assert state.rate == pytest.approx(0.1, rel=1e-6)
            self.weights = self.weights - np.float32(state.rate) * self.x


def walk(actor: Actor) -> int:
    dice = np.random.default_rng([actor.rank, actor.steps])
    actor.x[:] = dice.normal(size=SIZE)
    return int(dice.integers(1, 5))


def walkers(codec: str, workers: int, seed: int, lossy: bool = False) -> MethodWorld:
    def actor(rank: int, vector: np.ndarray, channels: object) -> Walker:
        made = Walker(rank, vector, channels, parse(codec), 1)  # type: ignore[arg-type]
        made.weights = np.zeros(SIZE, np.float32)
        return made

    return MethodWorld(Sync(), [np.zeros(SIZE, np.float32)] * workers, step=walk, seed=seed, lossy=lossy, actor=actor)


def test_every_compressor_is_taken_and_no_other_codec_is() -> None:
    assert set(codecs_of(Sync)) == {"dense", "threshold", *COMPRESSED}
    assert set(codecs_of(Choco)) == set(COMPRESSED)


# ------------------------------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize("codec", ["dense", *GATHERED, "sign:vote=yes"])
@given(seed=st.integers(0, 2**32), workers=st.integers(1, 5), lossy=st.booleans(), kills=st.booleans())
@settings(max_examples=5, deadline=None)
def test_replicas_are_equal_to_the_last_bit_whoever_dies(
    codec: str, seed: int, workers: int, lossy: bool, kills: bool
) -> None:
    world = walkers(written(codec), workers, seed, lossy)
    for _ in range(160):
        if kills and len(world.actors) > 1 and world.random.random() < 0.015:
            world.kill(world.random.choice(sorted(world.actors)))
        if kills and world.random.random() < 0.01:
            world.actors[world.random.choice(sorted(world.actors))].ended = True
        assert world._happen(sorted(world.actors)), "nothing can happen: everybody waits"
    world.finish()
    walked = [actor.weights for actor in world.actors.values() if isinstance(actor, Walker)]
    assert len({weights.tobytes() for weights in walked}) == 1
    assert np.isfinite(walked[0]).all()
    machines = {type(actor.method_state.buckets[0].machine) for actor in world.actors.values()}
    assert machines == {CompressedGroup}


@given(seed=st.integers(0, 2**32), workers=st.integers(1, 5))
@settings(max_examples=10, deadline=None)
def test_gathered_dense_payloads_are_the_sum_that_a_ring_makes(seed: int, workers: int) -> None:
    dice = np.random.default_rng(seed)
    vectors = dice.normal(size=(workers, SIZE)).astype(np.float32)
    samples = [int(n) for n in dice.integers(0, 5, size=workers)]
    means = []
    for gathers in (True, False):
        ranks = tuple(range(workers))
        machines: list[Group] = []
        for rank in ranks:
            membership = Membership(rank, ranks, parse_topology("complete"), 1)
            machines.append(
                CompressedGroup(membership, SIZE, VectorCodec(parse("dense"), SIZE))
                if gathers
                else Group(membership, SIZE)
            )
        under_way = []
        for rank, machine in enumerate(machines):
            under_way += [(rank, tell) for tell in machine.begin(vectors[rank], samples[rank], extra=(rank,))]
        while under_way:
            sender, tell = under_way.pop(int(dice.integers(len(under_way))) if gathers else 0)
            under_way += [(tell.to, more) for more in machines[tell.to].heard(sender, tell.note, bytes(tell.payload))]
        out = np.zeros((workers, SIZE), np.float32)
        assert {machine.mean(out[rank]) for rank, machine in enumerate(machines)} == {float(sum(samples))}
        assert all(machine.contributors == workers for machine in machines)
        assert all(machine.extra == [workers * (workers - 1) / 2] for machine in machines)
        means.append(out)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "int8"])
def test_one_worker_with_a_codec_is_error_feedback_alone(codec: str) -> None:
    world = walkers(codec, 1, 0)
    world.run(20)
    weights, left, rate = np.zeros(SIZE), np.zeros(SIZE), 0.1
    compressor = VectorCodec(parse(codec), SIZE)
    for step in range(20):
        dice = np.random.default_rng([0, step])
        gradient, samples = dice.normal(size=SIZE).astype(np.float32), int(dice.integers(1, 5))
        due = (left + samples * gradient).astype(np.float32)
        said = expand(compressor.difference(due), SIZE)
        left = due - said
        weights = weights - rate * said / samples
    walker = world.actors[0]
    assert isinstance(walker, Walker)
    assert walker.weights == pytest.approx(weights, abs=1e-4)
    assert walker.coder.left == pytest.approx(left, abs=1e-4)


@pytest.mark.parametrize("codec", KEEPING)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=5, deadline=None)
def test_what_was_given_was_sent_or_is_left(codec: str, seed: int) -> None:
    """In units of samples times gradient; a turn without data changes nothing of it."""
    dice, coder = np.random.default_rng(seed), VectorCodec(parse(written(codec)), SIZE)
    given_, sent = np.zeros(SIZE), np.zeros(SIZE)
    for _ in range(12):
        weight = int(dice.integers(0, 4))
        v = dice.normal(size=SIZE).astype(np.float32)
        before = None if coder.left is None else coder.left.copy()
        payload = coder.encode(v, weight)
        coder.check(payload, SIZE)
        given_ += float(weight) * v
        sent += expand(payload, SIZE) if payload else 0.0
        if not weight:
            assert payload == b""
            assert before is None or (before == coder.left).all()
    assert sent + (0.0 if coder.left is None else coder.left) == pytest.approx(given_, abs=1e-3)


def test_a_round_that_is_run_again_is_not_encoded_again() -> None:
    """Else what was left out would be counted twice: the payload is kept."""
    membership = [Membership(rank, (0, 1, 2), parse_topology("complete"), 1) for rank in range(3)]
    coders = [VectorCodec(parse("topk:density=0.25"), 4) for _ in range(3)]
    machines = [CompressedGroup(membership[rank], 4, coders[rank]) for rank in range(3)]
    v = np.array([1.0, 2.0, 3.0, 4.0], np.float32)
    under_way = [(rank, tell) for rank in (0, 1) for tell in machines[rank].begin(v, 1.0)]
    under_way += [(2, tell) for tell in machines[2]._tell_last_round()]  # it dies before it contributes
    left = coders[0].left.copy()  # type: ignore[union-attr]

    def deliver() -> None:
        while under_way:
            sender, tell = under_way.pop(0)
            if tell.to != 2:
                more = machines[tell.to].heard(sender, tell.note, bytes(tell.payload))
                under_way.extend((tell.to, one) for one in more)

    deliver()
    assert not machines[0].done
    for rank in (0, 1):
        fresh = Membership(rank, (0, 1), parse_topology("complete"), 2)
        under_way.extend((rank, tell) for tell in machines[rank].members_changed(fresh))
    deliver()
    out = np.zeros(4, np.float32)
    assert machines[0].done and machines[1].done
    assert machines[0].mean(out) == 2.0
    assert out.tolist() == [0.0, 0.0, 0.0, 4.0]
    assert (coders[0].left == left).all()


def test_a_vote_follows_the_majority_by_samples() -> None:
    coders = [VectorCodec(parse("sign:vote=yes"), 2) for _ in range(3)]
    gradients = np.float32([[1.0, 1.0], [2.0, -2.0], [-3.0, -3.0]])
    samples = [1.0, 1.0, 4.0]
    payloads = [coder.encode(v, weight) for coder, v, weight in zip(coders, gradients, samples, strict=True)]
    out = np.zeros(2, np.float32)
    coders[0].total(payloads, samples, out)
    assert out.tolist() == [-15.0, -15.0]  # 1 * 1 + 1 * 2 + 4 * 3
    coders[0].total(payloads[:2], samples[:2], out)
    assert out.tolist() == [3.0, 0.0]
    with pytest.raises(MalformedMessage, match="where votes are VOTES"):
        coders[0].check(VectorCodec(parse("dense"), 2).encode(gradients[0]), 2)


# ----------------------------------------------------------------------------------------------- when it pays


def test_it_pays_where_it_is_less_than_a_ring() -> None:
    for workers in range(2, 40):
        for bits in (0.64, 1.0, 8.0, 16.0):
            ring = 2 * (workers - 1) / workers * 32
            assert pays(bits, workers) == ((workers - 1) * bits < ring)


@pytest.mark.parametrize(("codec", "workers", "gathers"), [("int8", 7, True), ("int8", 8, False), ("topk", 90, True)])
def test_where_it_would_not_pay_a_ring_is_used(codec: str, workers: int, gathers: bool) -> None:
    """By the number that the run starts with, which all know alike: who is there may differ when they start."""
    actor = with_coder(codec, workers)
    world = MethodWorld(Sync(), [np.zeros(4, np.float32)] * 3, actor=actor, step=lambda actor: 1)
    assert isinstance(world.actors[0].method_state.buckets[0].machine, CompressedGroup) == gathers
    world.run(3)
    world.finish()


@pytest.mark.parametrize(
    ("strategy", "codec", "says"),
    [
        ("sync:backup=1", "topk", "codec 'topk' with sync:backup=1: expected dense, or none; leave backup=1 out"),
        ("sync:schedule=gloo", "int8", "with sync:schedule=gloo"),
        ("sync", "tether", "codec 'tether' with strategy 'sync': expected dense or threshold or fp16"),
        ("choco", "threshold:tau=2^-8", "codec 'threshold:tau=2^-8' with strategy 'choco': expected topk"),
        ("choco", "dense", "expected topk"),
    ],
)
def test_what_does_not_go_together_is_refused(strategy: str, codec: str, says: str) -> None:
    with pytest.raises(Misuse) as caught:
        combine(strategy, codec=codec)
    assert says in str(caught.value)


def test_codecs_that_were_not_asked_for() -> None:
    assert (combine("sync").codec, combine("choco").codec, combine("gossip").codec) == ("dense", "topk", "tether")
    assert combine("sync", codec="powersgd:rank=2").codec == "powersgd:rank=2"
    assert combine("gossip", codec="topk:density=0.001").codec == "topk:density=0.001"


def test_no_compressor_no_difference() -> None:
    with pytest.raises(Misuse, match="codec 'dense' for differences: expected a compressor"):
        VectorCodec(parse("dense"), 4).difference(np.zeros(4, np.float32))
    with pytest.raises(NonFiniteUpdate, match="element 2"):
        VectorCodec(parse("topk"), 4).difference(np.float32([0.0, 1.0, np.nan, 0.0]))


# ------------------------------------------------------------------------------------------------- bad messages


@pytest.mark.parametrize("cut", [1, 3, 19, 27, 40])
def test_a_share_that_is_not_right_is_refused_and_changes_nothing(cut: int) -> None:
    world = walkers("topk:density=0.25", 2, 0)
    for rank in (0, 1):
        world.take_step(rank)
    for sender, to in ((0, 1), (1, 0)):
        last_round = world.queues[sender, to].popleft()
        world.tell(to, Heard(sender, last_round.note))
    share = world.queues[1, 0][0]
    state = world.actors[0].method_state
    for payload in (share.payload[:cut], share.payload[:-1], b"\xff" * len(share.payload)):
        with pytest.raises(MalformedMessage):
            world.tell(0, Heard(1, share.note, payload))
    for note in (Note("share", 9, 0, [1]), Note("share", 1, 0, []), Note("piece", 1, 0, [1, 0, 0])):
        with pytest.raises(MalformedMessage):
            world.tell(0, Heard(1, note, share.payload))
    assert not state.buckets[0].machine.done
    world._quiet()
    assert state.buckets[0].machine.done
    with pytest.raises(MalformedMessage, match="round"):
        world.tell(0, Heard(1, share.note, share.payload))


# -------------------------------------------------------------------------------------------------------- choco


@pytest.mark.parametrize("codec", COMPRESSED)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6), lossy=st.booleans())
def test_public_copies_agree_bit_for_bit(codec: str, seed: int, lossy: bool) -> None:
    world = MethodWorld(
        Choco(),
        starts(6, 40, seed),
        topology="torus",
        seed=seed,
        step=wander,
        lossy=lossy,
        actor=with_coder(written(codec), 6),
    )
    before = np.sum(np.stack(world.vectors()).astype(np.float64), axis=0)
    world.run(9)
    for rank, actor in world.actors.items():
        for other, (held,) in actor.method_state.copies.held.items():
            assert held.x.tobytes() == world.actors[other].method_state.copies.shown(rank).tobytes(), (rank, other)
    made = sum(0.01 * ((rank + 3 * step) % 7 - 3) for rank in range(6) for step in range(9))
    after = np.sum(np.stack(world.vectors()).astype(np.float64), axis=0)
    assert after == pytest.approx(before + made, abs=5e-5), "the mean moves by the steps alone"


@pytest.mark.parametrize(
    "codec", [pytest.param(codec, marks=pytest.mark.long) if codec in ALIKE else codec for codec in COMPRESSED]
)
def test_choco_comes_nearer_to_consensus_with_every_compressor(codec: str) -> None:
    """Also with the unbiased ones, whose variance would make copies fall apart if it were not damped."""
    near = MethodWorld(Choco(), starts(6, 200), topology="ring", actor=with_coder(written(codec), 6))
    before, mean = near.spread(), near.mean()
    near.run(150)
    assert near.spread() < 0.35 * before
    assert near.mean() == pytest.approx(mean, abs=1e-4)


def test_choco_reaches_consensus_at_a_fraction_of_the_bytes() -> None:
    dense = MethodWorld(DPSGD(), starts(6, 500), topology="ring")
    compressed = MethodWorld(Choco(), starts(6, 500), topology="ring", actor=with_coder("topk:density=0.1", 6))
    for world in (dense, compressed):
        world.run(120)
    assert compressed.spread() < 1e-3
    assert compressed.mean() == pytest.approx(dense.mean(), abs=1e-5)
    assert dense.sent_nbytes > 4 * compressed.sent_nbytes  # 8 bytes for a tenth, and the first message whole
