"""Channels over slow links: what is still under way is not sent again, so a run at 64 kbit/s ends."""

from __future__ import annotations

import pytest
from slow_links import SlowLink

from taut.core import events as ev
from taut.core.messages import Note
from taut.strategies.delivery.channels import Channels
from taut.strategies.delivery.path_rate import SPAN_S


def exchange(rounds: int, size: int, bytes_per_s: float) -> SlowLink:
    """Two workers post ``size`` bytes to each other, again when they have the other's, until both have all of it."""
    heard = [0, 0]

    def post(rank: int) -> None:
        link.tell(rank, ev.Tell(1 - rank, Note("mean", 0, 0), bytes(size)))

    def on_action(rank: int, action: ev.Action) -> None:
        assert isinstance(action, ev.Heard)
        heard[rank] += 1
        if heard[rank] < rounds:
            post(rank)

    link = SlowLink(Channels(), bytes_per_s, on_action=on_action)
    for rank in (0, 1):
        post(rank)
    link.until(lambda: min(heard) == rounds, 1e4)
    return link


@pytest.mark.parametrize("kbit", [64, 256, 1_000, 10_000])
@pytest.mark.parametrize("size", [2_000, 240_000, 2_400_000])
def test_a_round_takes_about_as_long_as_its_bytes(kbit: int, size: int) -> None:
    rounds, bytes_per_s = 6, 125.0 * kbit
    link = exchange(rounds, size, bytes_per_s)
    assert max(link.total(rank) for rank in (0, 1)) < 1.1 * rounds * size + 4_000, link.sent
    assert link.now < 1.1 * rounds * size / bytes_per_s + 0.2 * rounds


@pytest.mark.parametrize("kbit", [256, 10_000])
def test_what_a_broken_connection_lost_is_sent_again_soon(kbit: int) -> None:
    """All that was sent within a second is lost, and nothing comes after it that would show the gap."""
    bytes_per_s, heard = 125.0 * kbit, [0]

    def on_action(_rank: int, action: ev.Action) -> None:
        heard[0] += isinstance(action, ev.Heard)

    link = SlowLink(Channels(), bytes_per_s, on_action=on_action, lost=lambda _, now: 60.0 <= now < 61.0)
    for count in range(1, 4):
        link.tell(0, ev.Tell(1, Note("mean", 0, 0), bytes(60_000)))
        link.until(lambda count=count: heard[0] == count, 60.0)
    link.until(lambda: link.now >= 60.0, 70.0)
    link.tell(0, ev.Tell(1, Note("mean", 0, 0), bytes(60_000)))
    link.until(lambda: heard[0] == 4, 90.0)
    assert link.now < 60.0 + 8 * max(SPAN_S, 60_000 / bytes_per_s)


@pytest.mark.parametrize("kbit", [64, 10_000])
def test_a_message_of_the_longest_length_is_taken_however_it_is_cut(kbit: int) -> None:
    """Small parts of a slow path must not make a message longer than is allowed."""
    size, heard = 1 << 20, list[int]()

    def on_action(_rank: int, action: ev.Action) -> None:
        assert isinstance(action, ev.Heard)
        heard.append(len(action.payload))

    link = SlowLink(Channels(limit_nbytes=size), 125.0 * kbit, on_action=on_action)
    link.tell(0, ev.Tell(1, Note("mean", 0, 0), bytes(size)))
    link.until(lambda: bool(heard), 1e4)
    assert heard == [size]
