"""When a message arrives: every cable on its way serves messages in the order of sending, and the slowest decides.

    finish(cable) = max(free(cable), now) + wire bytes / bandwidth;   free(cable) = finish(cable)
    arrival = max over the cables of finish + their latencies

Transmission on the cables overlaps, as packets go on while the rest of the message still comes. Because each cable is
reserved from the moment of sending, messages of one sender to many proceed side by side, as TCP connections do: p workers
that all send to all others at once need the time of p - 1 messages, whatever order they send in.
"""

from __future__ import annotations

import math

from taut.core.messages import SUPERVISOR
from taut.simulator.models.links import Link, Links
from taut.simulator.models.portable_math import exp, log
from taut.simulator.models.rng import Rng

SEGMENT_NBYTES = 1448  # of payload in a full packet: 1500 less the headers of IP and TCP with its timestamps
HEADERS_NBYTES = 66  # those, and Ethernet's: 1514 bytes in all
SAME_HOST_NS = 50_000  # between processes of one host, for any size
LONE_PACKET_TIMEOUT_NS = 200_000_000  # and two round trips, before TCP sends a lone lost packet again (Linux)
LEAST_ROUND_TRIP_NS = 50_000  # the time that the kernels of hosts on an ideal cable take
UNLIMITED_BITS_PER_S = 10e9  # the rate of which a throttled cable without a limit gets a share


def wire_nbytes(nbytes: int) -> int:
    """Return the bytes that ``nbytes`` take on the wire: packets with their headers (TCP/IP over Ethernet).

    >>> wire_nbytes(1448), wire_nbytes(1449), wire_nbytes(0)
    (1514, 1581, 66)
    """
    return nbytes + HEADERS_NBYTES * (-(-nbytes // SEGMENT_NBYTES) or 1)


class _Cable:
    """One direction of a link with a limit: until when it is busy, with all messages and with those of one packet."""

    __slots__ = ("bits_per_s", "burst_ns", "free_ns", "packets_free_ns")

    def __init__(self, bits_per_s: float, burst_nbytes: int = 0) -> None:
        self.bits_per_s = math.floor(bits_per_s)  # whole, so that durations are exact
        self.burst_ns = burst_nbytes * 8_000_000_000 // self.bits_per_s
        self.free_ns = self.packets_free_ns = -self.burst_ns


class _Route:
    """The cables from one worker to another. ``links``: the sender's first."""

    __slots__ = ("cables", "jitter_ns", "last_ns", "latency_ns", "log_kept", "loss", "rng", "round_trip_ns")

    def __init__(self, cables: tuple[_Cable, ...], links: tuple[Link, ...], rng: Rng, fixed_ns: int = 0) -> None:
        self.cables, self.rng, self.last_ns = cables, rng, 0
        latency_ns = sum(_ns(link.latency_s) for link in links)
        self.latency_ns = fixed_ns + latency_ns
        self.jitter_ns = sum(_ns(link.jitter_s) for link in links)
        self.round_trip_ns = max(2 * latency_ns, LEAST_ROUND_TRIP_NS)
        kept = 1.0
        for link in links:  # never sum() of floats: it rounds differently from Python 3.12 on
            kept *= 1.0 - link.loss
        self.loss, self.log_kept = 1.0 - kept, log(kept)
        if self.loss and links[0].congestion != "bbr":
            limit = connection_limit(self.loss, self.round_trip_ns * 1e-9)
            window_nbytes = int(limit * self.round_trip_ns * 1e-9 / 8)  # leaves at once, if nothing is under way
            self.cables += (_Cable(limit, window_nbytes),)

    def delay_ns(self, packets: int) -> int:
        """Draw the jitter, and the delay that a lost packet costs: a round trip if others follow it, three for the last
        of several, the timeout for a lone one, which doubles each time that it is lost again."""
        rng, round_trip_ns = self.rng, self.round_trip_ns
        delay_ns = int(self.jitter_ns * rng.exponential()) if self.jitter_ns else 0
        if not self.loss:
            return delay_ns
        if packets == 1:
            timeout_ns = LONE_PACKET_TIMEOUT_NS + 2 * round_trip_ns
            while rng.random() < self.loss:
                delay_ns += timeout_ns
                timeout_ns *= 2
            return delay_ns
        drawn = rng.random()
        if drawn < self.loss:
            delay_ns += 3 * round_trip_ns
        elif drawn < packets * self.loss and drawn < 1.0 - exp(packets * self.log_kept):  # the first test is quick
            delay_ns += round_trip_ns
        return delay_ns


def connection_limit(loss: float, round_trip_s: float) -> float:
    """Return the bits per second of a TCP connection with loss: MSS / RTT * sqrt(3 / (2 loss)) (Mathis et al., 1997).

    >>> round(connection_limit(0.001, 0.04) / 1e6, 1)
    11.2
    """
    return max(1.0, SEGMENT_NBYTES * 8 / round_trip_s * math.sqrt(1.5 / loss))


class Network:
    """The cables of all workers. Jitter and loss are drawn per route: one pair's messages do not change another's.

    >>> network = Network(Links(Link(1e9, 200e-6)), Rng(0))
    >>> network.arrival(0, 1, 144800, now_ns=0)  # 100 packets of 1514 bytes at 8 ns, and the latency of two cables
    1611200
    >>> network.arrival(0, 2, 144800, now_ns=0)  # the same cable carries it next
    2822400
    """

    def __init__(self, links: Links, rng: Rng) -> None:
        self.links = links
        self._key = rng.key
        self._routes: dict[tuple[int, int], _Route] = {}
        self._throttled: dict[tuple[int, int], _Cable] = {}
        self._out: dict[int, _Cable | None] = {}
        self._in: dict[int, _Cable | None] = {}
        self._shared_out = [_Cable(each.bits_per_s) for each in links.shared]
        self._shared_in = [_Cable(each.bits_per_s) for each in links.shared]

    def arrival(self, sender: int, to: int, nbytes: int, now_ns: int) -> int:
        """Return when the last byte of a message sent now arrives. It reserves the bandwidth: call it once per message,
        in the order of sending. A message of one packet waits only for others of one packet: TCP connections take turns,
        so that it slips through between the packets of long ones. Messages of one route keep their order."""
        route = self._routes.get((sender, to)) or self._find(sender, to)
        packets = -(-nbytes // SEGMENT_NBYTES) or 1
        nanobits = (nbytes + HEADERS_NBYTES * packets) * 8_000_000_000
        done_ns = now_ns
        cables = route.cables
        if self._throttled and (sender, to) in self._throttled:
            cables = (*cables, self._throttled[sender, to])
        for cable in cables:
            takes_ns = -(-nanobits // cable.bits_per_s)
            earliest_ns = now_ns - cable.burst_ns
            end_ns = (cable.free_ns if cable.free_ns > earliest_ns else earliest_ns) + takes_ns
            cable.free_ns = end_ns
            if packets == 1:
                free_ns = cable.packets_free_ns
                cable.packets_free_ns = end_ns = (free_ns if free_ns > earliest_ns else earliest_ns) + takes_ns
            done_ns = end_ns if end_ns > done_ns else done_ns
        done_ns += route.latency_ns
        if route.jitter_ns or route.loss:
            done_ns += route.delay_ns(packets)
        if done_ns < route.last_ns:
            return route.last_ns
        route.last_ns = done_ns
        return done_ns

    def throttle(self, one: int, other: int, share: float | None) -> None:
        """Limit the route between these two to ``share`` of its rate from now on; None: lift the limit."""
        for sender, to in ((one, other), (other, one)):
            self._throttled.pop((sender, to), None)
            if share is not None:
                route = self._routes.get((sender, to)) or self._find(sender, to)
                whole = min((cable.bits_per_s for cable in route.cables), default=UNLIMITED_BITS_PER_S)
                self._throttled[sender, to] = _Cable(max(1.0, whole * share))

    def _find(self, sender: int, to: int) -> _Route:
        links, per_host = self.links, self.links.per_host
        rng = Rng(self._key, "route", sender, to)
        if SUPERVISOR in (sender, to):
            # The supervisor's own cable is ideal. Messages to it have their own connection, and do not wait for updates.
            link = links.of_host((to if sender == SUPERVISOR else sender) // per_host)
            cable = _new(link)
            route = _Route((cable,) if cable else (), (link,), rng)
        elif sender // per_host == to // per_host:
            route = _Route((), (), rng, SAME_HOST_NS)
        else:
            route = self._build(sender, to, rng)
        self._routes[sender, to] = route
        return route

    def _build(self, sender: int, to: int, rng: Rng) -> _Route:
        links, per_host = self.links, self.links.per_host
        hosts = sender // per_host, to // per_host
        ends = links.of_host(hosts[0]), links.of_host(hosts[1])
        cables = [self._out.setdefault(hosts[0], _new(ends[0])), self._in.setdefault(hosts[1], _new(ends[1]))]
        between = links.between(sender, to)
        if between is not None:
            cables.append(_new(between))
        for shared, outward, inward in zip(links.shared, self._shared_out, self._shared_in, strict=True):
            leaves, enters = sender in shared.members, to in shared.members
            if not shared.members or (leaves and not enters):
                cables.append(outward)
            elif enters and not leaves:
                cables.append(inward)
        limited = tuple(cable for cable in cables if cable is not None)
        return _Route(limited, ends if between is None else (*ends, between), rng)


def _new(link: Link) -> _Cable | None:
    return None if math.isinf(link.bits_per_s) else _Cable(link.bits_per_s, link.burst_nbytes)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
