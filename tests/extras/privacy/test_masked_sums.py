"""Masked sums: the mean is what it is without masks, and no message tells anything of one worker: `make test-privacy`."""

from __future__ import annotations

import random

import numpy as np
import pytest
from clients_runs import simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse, RunFailed
from taut.simulator.faults import Fail, Join
from taut.strategies.allreduce.masked_group import SCALE, MaskedGroup
from taut.strategies.allreduce.pairwise_masks import RoundKeys
from taut.strategies.api import Membership
from taut.strategies.compatibility import combine
from taut.strategies.periodic.fedavg import FedAvg
from taut.strategies.registry import parse
from taut.supervisor.metrics import counted, masks_text
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

COMPLETE = parse_topology("complete")
VALUES = st.floats(-1000, 1000, width=32)


class Rounds:
    """Groups that exchange messages in any order; ``seen``: all of them."""

    def __init__(self, members: int, length: int, seed: int = 0, schedule: str = "ring") -> None:
        self.members, self.version, self.dice = tuple(range(members)), 1, random.Random(seed)
        self.groups = {rank: MaskedGroup(self._membership(rank), length, schedule) for rank in self.members}
        self.queues: dict[tuple[int, int], list[tuple[Note, bytes]]] = {}
        self.seen: list[tuple[int, int, Note, bytes]] = []

    def _membership(self, rank: int) -> Membership:
        return Membership(rank, self.members, COMPLETE, self.version)

    def send(self, rank, tells) -> None:
        for tell in tells:
            self.queues.setdefault((rank, tell.to), []).append((tell.note, bytes(tell.payload)))

    def begin(self, rank: int, values, weight: float = 1.0, **more) -> None:
        self.send(rank, self.groups[rank].begin(values, weight, **more))

    def deliver(self, messages: int = 10**9) -> None:
        for _ in range(messages):
            waiting = [pair for pair, queue in self.queues.items() if queue and pair[1] in self.groups]
            if not waiting:
                return
            sender, to = self.dice.choice(waiting)
            note, payload = self.queues[sender, to].pop(0)
            self.seen.append((sender, to, note, payload))
            self.send(to, self.groups[to].heard(sender, note, payload))

    def die(self, rank: int) -> None:
        del self.groups[rank]
        self.members = tuple(sorted(self.groups))
        self.version += 1
        self.queues = {pair: queue for pair, queue in self.queues.items() if rank not in pair}
        for other, group in self.groups.items():
            self.send(other, group.members_changed(self._membership(other)))


def means(rounds: Rounds, length: int):
    out = {}
    for rank, group in rounds.groups.items():
        assert group.done
        out[rank] = np.full(length, 7, np.float32)
        group.mean(out[rank])
    first = next(iter(out.values()))
    assert all(one.tobytes() == first.tobytes() for one in out.values()), "replicas differ"
    return first


@st.composite
def contributions(draw):
    members, length = draw(st.integers(3, 6)), draw(st.integers(1, 9))
    vectors = [draw(arrays(np.float32, length, elements=VALUES)) for _ in range(members)]
    return vectors, draw(st.lists(st.integers(1, 5000), min_size=members, max_size=members))


@settings(max_examples=40)
@given(contributions(), st.integers(0, 99), st.sampled_from(["ring", "halving-doubling", "tree"]))
def test_the_masked_mean_is_the_mean_within_the_step_of_the_integers(given_parts, seed, schedule) -> None:
    vectors, weights = given_parts
    rounds = Rounds(len(vectors), len(vectors[0]), seed, schedule)
    for rank, (vector, weight) in enumerate(zip(vectors, weights, strict=True)):
        rounds.begin(rank, vector, weight)
        rounds.deliver(seed % 7)
    rounds.deliver()
    exact = sum(w * v.astype(np.float64) for w, v in zip(weights, vectors, strict=True)) / sum(weights)
    found = means(rounds, len(vectors[0])).astype(np.float64)
    step = len(vectors) / (2 * SCALE * sum(weights))
    assert (np.abs(found - exact) <= step + np.abs(exact) * 2.0**-23 + 2.0**-149).all()
    assert all(group.contributors == len(vectors) and not group.withheld for group in rounds.groups.values())


@settings(max_examples=30)
@given(contributions(), st.integers(0, 10**6), st.integers(0, 40))
def test_whoever_dies_when_the_others_have_the_mean_of_those_who_are_left_or_of_all(given_parts, seed, moment) -> None:
    vectors, weights = given_parts
    if len(vectors) < 4:
        vectors, weights = [*vectors, vectors[0]], [*weights, 7]
    rounds = Rounds(len(vectors), len(vectors[0]), seed)
    for rank, (vector, weight) in enumerate(zip(vectors, weights, strict=True)):
        rounds.begin(rank, vector, weight)
    rounds.deliver(moment)
    gone = seed % len(vectors)
    rounds.die(gone)
    rounds.deliver()
    found = means(rounds, len(vectors[0])).astype(np.float64)
    of_all, of_left = [
        sum(weights[k] * vectors[k].astype(np.float64) for k in who) / sum(weights[k] for k in who)
        for who in (range(len(vectors)), rounds.members)
    ]
    assert np.allclose(found, of_all, rtol=1e-6, atol=1e-4) or np.allclose(found, of_left, rtol=1e-6, atol=1e-4)


def test_every_message_before_the_sum_is_uniformly_distributed() -> None:
    """Of vectors that are all alike, the bytes of each message of the first half of the ring are even: chi-squared."""
    length = 1 << 14
    rounds = Rounds(4, length)
    for rank in range(4):
        rounds.begin(rank, np.full(length, rank, np.float32), 8.0)
    rounds.deliver()
    pieces = [payload for _, _, note, payload in rounds.seen if note.kind == "piece" and note.numbers[1] < 3]
    assert len(pieces) >= 4 * 3
    for payload in pieces:
        counts = np.bincount(np.frombuffer(payload, np.uint8), minlength=256)
        expected = len(payload) / 256
        chi = float(((counts - expected) ** 2 / expected).sum())
        assert 255 - 6 * 22.6 < chi < 255 + 6 * 22.6, "255 degrees of freedom, within six standard deviations"
    words = np.concatenate([np.frombuffer(payload, np.uint64) for payload in pieces])
    assert len(np.unique(words)) == len(words)


def test_the_same_contribution_has_other_masks_in_another_round_and_under_another_version() -> None:
    sent = []
    rounds = Rounds(5, 64)
    for again in range(2):
        for rank in rounds.members:
            rounds.begin(rank, np.zeros(64, np.float32), 1.0)
        rounds.deliver()
        if not again:
            sent.append({payload for _, _, note, payload in rounds.seen if note.kind == "piece" and note.numbers[1] < 4})
            rounds.seen.clear()
            rounds.die(4)
    sent.append({payload for _, _, note, payload in rounds.seen if note.kind == "piece" and note.numbers[1] < 3})
    assert sent[0] and sent[1] and not sent[0] & sent[1]


@pytest.mark.parametrize("weights", [(1, 1, 0, 0), (5, 0, 0, 0), (0, 0, 0, 0)])
def test_where_fewer_than_three_give_something_nobody_gives(weights) -> None:
    rounds = Rounds(4, 2)
    for rank, weight in enumerate(weights):
        rounds.begin(rank, np.full(2, 9, np.float32), weight, ending=True, extra=(0.0, float(weight)))
    rounds.deliver()
    assert means(rounds, 2).tolist() == [7.0, 7.0], "what was there"
    for group in rounds.groups.values():
        assert group.withheld and (group.ending, group.contributors, group.extra) == (4, 4, [0.0, 0.0])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38])
def test_what_is_no_number_or_too_large_is_left_out(wrong: float) -> None:
    rounds = Rounds(4, 2)
    for rank in range(4):
        rounds.begin(rank, np.full(2, wrong if rank == 3 else rank, np.float32), 10.0)
    rounds.deliver()
    assert means(rounds, 2).tolist() == [1.0, 1.0]
    assert [group.unusable for group in rounds.groups.values()] == [0, 0, 0, 1]


@given(st.binary(max_size=40), st.sampled_from([[1.0, 1.0], [1.0, 2.0], [1.0, 0.5], [1.0], [1.0, 1.0, 1.0]]))
def test_an_offer_that_makes_no_sense_is_refused(payload: bytes, numbers: list[float]) -> None:
    rounds = Rounds(3, 2)
    rounds.begin(0, np.zeros(2, np.float32))
    rounds.deliver()
    if len(payload) == 32 and any(payload) and numbers == [1.0, 1.0]:
        return
    with pytest.raises(MalformedMessage):
        rounds.groups[0].heard(1, Note("offer", 1, 0, numbers), payload)


def test_masks_of_all_pairs_cancel() -> None:
    keys = {rank: RoundKeys() for rank in (0, 1, 4)}
    public = {rank: each.public for rank, each in keys.items()}
    total = np.zeros(3, np.uint64)
    for rank, each in keys.items():
        masked = np.full(3, rank, np.uint64)
        each.mask(masked, rank, public, (1, 7))
        total += masked
    assert total.tolist() == [5, 5, 5]


def test_a_key_of_low_order_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="a public key that is none"):
        RoundKeys().check(bytes(32))


# ------------------------------------------------------------------------------------------------------- fedavg


def wander(actor: Actor) -> int:
    actor.x += np.float32(0.25) * np.float32((actor.rank + 3 * actor.steps) % 7 - 2)
    return 1 + (actor.rank + actor.steps) % 3


@pytest.mark.parametrize("written", ["fedavg:fraction=1,steps=3", "fedavg:fraction=1,steps=1"])
def test_a_masked_run_has_the_model_of_one_without_masks(written: str) -> None:
    models = []
    for masked in ("", ",masked=on"):
        world = MethodWorld(parse(written + masked).method(), [np.zeros(3, np.float32)] * 6, seed=5, step=wander)
        world.run(30)
        world.finish()
        assert world.spread() == 0.0
        models.append(world.actors[0].x.copy())
    assert np.allclose(*models, atol=1e-5) and np.abs(models[0]).max() > 0.1


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.6, 1.0]))
def test_whatever_happens_all_end_with_the_same_bits(seed: int, lossy: bool, fraction: float) -> None:
    dice = random.Random(seed)
    method = FedAvg(fraction=fraction, steps=dice.randint(1, 4), masked=True, seed=seed)
    world = MethodWorld(method, [np.zeros(5, np.float32)] * 7, seed=seed, step=wander, lossy=lossy, hold_ups=0.03)
    for _ in range(dice.randint(0, 4)):
        world.run(dice.randint(1, 9), limit=60_000, freely=True)
        if len(world.actors) > 3 and dice.random() < 0.6:
            world.kill(dice.choice(sorted(world.actors)))
    world.finish()
    assert world.spread() == 0.0


def test_what_two_workers_alone_have_trained_waits_for_a_third_and_is_dropped_at_the_end() -> None:
    def step(actor: Actor) -> int:
        actor.x += 1.0
        return 1

    world = MethodWorld(FedAvg(fraction=1.0, steps=2, masked=True), [np.zeros(1, np.float32)] * 4, step=step)
    world.run(2)
    assert [float(actor.x[0]) for actor in world.actors.values()] == [2.0] * 4
    for rank in (2, 3):
        world.actors[rank].ended = True
    world.run(8)
    world.finish()
    assert world.spread() == 0.0 and float(world.actors[0].x[0]) == 2.0
    assert world.method.figures(world.actors[0].method_state)["withheld"] >= 1


def test_with_two_workers_left_the_run_fails_rather_than_showing_one_to_the_other() -> None:
    world = MethodWorld(FedAvg(fraction=1.0, steps=2, masked=True), [np.zeros(1, np.float32)] * 3, step=wander)
    world.run(2)
    world.kill(2)
    with pytest.raises(RunFailed, match="2 workers are left, and a masked sum takes at least 3"):
        world.run(4)


# ------------------------------------------------------------------------------------------------- rounds of clients


def test_rounds_of_clients_have_the_model_that_they_have_without_masks_and_repeat() -> None:
    found = [
        simulated(3, f"fedavg:fraction=0.5,clients=8,seed=3{more}", "--clients", "8", "--network")
        for more in ("", ",masked=on", ",masked=on")
    ]
    assert all(each.error == "" and each.identical and each.outcome is not None for each in found)
    plain, masked, again = (each.validation.chosen for each in found)
    assert masked == pytest.approx(plain, abs=1e-5)
    assert masked == again
    assert found[1].outcome.digest == found[2].outcome.digest != found[0].outcome.digest
    said = counted(found[1].workers[0])
    assert said["clients_trained"] == 2 * 4 and said["clients_lost"] == said["withheld"] == said["unusable"] == 0


def test_a_worker_that_dies_costs_its_clients_and_nothing_else() -> None:
    strategy = "fedavg:fraction=1,clients=8,masked=on"
    found = simulated(4, strategy, "--clients", "8", "--rounds", "4", faults=(Fail(1, 0.0, at_step=3),))
    assert found.error == "" and found.identical and list(found.gone) == [1]
    said = counted(found.workers[0])
    assert 1 <= said["clients_lost"] <= 2 and said["clients_trained"] == 4 * 8 - said["clients_lost"]
    assert masks_text(found.workers.values()) == "sums in which no worker saw another one's update"


def test_with_masks_and_noise_nobody_sees_a_part_that_has_only_its_own_noise() -> None:
    strategy = "fedavg:fraction=0.5,clients=8,clip=0.02,noise=0.001,seed=4"
    plain, masked = (simulated(3, strategy + more, "--clients", "8") for more in ("", ",masked=on"))
    assert masked.error == "" and masked.identical
    assert masked.validation.chosen == pytest.approx(plain.validation.chosen, abs=1e-3)
    assert counted(masked.workers[0])["noisy_rounds"] == 2


@pytest.mark.parametrize(
    ("given_settings", "told"),
    [
        ({"strategy": "fedavg:masked=on", "workers": 2}, "with 2 workers: expected at least 3"),
        ({"strategy": "fedavg:masked=on,fraction=0.2", "workers": 5}, "with 1 chosen in a round: expected at least 3"),
        ({"strategy": "fedavg:masked=on,clients=9,fraction=0.1", "workers": 5}, "with 1 chosen in a round"),
        (
            {"strategy": "fedavg:masked=on,fraction=1", "codec": "int8"},
            "codec 'int8' with fedavg:masked=on",
        ),
        ({"strategy": "fedavg:masked=on,robust=median"}, "expected one of them"),
    ],
)
def test_what_masks_do_not_go_with(given_settings: dict[str, object], told: str) -> None:
    with pytest.raises(Misuse, match=told):
        combine(**given_settings)


# -------------------------------------------------------------------------------------------------------- newcomers


def test_a_newcomer_is_given_the_last_mean_and_no_weights_of_a_worker() -> None:
    world = MethodWorld(FedAvg(fraction=1.0, steps=4, masked=True), [np.zeros(3, np.float32)] * 3, seed=2, step=wander)
    world.run(10)
    donor = world.actors[0]
    common = donor.method_state.common.copy()
    assert not np.array_equal(donor.x, common), "the donor has trained since"
    newcomer = world.actors[world.join()]
    assert np.array_equal(newcomer.x, common)
    world.run(12)
    world.finish()
    assert world.spread() == 0.0 and newcomer.method_state.rounds > 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.6, 1.0]))
def test_whoever_comes_and_goes_all_end_with_the_same_bits(seed: int, lossy: bool, fraction: float) -> None:
    dice = random.Random(seed)
    method = FedAvg(fraction=fraction, steps=dice.randint(1, 4), masked=True, seed=seed)
    world = MethodWorld(method, [np.zeros(5, np.float32)] * 5, seed=seed, step=wander, lossy=lossy, hold_ups=0.03)
    for _ in range(dice.randint(1, 5)):
        world.run(dice.randint(1, 9), limit=60_000, freely=True)
        if dice.random() < 0.6:
            world.join()
        elif len(world.actors) > 3:
            world.kill(dice.choice(sorted(world.actors)))
        if dice.random() < 0.3:  # so that rounds are withheld
            for rank in sorted(world.actors)[2:]:
                world.actors[rank].ended = True
    world.finish()
    assert world.spread() == 0.0


def test_a_worker_joins_a_masked_run() -> None:
    found = simulated(
        4, "fedavg:fraction=1,clients=8,masked=on", "--clients", "8", "--rounds", "6", faults=(Join(1, 2.0),)
    )
    assert found.error == "" and found.identical and not found.missed
    assert found.workers[4].steps > 0 and counted(found.workers[0])["unusable"] == 0
