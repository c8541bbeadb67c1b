"""Noise in federated rounds, with the accountant: `make test-privacy`."""

from __future__ import annotations

import math

import pytest
from clients_runs import simulated

from taut.simulator.faults import Fail
from taut.strategies.periodic.client_rounds import drawn_clients
from taut.supervisor.metrics import counted, privacy_text
from taut.worker.clients.accountant import epsilon


def test_epsilon_of_one_round_is_that_of_the_gaussian_mechanism() -> None:
    """Balle and Wang 2018, theorem 8: delta as a function of epsilon, with sensitivity 1."""

    def phi(t: float) -> float:
        return 0.5 * math.erfc(-t / math.sqrt(2))

    for z in (0.5, 1.0, 4.0):
        e = epsilon({z: 1}, 1.0, 1e-5)
        delta = phi(0.5 / z - e * z) - math.exp(e) * phi(-0.5 / z - e * z)
        assert delta == pytest.approx(1e-5, rel=0.02)


def test_more_noise_fewer_clients_and_fewer_rounds_give_a_smaller_epsilon() -> None:
    reference = epsilon({1.0: 10}, 0.1, 1e-5)
    assert epsilon({2.0: 10}, 0.1, 1e-5) < reference < epsilon({1.0: 20}, 0.1, 1e-5)
    assert epsilon({1.0: 10}, 0.05, 1e-5) < reference < epsilon({1.0: 9, 0.7: 1}, 0.1, 1e-5)


def test_the_model_moves_by_the_clipped_sum_over_the_expected_number_and_epsilon_is_reported() -> None:
    strategy = "fedavg:fraction=0.5,clients=6,clip=0.02,noise=0.001,seed=4"
    found = simulated(2, strategy, "--rounds", "3")
    assert found.error == "" and found.identical and found.validation is not None and found.outcome is not None
    drawn = [drawn_clients(6, 0.5, 4, number, poisson=True) for number in range(3)]
    moved = sum(min(0.02, 0.01 * (k + 1) ** 2) for clients in drawn for k in clients) / 3
    assert found.validation.chosen == pytest.approx(1.0 - moved, abs=1e-3)
    said = counted(found.workers[0])
    assert said["noisy_rounds"] == 3 and said["clients_trained"] == sum(map(len, drawn))
    assert said["epsilon"] == pytest.approx(epsilon({0.001: 3}, 0.5, 1e-5), rel=1e-3)
    assert "for delta 1e-05, for each client, against who sees the models of 3 rounds" in privacy_text(
        found.workers.values()
    )


def test_a_worker_that_dies_takes_its_noise_along_and_epsilon_says_so() -> None:
    strategy = "fedavg:fraction=1,clients=6,clip=1,noise=2"
    whole = simulated(3, strategy, "--rounds", "2")
    found = simulated(3, strategy, "--rounds", "2", faults=(Fail(1, 0.0, at_step=8),))
    assert found.error == "" and found.identical and list(found.gone) == [1]
    more = counted(found.workers[0])["epsilon"]
    assert more > counted(whole.workers[0])["epsilon"]
    assert more == pytest.approx(epsilon({2 * math.sqrt(2 / 3): 1, 2.0: 1}, 1.0, 1e-5), rel=1e-3)


def test_statistics_of_batch_norm_are_refused_since_no_noise_is_added_to_them() -> None:
    found = simulated(1, "fedavg:clients=6,clip=1,noise=1", "--network")
    assert found.outcome is not None and "torch.nn.GroupNorm instead of BatchNorm" in str(found.outcome.failures)
