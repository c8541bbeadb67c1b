"""Periodic strategies with a compressor: the same bits at everybody whoever comes and goes, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, Codec, expand, parse
from taut.codecs.vector_codec import VectorCodec
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.difference_group import DifferenceGroup, compresses, group_of
from taut.strategies.allreduce.group import Group
from taut.strategies.api import Membership, Method, Tell
from taut.strategies.compatibility import combine, why_not
from taut.strategies.periodic.admm import ADMM
from taut.strategies.periodic.averaging import Averaging
from taut.strategies.periodic.diloco import DiLoCo
from taut.strategies.periodic.dynamic import Dynamic
from taut.strategies.periodic.fedavg import FedAvg
from taut.strategies.periodic.sparseloco import SparseLoCo
from taut.testing.checks.method_check import check_method
from taut.testing.worlds.codec_actor import CoderActor, with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

SIZE = 24
METHODS: list[Method] = [
    Averaging(every=2),
    FedAvg(steps=2, fraction=0.5),
    DiLoCo(every=2, outer_momentum=0.5),
    DiLoCo(every=4, overlap=2),
    Dynamic(threshold=0.2, every=2),
    ADMM(every=2),
    SparseLoCo(every=2),
    SparseLoCo(every=3, decay=0.5, outer_rate=0.7),
]
CODECS = ["topk:density=0.1", "chunked:density=0.2", "sign", "int8", "randomk:density=0.3", "qsgd", "powersgd:rank=1"]
NAMES = [f"{method.name}{number}" for number, method in enumerate(METHODS)]


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@given(seed=st.integers(0, 2**32), lossy=st.booleans(), workers=st.integers(1, 5), codec=st.sampled_from(CODECS))
@settings(max_examples=some(12), deadline=None)
def test_replicas_agree_to_the_last_bit_whoever_comes_and_goes(
    method: Method, seed: int, lossy: bool, workers: int, codec: str
) -> None:
    world = check_method(method, seed, workers=workers, lossy=lossy, codec=codec)
    groups = [actor.method_state.group for actor in world.actors.values() if actor.method_state.late.handed is None]
    assert all(isinstance(group, DifferenceGroup) for group in groups)
    assert len({group.reference.tobytes() for group in groups}) <= 1


def descend(targets: np.ndarray, method: Method, rate: float = 0.1) -> Callable[[Actor], int]:
    def step(actor: Actor) -> int:
        gradient = actor.x - targets[actor.rank % len(targets)]
        if method.shapes_gradient:
            method.shape_gradient(actor.method_state, gradient, rate)
        actor.x -= np.float32(rate / (1 + actor.steps / 40)) * gradient  # a constant one leaves an error of its size
        return 4

    return step


def trained(method: Method, codec: str, steps: int, seed: int = 0, size: int = SIZE) -> MethodWorld:
    dice = np.random.default_rng(seed)
    targets = dice.normal(size=(4, size)).astype(np.float32)
    start = dice.normal(size=size).astype(np.float32)
    actor = Actor if codec == "dense" else with_coder(codec, 4)
    world = MethodWorld(method, [start] * 4, step=descend(targets, method), seed=seed, actor=actor)
    world.run(steps, freely=True)
    world.targets = targets.mean(axis=0)  # type: ignore[attr-defined]
    return world


@pytest.mark.parametrize("method", METHODS, ids=NAMES)
@pytest.mark.parametrize("codec", ["topk:density=1", "randomk:density=1"])
def test_a_codec_that_leaves_nothing_out_gives_the_bits_of_dense(method: Method, codec: str) -> None:
    runs = [trained(method, each, 12) for each in ("dense", codec)]
    assert [x.tobytes() for x in runs[0].vectors()] == [x.tobytes() for x in runs[1].vectors()]


@pytest.mark.parametrize(
    "method", [Averaging(every=2), ADMM(every=4, rho=1.0), DiLoCo(every=4, outer_rate=0.7, outer_momentum=0.3)]
)
@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "int8", pytest.param("qsgd", marks=pytest.mark.long)])
def test_a_compressed_run_reaches_the_mean_of_all_targets(method: Method, codec: str) -> None:
    world = trained(method, codec, 600)
    world.finish()
    off = float(np.linalg.norm(world.vectors()[0] - world.targets)) / float(np.linalg.norm(world.targets))  # type: ignore[attr-defined]
    assert off < 0.12, off


# ------------------------------------------------------------------------------------------------------ the group


class Ring:
    """Groups of some members, whose messages arrive at once."""

    def __init__(self, vectors: list[np.ndarray], codec: str, own: bool = False) -> None:
        self.version, self.machines = 1, dict[int, Group]()
        self.coders = {rank: VectorCodec(parse(codec), len(x), seed=rank, workers=2) for rank, x in enumerate(vectors)}
        for rank, x in enumerate(vectors):
            actor = CoderActor(rank, x.copy(), None, parse(codec), 2)  # type: ignore[arg-type]
            actor.coder = self.coders[rank]
            self.machines[rank] = group_of(self.membership(rank, range(len(vectors))), actor, own=own)

    def membership(self, rank: int, members: object) -> Membership:
        return Membership(rank, tuple(members), parse_topology("complete"), self.version)  # type: ignore[arg-type]

    def deliver(self, under_way: list[tuple[int, Tell]]) -> None:
        while under_way:
            sender, tell = under_way.pop(0)
            if tell.to in self.machines:
                more = self.machines[tell.to].heard(sender, tell.note, bytes(tell.payload))
                under_way += [(tell.to, one) for one in more]

    def round(self, values: dict[int, np.ndarray], weights: dict[int, float]) -> np.ndarray:
        self.deliver([(rank, tell) for rank, x in values.items() for tell in self.machines[rank].begin(x, weights[rank])])
        means = np.zeros((len(values), SIZE), np.float32)
        for row, rank in zip(means, values, strict=True):
            assert self.machines[rank].done
            self.machines[rank].mean(row)
        assert len({row.tobytes() for row in means}) == 1
        return means[0]


@pytest.mark.parametrize("codec", ["topk:density=0.1", "sign", "int8", "powersgd:rank=1"])
@given(seed=st.integers(0, 2**32))
@settings(max_examples=some(10), deadline=None)
def test_what_was_sent_and_what_is_left_are_all_that_was_given(codec: str, seed: int) -> None:
    dice = np.random.default_rng(seed)
    start = dice.normal(size=SIZE).astype(np.float32)
    ring = Ring([start] * 3, codec)
    given_in, reference = np.zeros(SIZE), start.astype(np.float64)
    moved = np.zeros(SIZE)
    for _ in range(8):
        values = {rank: (reference + dice.normal(size=SIZE)).astype(np.float32) for rank in range(3)}
        weights = {rank: float(dice.integers(1, 9)) for rank in range(3)}
        given_in += sum(weights[rank] * (values[rank] - reference) for rank in range(3))
        mean = ring.round(values, weights)
        moved += (mean - reference) * sum(weights.values())
        reference = mean.astype(np.float64)
    left = sum(np.asarray(coder.left, np.float64) for coder in ring.coders.values())
    np.testing.assert_allclose(moved + left, given_in, atol=1e-3)


def test_a_newcomer_is_given_the_reference_by_one_round_of_whole_vectors() -> None:
    dice = np.random.default_rng(0)
    start, other = dice.normal(size=(2, SIZE)).astype(np.float32)
    ring = Ring([start, start, other], "topk:density=0.1")
    newcomer = ring.machines.pop(2)
    for rank, machine in ring.machines.items():
        machine.membership = ring.membership(rank, (0, 1))
    values = {rank: (start + dice.normal(size=SIZE)).astype(np.float32) for rank in range(2)}
    ring.round(values, {0: 1.0, 1: 1.0})
    # One of the two has encoded its part of the next round when the newcomer comes.
    values = {rank: dice.normal(size=SIZE).astype(np.float32) for rank in range(3)}
    ring.deliver([(0, tell) for tell in ring.machines[0].begin(values[0], 1.0)])
    written = expand(ring.machines[0]._split(ring.machines[0]._share)[0], SIZE)  # type: ignore[attr-defined]
    ring.version = 2
    before = ring.machines[0].reference.copy()  # type: ignore[attr-defined]
    ring.machines[2] = newcomer
    newcomer.membership = ring.membership(2, range(3))
    tells = [
        (rank, tell) for rank in (0, 1) for tell in ring.machines[rank].members_changed(ring.membership(rank, range(3)))
    ]
    tells += [(rank, tell) for rank in (1, 2) for tell in ring.machines[rank].begin(values[rank], 1.0)]
    ring.deliver(tells)
    expected = (before + written + values[1] + values[2]) / 3
    for machine in ring.machines.values():
        assert machine.done and machine.reference.tobytes() == newcomer.reference.tobytes()  # type: ignore[attr-defined]
    np.testing.assert_allclose(newcomer.reference, expected, atol=1e-5)  # type: ignore[attr-defined]
    # The round after that is compressed again.
    for rank, machine in ring.machines.items():
        kinds = {tell.note.kind for tell in machine.begin(values[rank], 1.0)}
        assert kinds == {"share"}


def test_a_member_whose_round_is_behind_is_given_its_result_and_moves_its_reference() -> None:
    dice = np.random.default_rng(1)
    start = dice.normal(size=SIZE).astype(np.float32)
    ring = Ring([start] * 3, "topk:density=0.2")
    ring.round(dict.fromkeys(range(3), start), dict.fromkeys(range(3), 1.0))
    values = {rank: dice.normal(size=SIZE).astype(np.float32) for rank in range(3)}
    under_way = [(rank, tell) for rank in range(3) for tell in ring.machines[rank].begin(values[rank], 1.0)]
    ring.deliver(
        [(sender, tell) for sender, tell in under_way if tell.to != 2]
    )  # worker 2 hears nothing, and then 1 dies
    assert ring.machines[0].done and not ring.machines[2].done
    del ring.machines[1]
    ring.version = 2
    ring.deliver(
        [(rank, tell) for rank in (0, 2) for tell in ring.machines[rank].members_changed(ring.membership(rank, (0, 2)))]
    )
    assert ring.machines[2].done
    assert ring.machines[0].reference.tobytes() == ring.machines[2].reference.tobytes()  # type: ignore[attr-defined]
    ring.round({rank: values[rank] for rank in (0, 2)}, {0: 1.0, 2: 1.0})


def test_copies_of_their_own_have_the_reference_for_a_mean() -> None:
    dice = np.random.default_rng(2)
    start = dice.normal(size=SIZE).astype(np.float32)
    ring = Ring([start] * 3, "topk:density=0.2", own=True)
    for _ in range(40):
        values = {rank: np.float32(rank) + start for rank in range(3)}
        mean = ring.round(values, {0: 1.0, 1: 1.0, 2: 2.0**-20})
        known = np.mean([machine.known for machine in ring.machines.values()], axis=0)  # type: ignore[attr-defined]
        np.testing.assert_allclose(mean, known, atol=1e-5)
    np.testing.assert_allclose(ring.machines[1].known, values[1], atol=1e-5)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(ring.machines[2].known, start)  # type: ignore[attr-defined]  # it has not trained


def test_a_share_that_makes_no_sense_is_refused() -> None:
    start = np.zeros(SIZE, np.float32)
    ring = Ring([start] * 2, "topk:density=0.2")
    ring.round({0: start, 1: start}, {0: 1.0, 1: 1.0})
    ring.machines[0].begin(start + 1, 1.0)
    with pytest.raises(MalformedMessage):
        ring.machines[0].heard(1, Note("share", 2, 0, [1.0]), b"nonsense that is long enough to be numbers")
    with pytest.raises(MalformedMessage):
        ring.machines[0].heard(1, Note("result", 2, 0, [1.0, 1.0]), b"")


def test_pairs_that_cannot_work_say_why() -> None:
    assert compresses(VectorCodec(parse("int8"), SIZE, workers=7))
    assert not compresses(VectorCodec(parse("int8"), SIZE, workers=8))  # a ring of float32 is shorter
    for name in [name for name in REGISTRY if not issubclass(REGISTRY[name], Codec)]:
        assert bool(why_not(Averaging, name)) == (name in ("dgc", "demo")), name
        assert not why_not(ADMM, name)
    for given_text, why in {
        ("averaging:robust=median", "topk"): "it compares whole vectors",
        ("diloco:fragments=2", "topk"): "not built yet",
        ("diloco:delayed=true", "sign"): "not built yet",
        ("averaging", "dgc"): "adds momentum",
        ("fedavg", "tether"): "tethers",
    }.items():
        with pytest.raises(Misuse, match=why):
            combine(given_text[0], codec=given_text[1])
    assert combine("diloco", codec="topk:density=0.01").codec == "topk:density=0.01"
