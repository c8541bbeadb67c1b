"""Clients that outnumber the workers: whole runs in virtual time, with deaths, newcomers and drop-outs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from taut.simulator.faults import Fail, Join, Pause
from taut.simulator.models.links import Link, Links
from taut.simulator.models.speeds import Speeds
from taut.simulator.result import Simulated
from taut.simulator.scenario import Scenario
from taut.simulator.script.run import simulate_script
from taut.strategies.periodic.client_rounds import drawn_clients

JOB = str(Path(__file__).parent / "clients_job.py")


def simulated(workers: int, strategy: str, *args: str, **more: object) -> Simulated:
    given = {"speeds": Speeds(step_s=0.1), "links": Links(Link(1e9, 1e-4))} | more
    return simulate_script(
        Scenario(script=JOB, workers=workers, strategy=strategy, args=args, **given),  # type: ignore[arg-type]
        limit_s=600.0,
    )


def weight(found: Simulated) -> float:
    assert found.error == "" and found.identical and found.validation is not None
    assert found.validation.chosen is not None
    return found.validation.chosen


def counted(found: Simulated, rank: int = 0) -> dict[str, float]:
    return {
        name: float(value) for name, _, value in (each.partition("=") for each in found.workers[rank].counted.split())
    }


def moved(drawn: tuple[int, ...], without: tuple[int, ...] = ()) -> float:
    """What a round moves the one weight by: client k makes k + 1 steps, and has as many tens of samples."""
    sizes = [k + 1 for k in drawn if k not in without]
    return sum(-0.01 * n * n * n for n in sizes) / sum(sizes)


def test_with_one_client_per_worker_it_is_fedavg_as_without_clients_bit_by_bit() -> None:
    args = ("--equal", "--rounds", "3", "--epochs", "1", "--clients", "3")
    rounds = simulated(3, "fedavg:fraction=1,clients=3", *args)
    plain = simulated(3, "fedavg:fraction=1,steps=2", *args, "--own")
    assert rounds.identical and plain.identical and rounds.outcome is not None and plain.outcome is not None
    assert rounds.outcome.digest == plain.outcome.digest


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_a_round_is_the_mean_of_its_clients_by_their_samples_however_many_workers_there_are(workers: int) -> None:
    found = simulated(workers, "fedavg:fraction=0.5,clients=6,seed=3")
    rounds = [drawn_clients(6, 0.5, 3, number) for number in range(2)]
    assert weight(found) == pytest.approx(1.0 + sum(map(moved, rounds)), abs=1e-6)
    assert sum(each.samples for each in found.workers.values()) == sum(10 * (k + 1) for drawn in rounds for k in drawn)
    assert counted(found) | {"clients_trained": 6.0, "clients_lost": 0.0} == counted(found)


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    digests = []
    for seed in (1, 1, 2):
        found = simulated(2, f"fedavg:fraction=0.5,clients=6,seed={seed}", "--network", "--epochs", "2")
        assert found.identical and found.outcome is not None
        digests.append(found.outcome.digest)
    assert digests[0] == digests[1] != digests[2]


def test_more_workers_than_drawn_clients() -> None:
    found = simulated(4, "fedavg:fraction=0.1,clients=6,seed=5", "--rounds", "3")
    assert weight(found) == pytest.approx(1.0 + sum(moved(drawn_clients(6, 0.1, 5, one)) for one in range(3)), abs=1e-6)


def test_a_client_that_is_dropped_does_not_count() -> None:
    found = simulated(2, "fedavg:fraction=1,clients=6", "--rounds", "1", "--drop", "4")
    assert weight(found) == pytest.approx(1.0 + moved(tuple(range(6)), without=(4,)), abs=1e-6)
    assert counted(found)["clients_lost"] == 1


def test_a_worker_that_dies_costs_its_clients_of_that_round() -> None:
    found = simulated(3, "fedavg:fraction=1,clients=6", "--rounds", "4", faults=(Fail(1, 0.0, at_step=3),))
    assert found.error == "" and found.identical and list(found.gone) == [1]
    lost = counted(found)["clients_lost"]
    assert 1 <= lost <= 2, "it had two clients in the first round"
    assert counted(found)["clients_trained"] == 4 * 6 - lost
    assert found.workers[0].own_passes == found.workers[0].own_wanted == 4


def test_a_worker_that_comes_in_mid_run_takes_its_share_of_the_clients() -> None:
    found = simulated(2, "fedavg:fraction=1,clients=6", "--rounds", "8", "--equal", faults=(Join(1, 2.0),))
    assert found.error == "" and found.identical and found.workers[2].samples > 0
    assert counted(found)["clients_trained"] + counted(found)["clients_lost"] >= 8 * 6


@pytest.mark.parametrize(
    ("strategy", "args", "told"),
    [
        (
            "independent",
            (),
            "worker.rounds under independent: expected the strategy fedavg, and how many clients there are",
        ),
        ("fedavg", (), "worker.rounds under fedavg: expected"),
        ("fedavg:clients=6", ("--leased",), "worker.batches with --clients 6: expected worker.rounds"),
        ("fedavg:clients=6", ("--rounds", "0"), "worker.rounds(..., rounds=0): expected a whole number of at least 1"),
    ],
)
def test_what_is_refused(strategy: str, args: tuple[str, ...], told: str) -> None:
    found = simulated(1, strategy, *args)
    assert found.outcome is not None and told in str(found.outcome.failures)


def test_a_run_that_is_drained_in_a_round_ends_with_the_mean_of_the_last_one() -> None:
    found = simulated(1, "fedavg:fraction=1,clients=6", "--rounds", "99", steps=2 * 21 + 5)
    assert weight(found) == pytest.approx(1.0 + 2 * moved(tuple(range(6))), abs=1e-6)


def test_the_example_trains_clients_of_few_labels() -> None:
    example = Path(__file__).parents[3] / "examples" / "federated.py"
    args = ("--rounds", "3", "--clients", "20")
    found = simulate_script(
        Scenario(script=str(example), workers=2, strategy="fedavg:fraction=0.3,clients=20", args=args)
    )
    assert found.error == "" and found.identical
    assert counted(found)["clients_trained"] == 3 * 6


def test_a_clip_that_no_update_reaches_and_no_noise_are_the_identity() -> None:
    plain, clipped = (
        simulated(2, f"fedavg:fraction=0.5,clients=6{more}", "--network") for more in ("", ",clip=1e9,noise=0")
    )
    assert plain.outcome is not None and clipped.outcome is not None and plain.outcome.digest == clipped.outcome.digest


def test_no_client_moves_the_mean_by_more_than_the_clip() -> None:
    found = simulated(2, "fedavg:fraction=1,clients=6,clip=0.02", "--rounds", "1")
    shares = [(k + 1, min(0.02, 0.01 * (k + 1) ** 2)) for k in range(6)]
    assert weight(found) == pytest.approx(1.0 - sum(n * moved for n, moved in shares) / 21, abs=1e-6)


@pytest.mark.skipif(find_spec("dp_accounting") is not None, reason="the package is here")
def test_noise_without_an_accountant_is_refused() -> None:
    found = simulated(1, "fedavg:clients=6,clip=1,noise=1")
    assert found.outcome is not None and "pip install 'taut[privacy]'" in str(found.outcome.failures)


def test_a_worker_that_was_given_up_in_a_round_comes_back_for_later_ones() -> None:
    found = simulated(3, "fedavg:fraction=1,clients=6", "--rounds", "30", "--equal", faults=(Pause(1, 2.05, for_s=15.0),))
    assert found.error == "" and found.identical and list(found.gone) == [1]
    back = found.workers[3]
    assert back.samples > 0 and back.own_passes == 30
    known = counted(found)
    assert 0 < known["clients_lost"] <= 6 and known["clients_trained"] + known["clients_lost"] >= 30 * 6
