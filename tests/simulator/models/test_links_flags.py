"""How machines and their network are written on the command line, and what is said to what cannot be read."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.quantities import parse_duration, parse_rate
from taut.simulator.flags import parse_links, parse_shared, parse_size, parse_speed, parse_straggler
from taut.simulator.models.links import Link, Links, Shared


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30s", 30.0), ("5m", 300.0), ("200us", 0.0002), ("20 ms", 0.02), ("1e3ns", 1e-6), ("0s", 0.0), (".5H", 1800.0)],
)
def test_durations(written: str, seconds: float) -> None:
    assert parse_duration(written) == seconds


@pytest.mark.parametrize(
    ("written", "bits_per_s"),
    [("1gbit", 1e9), ("2.5Gbit/s", 2.5e9), ("100 mbit", 1e8), ("56kbit", 56e3), ("9600bit", 9600.0), ("inf", math.inf)],
)
def test_rates(written: str, bits_per_s: float) -> None:
    assert parse_rate(written) == bits_per_s


@given(st.integers(1, 10**6))
def test_whole_microseconds_are_read_exactly(us: int) -> None:
    assert round(parse_duration(f"{us}us") * 1e9) == us * 1000
    assert parse_duration(f"{us}us") == us / 1e6


def test_the_example_of_the_manual() -> None:
    links = parse_links(["1gbit,200us", "3:10mbit,20ms,jitter=2ms,loss=0.001", "0-1:100mbit"])
    assert links == Links(Link(1e9, 200e-6), {3: Link(1e7, 0.02, 0.002, 0.001)}, {(0, 1): Link(1e8)})


def test_what_is_not_said_of_a_worker_is_as_for_all_whatever_the_order() -> None:
    links = parse_links(["2..3:20ms", "1gbit,200us,burst=64kb", "5:10mbit"])
    all_of_it = {"bits_per_s": 1e9, "burst_nbytes": 64_000}
    assert links.of_worker[2] == links.of_worker[3] == Link(latency_s=0.02, **all_of_it)  # type: ignore[arg-type]
    assert links.of_worker[5] == Link(1e7, 200e-6, burst_nbytes=64_000)
    assert links.default == Link(latency_s=200e-6, **all_of_it)  # type: ignore[arg-type]


def test_no_words_are_an_ideal_network() -> None:
    assert parse_links([]) == Links()


def test_keys_and_percentages() -> None:
    assert parse_links(["1gbit,congestion=bbr"]).default.congestion == "bbr"
    assert parse_links(["latency=1ms,rate=1gbit,loss=0.1%"]).default == Link(1e9, 0.001, loss=0.001)


def test_shared() -> None:
    assert parse_shared("0..7:1gbit") == Shared(frozenset(range(8)), 1e9)
    assert parse_shared("0,2,5..6:1gbit") == Shared(frozenset({0, 2, 5, 6}), 1e9)
    assert parse_shared("all:10gbit") == Shared(frozenset(), 1e10)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["0mbit"], "above zero"),
        (["-1gbit"], "above zero"),
        (["1gbit,-5ms"], "at least 0"),
        (["1gbti"], "did you mean 'gbit'"),
        (["1gbit,200usec"], "did you mean 'us'"),
        (["1gbit,200"], "each with its unit"),
        (["fast"], "each with its unit"),
        ([""], "RATE,LATENCY"),
        (["1gbit,"], "RATE,LATENCY"),
        (["1gbit,2gbit"], "one rate"),
        (["1gbit,1ms,latency=2ms"], "one latency"),
        (["1gbit,jiter=2ms"], "did you mean 'jitter'"),
        (["1gbit,jitter=2"], "no unit"),
        (["1gbit,loss=0.7"], "loss=0.01"),
        (["1gbit,loss=some"], "not 'some'"),
        (["1gbit,loss=nan"], "not 'nan'"),
        (["1gbit", "100mbit"], "one link for all workers"),
        (["3:1gbit", "3:2gbit"], "worker 3 once"),
        (["0-1:1gbit", "1-0:2gbit"], "once"),
        (["1-1:1gbit"], "two different workers"),
        (["x:1gbit"], "a worker's rank"),
        (["0-b:1gbit"], "a worker's rank"),
        (["-1:1gbit"], "a worker's rank"),
        (["5..2:1gbit"], "the lower first"),
        (["1gbit,congestion=bbt"], "did you mean 'bbr'"),
        (["1gbit,burst=5furlong"], "unit 'furlong'"),
    ],
)
def test_malformed_links_are_refused_with_their_words(words: list[str], says: str) -> None:
    with pytest.raises(Misuse, match=says) as caught:
        parse_links(words)
    assert words[-1] in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("word", ["1gbit", "0..7:", "0..7:none", ":1gbit", "0..x:1gbit", "all:inf", "0..7:0bit"])
def test_malformed_shared_links_are_refused(word: str) -> None:
    with pytest.raises(Misuse, match="--shared"):
        parse_shared(word)


def test_stragglers() -> None:
    assert parse_straggler("1x4") == (1, 4.0)
    assert parse_straggler("3\u00d72.5") == (3, 2.5)
    for word in ("1", "1x", "x4", "1x0", "1x-2", "ax4", "1xinf", "1x4x5"):
        with pytest.raises(Misuse, match="--straggler"):
            parse_straggler(word)


def test_speed_words() -> None:
    assert parse_speed("lognormal:0.3") == "lognormal:0.3"
    with pytest.raises(Misuse, match="did you mean 'lognormal'"):
        parse_speed("log-normal:0.3")


@pytest.mark.parametrize("word", ["30", "s", "", "3 weeks", "-3s", "1,5s", "nan s", "infs"])
def test_malformed_durations_are_refused(word: str) -> None:
    with pytest.raises(Misuse):
        parse_duration(word)


def test_sizes() -> None:
    assert [parse_size(each) for each in ("64kb", "1mib", "12b")] == [64_000, 1 << 20, 12]
    with pytest.raises(Misuse, match="at least 0"):
        parse_size("-1kb")


@given(st.text(max_size=20))
def test_no_text_at_all_is_a_crash(word: str) -> None:
    for parse in (parse_duration, parse_rate, parse_size, parse_shared, parse_straggler, parse_speed):
        with contextlib.suppress(Misuse):
            parse(word)
    with contextlib.suppress(Misuse):
        parse_links([word])
