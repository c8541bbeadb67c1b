"""The words of the command line that describe machines, their network and its faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from taut.errors import Misuse
from taut.quantities import link_words, parse_duration, parse_rate, split_unit
from taut.simulator.faults import Churn, Fail, Join, Pause
from taut.simulator.models.links import CONGESTION, Link, Links, Shared
from taut.simulator.models.speeds import parse_draw
from taut.specs import did_you_mean, number

LINK_EXAMPLE = "as in --link 1gbit,200us or --link 3:10mbit,20ms,loss=0.001"
LINK_KEYS = ("rate", "latency", "jitter", "loss", "burst", "congestion")
MOST_MEMBERS = 65_536
BYTES: Mapping[str, int] = {"b": 1, "kb": 1000, "mb": 1000**2, "kib": 1024, "mib": 1024**2}
FAULTS = {  # what is expected, and an example
    "fail": ("a worker and a time", "2@30s: worker 2 dies after 30 seconds"),
    "pause": ("a worker, a time and a duration", "1@5s+3s: worker 1 is stopped after 5 seconds, for 3"),
    "join": ("how many workers and a time", "2@10s: two more after 10 seconds"),
}


def parse_links(words: Sequence[str]) -> Links:
    """Parse links: for all workers, for one, for some (``2..5``), or between two. A worker's link has the values for all
    where its own are not given.

    >>> links = parse_links(["1gbit,200us", "3:10mbit,20ms,jitter=2ms,loss=0.001", "0-1:100mbit"])
    >>> links.default.latency_s, links.of_worker[3].bits_per_s, links.of_pair[0, 1].latency_s
    (0.0002, 10000000.0, 0.0)
    """
    default: Link | None = None
    of_worker: dict[int, dict[str, Any]] = {}
    of_pair: dict[tuple[int, int], Link] = {}
    for word in words:
        blame = f"--link {word}"
        target, colon, rest = word.rpartition(":")
        found = _link_fields(rest, blame)
        if not colon:
            if default is not None:
                raise Misuse(blame, "one link for all workers", "name the worker, as in --link 3:10mbit")
            default = Link(**found)
        elif "-" in target:
            pair = _pair(target, blame)
            if pair in of_pair or pair[::-1] in of_pair:
                raise Misuse(blame, f"the link {target} once")
            of_pair[pair] = Link(**found)
        else:
            for rank in _ranks(target, blame):
                if rank in of_worker:
                    raise Misuse(blame, f"the link of worker {rank} once")
                of_worker[rank] = found
    usual = default or Link()
    return Links(usual, {rank: replace(usual, **found) for rank, found in of_worker.items()}, of_pair)


def parse_shared(word: str) -> Shared:
    """Parse ``MEMBERS:RATE``: the uplink of some workers, or one switch that all traffic crosses.

    >>> parse_shared("0..2:1gbit") == Shared(frozenset({0, 1, 2}), 1e9), parse_shared("all:10gbit").members
    (True, frozenset())
    """
    blame = f"--shared {word}"
    target, colon, rate = word.rpartition(":")
    if not colon:
        raise Misuse(blame, "MEMBERS:RATE", "as in --shared 0..7:1gbit (their uplink) or --shared all:10gbit (a switch)")
    members = frozenset() if target.strip() == "all" else frozenset(_ranks(target, blame))
    bits_per_s = parse_rate(rate, blame)
    if bits_per_s == float("inf"):
        raise Misuse(blame, "a limit", "leave it out where there is none")
    return Shared(members, bits_per_s)


def parse_straggler(word: str) -> tuple[int, float]:
    """Parse ``RANKxTIMES``: the worker, and how many times slower it is.

    >>> parse_straggler("1x4"), parse_straggler("3x2.5")
    ((1, 4.0), (3, 2.5))
    """
    blame = f"--straggler {word}"
    rank, x, times = word.replace("\u00d7", "x").partition("x")
    if not x:
        raise Misuse(blame, "a worker and how many times slower", "as in --straggler 1x4: worker 1 is 4 times slower")
    slower = parse_number(times, blame, "how many times slower")
    if slower <= 0.0:
        raise Misuse(blame, "a number above zero", "0.5 would be twice as fast")
    return parse_whole(rank, blame, "a worker's rank"), slower


def parse_speed(word: str) -> str:
    """Check how steps vary; return it for ``Speeds.draw``.

    >>> parse_speed(" Lognormal:0.3")
    'lognormal:0.3'
    """
    draw = word.strip().lower()
    parse_draw(draw)
    return draw


def parse_fault(flag: str, written: str) -> Churn:
    """Parse ``--fail RANK@TIME``, ``--pause RANK@TIME+DURATION`` or ``--join COUNT@TIME``.

    >>> parse_fault("fail", "2@30s"), parse_fault("join", "2@10s")
    (Fail(rank=2, at_s=30.0, at_step=None), Join(count=2, at_s=10.0, at_step=None))
    >>> parse_fault("pause", "1@5s+3s")
    Pause(rank=1, at_s=5.0, for_s=3.0, at_step=None)
    """
    blame, (expected, example) = f"--{flag} {written}", FAULTS[flag]
    who, at, when = written.partition("@")
    when, plus, duration = when.partition("+") if flag == "pause" else (when, "+", "")
    if not (at and plus):
        raise Misuse(blame, expected, f"as in --{flag} {example}")
    if flag == "join":
        return Join(parse_whole(who, blame, "how many workers", least=1), parse_duration(when, blame))
    rank, at_s = parse_whole(who, blame, "a worker's rank"), parse_duration(when, blame)
    return Fail(rank, at_s) if flag == "fail" else Pause(rank, at_s, parse_duration(duration, blame))


def parse_fault_words(fail: Sequence[str] = (), pause: Sequence[str] = (), join: Sequence[str] = ()) -> tuple[Churn, ...]:
    """Return the faults in the order of time; those of one moment in the order of these flags.

    >>> [type(each).__name__ for each in parse_fault_words(["2@30s"], ["1@5s+3s"], ["2@10s"])]
    ['Pause', 'Join', 'Fail']
    """
    words = {"fail": fail, "pause": pause, "join": join}
    faults = [parse_fault(flag, word) for flag, given in words.items() for word in given]
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


def _link_fields(rest: str, blame: str) -> dict[str, Any]:
    words = link_words(rest, blame, LINK_KEYS, LINK_EXAMPLE)
    return dict(_link_field(key, value, blame) for key, value in words.items())


def _link_field(key: str, value: str, blame: str) -> tuple[str, Any]:
    if key == "rate":
        return "bits_per_s", parse_rate(value, blame)
    if key == "congestion":
        if value not in CONGESTION:
            remedy = did_you_mean(value, CONGESTION, "sysctl net.ipv4.tcp_congestion_control tells")
            raise Misuse(blame, f"a congestion control of {', '.join(CONGESTION)}", remedy)
        return "congestion", value
    if key == "burst":
        return "burst_nbytes", parse_size(value, blame)
    if key == "loss":
        share = parse_number(value.removesuffix("%"), blame, "the share of packets that are lost")
        share = share / 100 if value.endswith("%") else share
        if not 0.0 <= share < 0.5:
            raise Misuse(blame, "a loss from 0 to below 0.5: the share of packets", "one in a hundred is loss=0.01")
        return "loss", share
    return f"{key}_s", parse_duration(value, blame)


def _pair(target: str, blame: str) -> tuple[int, int]:
    one, _, other = target.partition("-")
    pair = parse_whole(one, blame, "a worker's rank"), parse_whole(other, blame, "a worker's rank")
    if pair[0] == pair[1]:
        raise Misuse(blame, "two different workers", "as in --link 0-1:100mbit")
    return pair


def _ranks(target: str, blame: str) -> list[int]:
    """Parse ``3``, ``2..5`` (both ends included) or several, as in ``0..3,8``."""
    found: list[int] = []
    for part in target.split(","):
        first, dots, last = part.partition("..")
        low = parse_whole(first, blame, "a worker's rank")
        high = parse_whole(last, blame, "a worker's rank") if dots else low
        if not low <= high < low + MOST_MEMBERS:
            raise Misuse(blame, "a range of ranks, the lower first", "as in 0..7")
        found += range(low, high + 1)
    return found


def parse_size(written: str, blame: str = "") -> int:
    """Parse whole bytes, at least 0. Units: b, kb, mb (thousands), kib, mib (1024s).

    >>> parse_size("64kb"), parse_size("1mib")
    (64000, 1048576)
    """
    blame = blame or f"size {written!r}"
    size, unit = split_unit(written, blame, BYTES, "a size with a unit", "64kb")
    if size < 0.0:
        raise Misuse(blame, "a size of at least 0", "leave the minus out")
    return round(size * BYTES[unit])


def parse_whole(written: str, blame: str, what: str, least: int = 0) -> int:
    """Parse a whole number of plain digits, at least ``least``.

    >>> parse_whole("3", "--fail 3@2s", "a worker's rank")
    3
    """
    text = written.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise Misuse(blame, f"{what} (a whole number from {least} up), not {text!r}")
    return int(text)


def parse_number(written: str, blame: str, what: str) -> float:
    """Parse a finite number.

    >>> parse_number("1e-3", "loss=1e-3", "a share"), parse_number("2^-3", "loss=2^-3", "a share")
    (0.001, 0.125)
    """
    try:
        value = number(written, blame)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Misuse(blame, f"{what} (a number), not {written.strip()!r}")
    return value
