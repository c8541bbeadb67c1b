"""Channels over slow links: what is still under way is not sent again, so a run at 64 kbit/s ends."""

from __future__ import annotations

import pytest

from taut.core import events as ev
from taut.core.messages import Note
from taut.strategies.delivery.channels import Channels
from taut.transport.framing import encode, nbytes

TICK_S = 0.05


def exchange(rounds: int, size: int, bytes_per_s: float, latency_s: float = 0.01) -> tuple[float, int]:
    """Two workers post ``size`` bytes to each other, again when they have the other's; return how long it took, and how
    many bytes went over the slower link."""
    channels = Channels()
    states = [channels.start(rank, True) for rank in (0, 1)]
    wire: list[tuple[float, int, ev.Event]] = []
    free_s, sent, heard, now = [0.0, 0.0], [0, 0], [0, 0], 0.0

    def tell(rank: int, event: ev.Event) -> None:
        for action in channels.on(states[rank], event, now):
            if isinstance(action, ev.Heard):
                heard[rank] += 1
                if heard[rank] < rounds:
                    tell(rank, ev.Tell(1 - rank, Note("mean", 0, 0), bytes(size)))
                continue
            assert isinstance(action, ev.Send)
            frames = encode(action.message, action.payloads)
            sent[rank] += nbytes(frames)
            free_s[rank] = max(now, free_s[rank]) + nbytes(frames) / bytes_per_s
            wire.append((free_s[rank] + latency_s, 1 - rank, ev.Arrived(rank, action.message, list(frames[1:]))))

    for rank in (0, 1):
        tell(rank, ev.PeerJoined(1 - rank))
        tell(rank, ev.Tell(1 - rank, Note("mean", 0, 0), bytes(size)))
    while min(heard) < rounds and now < 1e4:
        now += TICK_S
        for item in sorted((item for item in wire if item[0] <= now), key=lambda item: item[0]):
            wire.remove(item)
            tell(item[1], item[2])
        for rank in (0, 1):
            tell(rank, ev.Tick())
    return now, max(sent)


@pytest.mark.parametrize("kbit", [64, 256, 1_000, 10_000])
@pytest.mark.parametrize("size", [2_000, 240_000, 2_400_000])
def test_a_round_takes_about_as_long_as_its_bytes(kbit: int, size: int) -> None:
    rounds, bytes_per_s = 6, 125.0 * kbit
    took_s, sent = exchange(rounds, size, bytes_per_s)
    assert sent < 2.5 * rounds * size + 4_000
    assert took_s < 2.6 * rounds * size / bytes_per_s + 2.0
