"""Which clients are drawn for a round, and which worker trains them; and what does not go with clients."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.config import resolve
from taut.errors import Misuse
from taut.simulator.scenario import Scenario
from taut.simulator.timing.simulation import simulate_timing
from taut.strategies import parse
from taut.strategies.api import Local, Membership
from taut.strategies.compatibility import combine
from taut.strategies.periodic.client_rounds import dealt, drawn_clients
from taut.strategies.periodic.fedavg import FedAvg
from taut.topologies import parse as parse_topology


@given(
    st.integers(1, 300),
    st.floats(0.001, 1.0),
    st.integers(0, 9),
    st.integers(0, 50),
    st.sets(st.integers(0, 40), min_size=1),
)
def test_every_drawn_client_is_one_workers_and_all_workers_have_equally_many(
    clients: int, fraction: float, seed: int, round: int, ranks: set[int]
) -> None:
    drawn, members = drawn_clients(clients, fraction, seed, round), sorted(ranks)
    assert len(set(drawn)) == len(drawn) == max(1, int(fraction * clients + 0.5)) and set(drawn) <= set(range(clients))
    shares = [dealt(drawn, members, rank) for rank in members]
    assert sorted(client for share in shares for client in share) == list(drawn)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


class Weights(Local):
    """A worker's two weights."""

    def __init__(self) -> None:
        self.x = np.zeros(2, np.float32)


def test_a_newcomer_trains_no_client_before_it_has_a_rounds_mean() -> None:
    method = FedAvg(clients=6, fraction=1.0)
    state = method.start(Membership(0, (0,), parse_topology("complete"), 1), Weights())
    assert method.round_of(state).mine == tuple(range(6)), "one of the first workers"
    state.group.founder = False
    assert method.round_of(state).mine == () and method.round_of(state).drawn == tuple(range(6))
    state.rounds = 1
    assert method.round_of(state).mine == tuple(range(6))


def test_over_many_rounds_all_clients_are_drawn_alike() -> None:
    times = [0] * 20
    for round in range(2000):
        for client in drawn_clients(20, 0.25, 1, round):
            times[client] += 1
    assert all(400 < count < 600 for count in times)


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("fedavg:clients=6,samples=9", "fedavg:clients=6,samples=9: expected clients, or the other"),
        ("fedavg:clients=6,robust=median,fraction=1", "fedavg:clients=6,robust=median: expected clients, or the other"),
        ("fedavg:clients=-1", "clients=-1"),
    ],
)
def test_what_does_not_go_with_clients(strategy: str, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        parse(strategy)


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ("sync", "--clients 9 with strategy sync: expected fedavg"),
        ("fedavg:clients=8", "expected the same number"),
        ("fedavg for 9 steps, then fedavg", "expected fedavg"),
    ],
)
def test_clients_go_with_fedavg_alone(strategy: str, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        resolve({"strategy": strategy, "clients": 9}, environ={}, cwd="/nowhere").fitted()


def test_clients_are_a_setting_of_fedavg_and_choose_it() -> None:
    def fitted(**flags: object) -> str:
        return resolve(flags, environ={}, cwd="/nowhere").fitted().strategy

    assert fitted(clients=9) == "fedavg:clients=9"
    assert fitted(clients=9, strategy="fedavg:clients=9,fraction=1") == "fedavg:fraction=1.0,clients=9"


def test_clients_cannot_be_simulated_where_only_time_is() -> None:
    with pytest.raises(Misuse, match="where only time is simulated"):
        simulate_timing(Scenario(strategy="fedavg:clients=9", workers=2))


@given(st.integers(0, 5), st.integers(0, 100))
def test_for_an_accountant_each_client_is_drawn_by_itself(seed: int, round: int) -> None:
    some = drawn_clients(50, 0.3, seed, round, poisson=True)
    assert set(some) <= set(range(50)) and list(some) == sorted(set(some))
    assert set(drawn_clients(20, 0.3, seed, round, poisson=True)) == {client for client in some if client < 20}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("clip=0", "fedavg:clip=0: expected a number above 0"),
        ("noise=1", "fedavg:noise=1 without clip: expected clip=1, say"),
        ("clip=1,noise=-1", "fedavg:noise=-1: expected a number from 0 up"),
        ("clip=1,noise=1,delta=1", "fedavg:delta=1: expected a number between 0 and 1"),
    ],
)
def test_what_privacy_needs(settings: str, told: str) -> None:
    with pytest.raises(Misuse, match=told):
        parse(f"fedavg:clients=9,{settings}")


def test_clipping_needs_clients_and_noise_whole_updates_and_workers_that_stay() -> None:
    with pytest.raises(Misuse, match="fedavg:clip=1 without clients"):
        combine("fedavg:clip=1", workers=2)
    with pytest.raises(Misuse, match="codec 'int8' with fedavg:noise=1: expected dense"):
        combine("fedavg:clients=9,clip=1,noise=1", codec="int8")
    assert not combine("fedavg:clients=9,clip=1,noise=1").admits_late and combine("fedavg:clients=9,clip=1").admits_late
