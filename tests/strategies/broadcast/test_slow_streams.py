"""Updates over slow links: what is still under way is not sent again, and nothing is left when everybody is done."""

from __future__ import annotations

import pytest
from slow_links import SlowLink

from taut.core import events as ev
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.delivery.retransmission import PeerLink


def stream(count: int, size: int, bytes_per_s: float) -> SlowLink:
    """Two workers publish ``count`` updates each, all at once, and are done when both have drained."""
    drained: set[int] = set()

    def on_action(rank: int, action: ev.Action) -> None:
        if isinstance(action, ev.Include):
            link.tell(rank, ev.Taken({action.origin: action.hi}))
        elif isinstance(action, ev.Drained):
            drained.add(rank)

    link = SlowLink(Broadcast(merge=b"".join), bytes_per_s, on_action=on_action)
    for rank in (0, 1):
        for _ in range(count):
            link.tell(rank, ev.Published(bytes(size)))
        link.tell(rank, ev.Ended())
    link.until(lambda: drained == {0, 1}, 1e4)
    return link


@pytest.mark.parametrize("kbit", [64, 256, 1_000, 10_000])
@pytest.mark.parametrize(("count", "size"), [(3, 2_000), (9, 15_000), (11, 75_000), (4, 600_000)])
def test_updates_take_about_as_long_as_their_bytes(kbit: int, count: int, size: int) -> None:
    """Two workers at 1 Mbit/s sent 11 updates of 75 kB four times over, and were still at it while the model, which is
    handed in next, went the same way."""
    bytes_per_s = 125.0 * kbit
    link = stream(count, size, bytes_per_s)
    least_s = count * size / bytes_per_s
    for rank in (0, 1):
        assert link.sent[rank, "Updates"] < 1.02 * count * size + 1_000, link.sent
    assert link.now < 1.1 * least_s + 0.5


def test_the_deadline_stays_as_patience_made_it_until_what_was_sent_last_is_confirmed() -> None:
    link = PeerLink()
    link.resume(0)
    for position, now in ((1, 0.0), (2, 0.1)):
        link.advance(position, 20_000, now)
    link.send_again()
    link.patience = 2
    link.advance(2, 40_000, now=5.0)
    link.confirmed(1, 20_000, fresh=False, now=5.5)
    assert (link.patience, link.rtt_s) == (2, None), "of the first copy, which came late"
    link.confirmed(2, 20_000, fresh=True, now=9.5)
    assert (link.patience, link.rtt_s) == (1, 4.0)
