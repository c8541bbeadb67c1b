"""When what was not acknowledged is sent again: the deadline follows the path, and patience does not become despair."""

from __future__ import annotations

import random

from hypothesis import example, given
from hypothesis import strategies as st

from taut.strategies.delivery.retransmission import INITIAL_RTO_S, MOST_PATIENCE, MOST_WAIT_S, PeerLink, deadline_s

seconds = st.floats(0.001, 500.0)


@given(st.lists(seconds, max_size=20), seconds)
@example([3.66], 0.3)  # the plain mean deviation moves the deadline from 11 s to 12
def test_a_deadline_comes_down_with_the_round_trip_and_never_goes_up_for_it(before: list[float], now_s: float) -> None:
    link = PeerLink()
    for rtt_s in before:
        link.measure(rtt_s)
    for _ in range(100):
        was_s, sooner = link.rto_s, link.rtt_s is not None and now_s <= link.rtt_s
        link.measure(now_s)
        assert not sooner or link.rto_s <= was_s
    assert max(INITIAL_RTO_S, now_s) * 0.99 <= link.rto_s <= max(INITIAL_RTO_S, now_s * 1.01)


@given(st.floats(0.0, 1.0), st.floats(1.0, 100.0), st.integers(0, 2**32))
def test_few_round_trips_miss_a_deadline(slow: float, times: float, seed: int) -> None:
    """What comes later than the deadline is sent twice for nothing: most do not, on a path of two speeds."""
    link, late, dice = PeerLink(), 0, random.Random(seed)
    for _ in range(400):
        rtt_s = (times if dice.random() < slow else 1.0) * dice.uniform(1.0, 2.0)
        late += link.rtt_s is not None and rtt_s > link.rto_s
        link.measure(rtt_s)
    assert late <= 400 / 6


@given(seconds, st.integers(1, MOST_PATIENCE))
def test_patience_waits_longer_up_to_a_bound(once_s: float, patience: int) -> None:
    waits_s = [deadline_s(once_s, times) for times in range(1, patience + 1)]
    assert waits_s == sorted(waits_s) and waits_s[0] == once_s
    assert waits_s[-1] <= max(2 * once_s, MOST_WAIT_S)
    assert patience == 1 or waits_s[-1] >= min(2 * once_s, MOST_WAIT_S)
