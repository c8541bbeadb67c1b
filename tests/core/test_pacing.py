"""A bulk transfer over links of any speed: heartbeats behind it are not late, and a fast link is used."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.pacing import FIRST_NBYTES, LEAST_NBYTES, LONG_S, MOST_NBYTES, Window


def send_all(total: int, bytes_per_s: float, latency_s: float, busy_s: float = 0.0) -> tuple[float, float]:
    """Send ``total`` bytes over a link, as the window allows; return how long it took, and how long a heartbeat would
    have waited at most behind what was under way. ``busy_s``: what an answer takes, after the first second."""
    window, now, free_s, longest_s = Window(1 << 20), 0.0, 0.0, 0.0
    arrivals: list[tuple[float, int]] = []  # of the receiver's word, and how far it is then
    while window.done < total:
        while window.offset < total and window.room:
            part = min(window.part_nbytes, total - window.offset)
            window.sent(part, now)
            free_s = max(free_s, now) + part / bytes_per_s
            arrivals.append((free_s + 2 * latency_s + (busy_s if now > 1.0 else 0.0), window.offset))
        longest_s = max(longest_s, free_s - now)
        now, done = arrivals.pop(0)
        window.seen(done, now)
    return now, longest_s


@pytest.mark.parametrize("kbit", [64, 256, 1_000, 10_000, 100_000, 10_000_000])
def test_a_heartbeat_waits_for_little_and_the_link_is_used(kbit: int) -> None:
    bytes_per_s = kbit * 125.0
    total = int(max(200_000, 20 * bytes_per_s))
    took_s, longest_s = send_all(total, bytes_per_s, latency_s=0.005)
    slow_s = LEAST_NBYTES / bytes_per_s
    assert longest_s <= max(2 * LONG_S, 2 * slow_s, FIRST_NBYTES / bytes_per_s)
    assert took_s < 1.25 * total / bytes_per_s + 0.5


@pytest.mark.parametrize("latency_s", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("kbit", [256, 1_000, 10_000, 100_000])
def test_a_far_link_is_used_as_a_near_one(kbit: int, latency_s: float) -> None:
    """By the whole time that a part took, a round trip of 0.6 s looked like a long queue: 10 Mbit/s carried a 23rd."""
    bytes_per_s = kbit * 125.0
    total = int(60 * bytes_per_s)
    took_s, longest_s = send_all(total, bytes_per_s, latency_s)
    assert took_s < 2.5 * total / bytes_per_s
    assert longest_s <= max(3 * LONG_S, FIRST_NBYTES / bytes_per_s)


@pytest.mark.parametrize("kbit", [1_000, 10_000, 100_000])
def test_a_receiver_that_has_much_to_do_is_not_taken_for_a_full_link(kbit: int) -> None:
    """A smaller window does not help there."""
    bytes_per_s = kbit * 125.0
    total = int(60 * bytes_per_s)
    took_s, _ = send_all(total, bytes_per_s, latency_s=0.005, busy_s=0.6)
    assert took_s < 4 * total / bytes_per_s


@given(st.integers(1, 3_000_000), st.floats(1e3, 1e10), st.floats(0.0, 0.5))
def test_every_transfer_ends_and_the_window_keeps_its_bounds(total: int, bytes_per_s: float, latency_s: float) -> None:
    took_s, _ = send_all(total, bytes_per_s, latency_s)
    assert took_s >= 0.999 * total / bytes_per_s


def test_a_token_bucket_does_not_pass_for_a_fast_link() -> None:
    """16 KiB at once, then 256 kbit/s: what is under way is soon no more than a second's worth."""
    window, now, tokens, free_s, longest_s = Window(1 << 20), 0.0, 16 << 10, 0.0, 0.0
    arrivals: list[tuple[float, int]] = []
    while window.done < 400_000:
        while window.room:
            part = window.part_nbytes
            window.sent(part, now)
            at_once, tokens = min(tokens, part), max(0, tokens - part)
            free_s = max(free_s, now) + (part - at_once) / 32_000.0
            arrivals.append((free_s + 0.01, window.offset))
        longest_s = max(longest_s, free_s - now)
        now, done = arrivals.pop(0)
        window.seen(done, now)
    assert longest_s < 3.0, "a worker is given up after 4.8 s of silence"
    assert window.nbytes <= 32_000


@given(st.lists(st.tuples(st.integers(0, 1 << 30), st.floats(0.0, 100.0))))
def test_what_the_receiver_says_is_never_believed_beyond_what_was_sent(words: list[tuple[int, float]]) -> None:
    window = Window(1 << 20)
    for done, later_s in words:
        window.sent(window.part_nbytes, 0.0)
        window.seen(done, later_s)
        assert window.done <= window.offset
        assert LEAST_NBYTES <= window.nbytes <= MOST_NBYTES
