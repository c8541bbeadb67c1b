"""Workers that drew their split without a seed have different samples, and are told."""

from __future__ import annotations

import pytest
from scripted import Scripted

from taut.core.messages import Expulsion, Lease, LeaseRequest


def ask(samples: int, until: int = 3) -> LeaseRequest:
    return LeaseRequest(0, 1000, 10, last=True, until=until, samples=samples)


@pytest.mark.parametrize(
    ("drawn", "wrong"),
    [
        ([7, 7, 7], []),
        ([0, 0, 0], []),  # whole data sets
        ([7, 7, 8], [2]),
        ([8, 7, 7], [0]),  # who asks first does not decide
        ([7, 8, 9], [0, 1, 2]),
        ([7, 8], [0, 1]),
    ],
)
def test_most_workers_decide_which_samples_are_right(drawn: list[int], wrong: list[int]) -> None:
    run = Scripted(workers=len(drawn))
    run.train(*range(len(drawn)))
    for rank, samples in enumerate(drawn):
        run.say(rank, ask(samples))
    told = {rank: run.heard(rank, Expulsion) for rank in range(len(drawn))}
    assert [rank for rank, expulsions in told.items() if expulsions] == wrong
    assert all("random_split" in one.reason for expulsions in told.values() for one in expulsions)
    assert all(run.heard(rank, Lease) for rank in range(len(drawn)) if rank not in wrong)


def test_other_passes_may_have_other_samples() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, ask(7, until=3))
    run.say(1, ask(8, until=4))  # it is at the next loop of the script already
    assert not run.heard(0, Expulsion) and not run.heard(1, Expulsion)
    run.say(0, ask(8, until=4))
    assert not run.heard(0, Expulsion) and not run.heard(1, Expulsion)


def test_a_latecomer_with_other_samples_is_turned_away() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.say(0, ask(7))
    run.train(1)
    run.say(1, ask(8))
    assert run.heard(1, Expulsion)
    assert not run.heard(0, Expulsion)
