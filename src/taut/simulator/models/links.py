"""The links of the network: a cable per worker, lines between some, and uplinks that many share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.errors import Misuse
from taut.specs import did_you_mean

CONGESTION = ("cubic", "reno", "bbr")


@dataclass(frozen=True)
class Link:
    """A cable, the same in each direction. ``latency_s``: one way. ``jitter_s``: mean and standard deviation of an extra
    delay. ``loss``: the share of packets that never arrive. ``burst_nbytes``: what an idle cable lets through at once
    before the limit holds, as a token bucket does (``tc tbf``); 0 for real cables. ``congestion``: of the TCP of the host
    at its end: with reno and cubic, loss limits the rate of a connection; with bbr it only delays.

    >>> Link(1e9, 200e-6).latency_s
    0.0002
    """

    bits_per_s: float = math.inf
    latency_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0
    burst_nbytes: int = 0
    congestion: str = "cubic"

    def __post_init__(self) -> None:
        if not self.bits_per_s >= 1.0:
            raise Misuse(f"a link of {self.bits_per_s!r} bit/s", "at least 1", "infinity means no limit")
        for name in ("latency_s", "jitter_s"):
            if not 0.0 <= getattr(self, name) < 1e6:
                raise Misuse(f"a link with {name}={getattr(self, name)!r}", "seconds from 0 up")
        if not 0.0 <= self.loss < 0.5:
            raise Misuse(f"a link with a loss of {self.loss!r}", "a share of packets from 0 to below 0.5", "1% is 0.01")
        if self.congestion not in CONGESTION:
            remedy = did_you_mean(self.congestion, CONGESTION, "sysctl net.ipv4.tcp_congestion_control tells")
            raise Misuse(f"congestion={self.congestion}", f"one of {', '.join(CONGESTION)}", remedy)
        if self.burst_nbytes < 0:
            raise Misuse(f"a link with a burst of {self.burst_nbytes!r} bytes", "at least 0")


@dataclass(frozen=True)
class Shared:
    """A link that all traffic between ``members`` and the others crosses, full duplex: the uplink of a rack, say. Empty
    ``members``: one switch (or radio channel) that all traffic crosses, whatever its direction."""

    members: frozenset[int]
    bits_per_s: float

    def __post_init__(self) -> None:
        if not 1.0 <= self.bits_per_s < math.inf:
            raise Misuse(f"a shared link of {self.bits_per_s!r} bit/s", "a limit of at least 1", "leave it out for none")


@dataclass(frozen=True)
class Links:
    """``default``: every worker's cable, but for those in ``of_worker``. ``of_pair``: an extra link (a long line) between
    the cables of two workers, for traffic between these two, either way. ``per_host``: that many consecutive ranks are on
    one host and share one cable: that of the first of them in ``of_worker``.

    >>> Links(Link(1e9), {3: Link(1e7)}, per_host=2).of_host(1).bits_per_s
    10000000.0
    """

    default: Link = field(default_factory=Link)
    of_worker: Mapping[int, Link] = field(default_factory=dict)
    of_pair: Mapping[tuple[int, int], Link] = field(default_factory=dict)
    shared: tuple[Shared, ...] = ()
    per_host: int = 1

    def __post_init__(self) -> None:
        if self.per_host < 1:
            raise Misuse(f"{self.per_host} workers per host", "at least 1")
        for pair in self.of_pair:
            if pair[0] == pair[1]:
                raise Misuse(f"a link {pair[0]}-{pair[1]}", "two different workers")

    def of_host(self, host: int) -> Link:
        """Return the cable of the host with the ranks ``host * per_host`` and following."""
        first = host * self.per_host
        for rank in range(first, first + self.per_host):
            if rank in self.of_worker:
                return self.of_worker[rank]
        return self.default

    def between(self, one: int, other: int) -> Link | None:
        """Return the link of this pair, in whichever order it was given."""
        return self.of_pair.get((one, other)) or self.of_pair.get((other, one))
