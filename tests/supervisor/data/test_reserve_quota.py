"""How much of which pass is for whom: of passes that nobody has come to everything, whoever comes and goes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import LeaseRequest, Reserve
from taut.core.sample_ranges import count
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserve_quota import PASSES_AHEAD, ReserveQuota
from taut.supervisor.data.reserves import Reserves


def one_pass(number: int, length: int = 400, batch: int = 10) -> LeaseRequest:
    return LeaseRequest(number, length, batch, last=False, until=number + 1)


@given(st.integers(1, 5000), st.integers(1, 64), st.lists(st.floats(1.0, 1e4), min_size=1, max_size=9))
def test_of_a_pass_that_nobody_has_come_to_every_batch_is_for_one_worker(
    length: int, batch: int, speeds: list[float]
) -> None:
    ask = one_pass(0, length, batch)
    rates = {rank: speed * length for rank, speed in enumerate(speeds)}  # the next pass is within two minutes for all
    sharing = ReserveQuota.of(dict.fromkeys(rates, ask), rates, {0: length}, [length])
    shares = [sharing.shares(rank, ask).get(1, 0) for rank in rates]
    assert all(share >= 0 and share % batch == 0 for share in shares)
    assert sum(shares) == -(-length // batch) * batch


def told(reserves: Reserves, ranks: int, now: float) -> dict[int, Reserve]:
    """What is offered to so many equal workers in the first pass; they see it at once."""
    offers = reserves.balance(dict.fromkeys(range(ranks), one_pass(0)), dict.fromkeys(range(ranks), 100.0), now)
    for rank, offer in offers.items():
        reserves.seen(rank, offer.version)
    return offers


def test_a_newcomer_has_its_share_of_passes_that_were_set_aside_before_it_came() -> None:
    leases = Leases()
    reserves = Reserves(leases)
    leases.request(0, 0, 400, batch=10, live_workers=3)
    told(reserves, 3, 0.0)
    assert not [epoch for epoch in range(1, PASSES_AHEAD) if leases.passes[epoch].left], "everything is set aside"
    told(reserves, 4, 1.0)  # the others give up a part,
    told(reserves, 4, 2.0)  # which is for the newcomer
    for epoch in range(1, PASSES_AHEAD):
        mine = [count(span for span in leases.reserved[rank] if span[0] == epoch) for rank in range(4)]
        assert sum(mine) == 400 and min(mine) >= 80, mine


def test_of_different_lengths_none_is_expected() -> None:
    ask = one_pass(2)
    sharing = ReserveQuota.of({0: ask}, {0: 10.0}, {2: 400}, [400, 50])
    assert set(sharing.shares(0, ask)) == {2}
