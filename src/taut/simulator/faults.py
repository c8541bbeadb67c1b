"""What goes wrong, and when: workers that die, stop for a while, or come late. Times are seconds of virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from taut.errors import Misuse
from taut.simulator.quantities import parse_duration, parse_whole


@dataclass(frozen=True, slots=True)
class Fail:
    """Worker ``rank`` dies at ``at_s``, without a word."""

    rank: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Worker ``rank`` stands still from ``at_s`` for ``for_s``, as if its process were stopped."""

    rank: int
    at_s: float
    for_s: float


@dataclass(frozen=True, slots=True)
class Join:
    """``count`` more workers come at ``at_s``; they get the next ranks."""

    count: int
    at_s: float


Fault = Fail | Pause | Join


def parse_fail(written: str) -> Fail:
    """``RANK@TIME``.

    >>> parse_fail("2@30s")
    Fail(rank=2, at_s=30.0)
    """
    rank, at = _halves(written, "fail", "a worker and a time", "2@30s: worker 2 dies after 30 seconds")
    return Fail(parse_whole(rank, f"--fail {written}", "a worker's rank"), parse_duration(at, f"--fail {written}"))


def parse_pause(written: str) -> Pause:
    """``RANK@TIME+DURATION``.

    >>> parse_pause("1@5s+3s")
    Pause(rank=1, at_s=5.0, for_s=3.0)
    """
    example = "1@5s+3s: worker 1 stands still after 5 seconds, for 3"
    blame = f"--pause {written}"
    rank, rest = _halves(written, "pause", "a worker, a time and a duration", example)
    at, plus, duration = rest.partition("+")
    if not plus:
        raise Misuse(blame, "a worker, a time and a duration", f"as in --pause {example}")
    return Pause(parse_whole(rank, blame, "a worker's rank"), parse_duration(at, blame), parse_duration(duration, blame))


def parse_join(written: str) -> Join:
    """``COUNT@TIME``.

    >>> parse_join("2@10s")
    Join(count=2, at_s=10.0)
    """
    count, at = _halves(written, "join", "how many workers and a time", "2@10s: two more after 10 seconds")
    blame = f"--join {written}"
    return Join(parse_whole(count, blame, "how many workers", least=1), parse_duration(at, blame))


def _halves(written: str, flag: str, expected: str, example: str) -> tuple[str, str]:
    before, at, after = written.partition("@")
    if not at:
        raise Misuse(f"--{flag} {written}", expected, f"as in --{flag} {example}")
    return before, after
