"""Laws of the network model: no cable carries more than it can, nothing overtakes, an idle one takes what it must."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator.models.links import Link, Links, Shared
from taut.simulator.models.network import SAME_HOST_NS, Network, connection_limit, wire_nbytes
from taut.simulator.models.rng import Rng

MS = 1_000_000
BULK = 144_800  # 100 full packets: 151,400 bytes on the wire
BULK_NS_1GBIT = 151_400 * 8


@dataclass(frozen=True)
class Sent:
    sender: int
    to: int
    nbytes: int
    at_ns: int
    arrives_ns: int


RATES = st.sampled_from([1e6, 3e7, 1e8, 1e9, 2.5e9])
LINKS = st.builds(Link, RATES, st.sampled_from([0.0, 1e-4, 0.02]))
MESSAGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 400_000), st.integers(0, 20 * MS)).filter(
        lambda each: each[0] != each[1]
    ),
    min_size=1,
    max_size=25,
)


def play(links: Links, messages: list[tuple[int, int, int, int]], seed: int = 0) -> list[Sent]:
    network = Network(links, Rng(seed))
    in_order = sorted(messages, key=lambda each: each[3])
    return [Sent(*each, network.arrival(*each)) for each in in_order]


def crossings(links: Links, sent: list[Sent]) -> dict[object, list[Sent]]:
    """What crossed each thing with a limit, by its direction."""
    found: dict[object, list[Sent]] = defaultdict(list)
    for each in sent:
        hosts = each.sender // links.per_host, each.to // links.per_host
        if hosts[0] == hosts[1]:
            continue
        found["out", hosts[0]].append(each)
        found["in", hosts[1]].append(each)
        if links.between(each.sender, each.to) is not None:
            found["between", each.sender, each.to].append(each)
        for number, shared in enumerate(links.shared):
            leaves, enters = each.sender in shared.members, each.to in shared.members
            if not shared.members or leaves != enters:
                found["shared", number, leaves].append(each)
    return found


def limit(links: Links, what: object) -> float:
    assert isinstance(what, tuple)
    if what[0] == "shared":
        return links.shared[what[1]].bits_per_s
    if what[0] == "between":
        line = links.between(what[1], what[2])
        assert line is not None
        return line.bits_per_s
    return links.of_host(what[1]).bits_per_s


@given(
    default=LINKS,
    of_worker=st.dictionaries(st.integers(0, 5), LINKS, max_size=3),
    of_pair=st.dictionaries(st.sampled_from([(0, 1), (2, 4), (5, 3)]), LINKS, max_size=2),
    shared=st.lists(st.builds(Shared, st.frozensets(st.integers(0, 5), max_size=4), RATES), max_size=2),
    per_host=st.integers(1, 3),
    messages=MESSAGES,
)
def test_no_cable_carries_more_than_it_can_in_any_window(
    default: Link,
    of_worker: dict[int, Link],
    of_pair: dict[tuple[int, int], Link],
    shared: list[Shared],
    per_host: int,
    messages: list[tuple[int, int, int, int]],
) -> None:
    """Messages that were sent and have arrived within a window fit into it: long ones, and those of one packet."""
    links = Links(default, of_worker, of_pair, tuple(shared), per_host)
    for what, crossed in crossings(links, play(links, messages)).items():
        for short in (False, True):
            some = [each for each in crossed if (each.nbytes <= 1448) == short]
            for begin_ns, end_ns in itertools.product({e.at_ns for e in some}, {e.arrives_ns for e in some}):
                within = [e for e in some if begin_ns <= e.at_ns and e.arrives_ns <= end_ns]
                bits = sum(8 * wire_nbytes(e.nbytes) for e in within)
                assert bits <= Fraction(limit(links, what)) * Fraction(max(0, end_ns - begin_ns), 10**9)


@given(
    link=st.builds(
        Link, RATES, st.sampled_from([0.0, 0.001]), st.sampled_from([0.0, 0.002]), st.sampled_from([0.0, 0.05])
    ),
    messages=MESSAGES,
    seed=st.integers(0, 1000),
)
def test_nothing_overtakes_between_the_same_two(link: Link, messages: list[tuple[int, int, int, int]], seed: int) -> None:
    last: dict[tuple[int, int], int] = {}
    for each in play(Links(link), messages, seed):
        assert each.arrives_ns >= max(each.at_ns, last.get((each.sender, each.to), 0))
        last[each.sender, each.to] = each.arrives_ns


@given(
    nbytes=st.integers(0, 10**8),
    out=st.sampled_from([10**6, 10**8, 10**9]),
    back=st.sampled_from([10**6, 10**8, 10**9]),
    now_ns=st.integers(0, 10**15),
)
def test_an_idle_way_takes_latency_and_size_over_bandwidth(nbytes: int, out: int, back: int, now_ns: int) -> None:
    links = Links(Link(), {0: Link(out, 200e-6), 1: Link(back, 0.001)})
    slowest = min(out, back)
    takes_ns = -(-wire_nbytes(nbytes) * 8 * 10**9 // slowest)
    assert Network(links, Rng(0)).arrival(0, 1, nbytes, now_ns) == now_ns + takes_ns + 1_200_000


def test_full_packets_cost_their_headers() -> None:
    assert Fraction(wire_nbytes(1448 * 1000), 1448 * 1000) == Fraction(1514, 1448)


def test_an_ideal_network_takes_no_time() -> None:
    assert Network(Links(), Rng(0)).arrival(0, 1, 10**9, 5) == 5


def test_two_flows_share_an_uplink() -> None:
    """Two senders of one rack to two receivers outside: the uplink decides; what comes back does not disturb it."""
    links = Links(Link(1e9), shared=(Shared(frozenset({0, 1}), 1e9),))
    network = Network(links, Rng(0))
    first, second = network.arrival(0, 2, BULK, 0), network.arrival(1, 3, BULK, 0)
    assert (first, second) == (BULK_NS_1GBIT, 2 * BULK_NS_1GBIT)
    assert network.arrival(2, 1, BULK, 0) == BULK_NS_1GBIT
    assert Network(links, Rng(0)).arrival(0, 1, BULK, 0) == BULK_NS_1GBIT


def test_a_switch_without_members_is_crossed_by_all() -> None:
    network = Network(Links(Link(1e9), shared=(Shared(frozenset(), 1e9),)), Rng(0))
    assert [network.arrival(i, j, BULK, 0) for i, j in ((0, 1), (2, 3), (1, 0))] == [n * BULK_NS_1GBIT for n in (1, 2, 3)]


@given(order=st.permutations([(i, j) for i in range(4) for j in range(4) if i != j]))
def test_all_to_all_takes_as_long_as_one_cable_needs(order: list[tuple[int, int]]) -> None:
    """Connections proceed side by side: nobody's cable stands idle because all send to the same worker first."""
    network = Network(Links(Link(1e9)), Rng(0))
    assert max(network.arrival(i, j, BULK, 0) for i, j in order) == 3 * BULK_NS_1GBIT


def test_a_packet_slips_through_but_overtakes_nothing_of_its_own() -> None:
    network = Network(Links(Link(1e6)), Rng(0))
    bulk_ns = network.arrival(0, 1, BULK, 0)
    assert network.arrival(0, 2, 100, 0) == 166 * 8000
    assert network.arrival(0, 1, 100, 0) == bulk_ns
    assert network.arrival(0, 3, BULK, 0) == 2 * bulk_ns + 2 * 166 * 8000  # it was counted all the same


def test_a_burst_passes_at_once_and_the_rate_holds_after_it() -> None:
    network = Network(Links(Link(1e8, burst_nbytes=64_000)), Rng(0))
    assert network.arrival(0, 1, 14_480, 0) == 0
    last_ns = max(network.arrival(0, 1, BULK, 0) for _ in range(10))
    assert last_ns == (wire_nbytes(14_480) + 10 * 151_400 - 64_000) * 80
    later_ns = last_ns + 10**10
    assert network.arrival(0, 1, 57_920, later_ns) == later_ns  # it has filled again, but not beyond itself
    assert network.arrival(0, 1, BULK, later_ns) > later_ns + (151_400 - 64_000) * 80


def test_workers_of_one_host_share_its_cable_and_do_not_need_it_among_themselves() -> None:
    network = Network(Links(Link(1e9, 0.001), per_host=2), Rng(0))
    assert network.arrival(0, 1, 10**9, 0) == SAME_HOST_NS
    assert network.arrival(0, 2, BULK, 0) == BULK_NS_1GBIT + 2 * MS
    assert network.arrival(1, 4, BULK, 0) == 2 * BULK_NS_1GBIT + 2 * MS


def test_the_supervisor_hears_at_once_and_in_order() -> None:
    network = Network(Links(Link(1e8, 0.001)), Rng(0))
    for _ in range(100):
        network.arrival(0, 1, 10 * BULK, 0)
    assert network.arrival(0, SUPERVISOR, 100, 0) == MS + 166 * 80
    assert network.arrival(SUPERVISOR, 0, 100, 0) == MS + 166 * 80
    assert network.arrival(0, SUPERVISOR, BULK, 0) == MS + 166 * 80 + 151_400 * 80


def test_a_line_between_two_is_theirs_alone() -> None:
    network = Network(Links(Link(1e9, 1e-4), of_pair={(1, 0): Link(1e8, 0.02)}), Rng(0))
    assert network.arrival(0, 1, BULK, 0) == 10 * BULK_NS_1GBIT + 20_200_000
    assert network.arrival(1, 0, BULK, 0) == 10 * BULK_NS_1GBIT + 20_200_000
    assert network.arrival(2, 1, BULK, 0) == 2 * BULK_NS_1GBIT + 200_000


def test_golden_values() -> None:
    network = Network(Links(Link(1e8, 1e-3, jitter_s=5e-4, loss=0.05)), Rng(3))
    golden = [2606628, 3134317, 4643977, 5669159, 7177230, 7567045, 10709276, 18887127]
    assert [network.arrival(0, 1, k * 700, k * MS) for k in range(8)] == golden


def test_other_pairs_change_nothing_but_the_queue() -> None:
    link = Link(latency_s=0.001, jitter_s=0.002, loss=0.01)
    alone, among = Network(Links(link), Rng(0)), Network(Links(link), Rng(0))
    for k in range(200):
        among.arrival(2, 3, 1000, k * MS)
        assert alone.arrival(0, 1, 5000, k * MS) == among.arrival(0, 1, 5000, k * MS)


def test_jitter_has_its_mean() -> None:
    network = Network(Links(Link(latency_s=0.001, jitter_s=0.0005)), Rng(0))
    apart_ns = 1000 * MS  # so far that order never holds one back
    delays = [network.arrival(0, 1, 100, k * apart_ns) - k * apart_ns for k in range(5000)]
    assert min(delays) >= 2 * MS
    assert sum(delays) / len(delays) == pytest.approx(3 * MS, rel=0.02)


def test_loss_limits_a_connection_as_mathis_says() -> None:
    """10 ms each way and 2 packets in a thousand lost: far below the cable's gigabit."""
    network = Network(Links(Link(1e9, 0.005, loss=0.001)), Rng(0))
    last_ns = max(network.arrival(0, 1, 1_448_000, 0) for _ in range(20))
    rate = 20 * 8 * 1_514_000 / (last_ns * 1e-9)
    expected = connection_limit(1 - 0.999**2, 0.02)
    assert 0.9 * expected < rate <= expected
    assert network.arrival(0, 2, 1_448_000, 0) < last_ns / 2  # another connection has a limit of its own


def test_with_bbr_loss_delays_but_does_not_limit() -> None:
    network = Network(Links(Link(1e8, 0.005, loss=0.001, congestion="bbr")), Rng(0))
    last_ns = max(network.arrival(0, 1, 1_448_000, 0) for _ in range(20))
    idle_ns = 20 * 1_514_000 * 80 + 10 * MS
    assert idle_ns <= last_ns <= idle_ns + 60 * MS


def test_a_message_within_the_window_is_not_held_back_by_loss() -> None:
    """Two lost in a thousand: 27 packets are under way on average, and a message of 20 leaves at once."""
    network = Network(Links(Link(1e9, 0.005, loss=0.001)), Rng(0))
    assert network.arrival(0, 1, 20 * 1448, 0) == 10 * MS + 20 * 1514 * 8


def test_a_lone_packet_that_is_lost_costs_a_timeout() -> None:
    network = Network(Links(Link(latency_s=0.001, loss=0.01)), Rng(0))
    apart_ns = 10_000 * MS
    late = [network.arrival(0, 1, 100, k * apart_ns) - k * apart_ns > 200 * MS for k in range(5000)]
    assert sum(late) / len(late) == pytest.approx(1 - 0.99**2, rel=0.2)


@pytest.mark.parametrize(
    "fields",
    [
        {"bits_per_s": 0.0},
        {"bits_per_s": -1e9},
        {"bits_per_s": float("nan")},
        {"latency_s": -1.0},
        {"jitter_s": float("nan")},
        {"loss": 0.5},
        {"loss": -0.1},
        {"burst_nbytes": -1},
        {"congestion": "vegas"},
    ],
)
def test_links_that_cannot_be_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        Link(**fields)  # type: ignore[arg-type]


def test_networks_that_cannot_be_are_refused() -> None:
    for make in (lambda: Shared(frozenset(), 0.0), lambda: Shared(frozenset(), float("inf")), lambda: Links(per_host=0)):
        with pytest.raises(Misuse):
            make()
    with pytest.raises(Misuse):
        Links(of_pair={(2, 2): Link()})


def test_messages_of_several_packets_are_delayed_as_often_as_one_of_them_is_lost() -> None:
    network = Network(Links(Link(latency_s=0.001, loss=0.01)), Rng(0))
    apart_ns = 10_000 * MS
    delays = [network.arrival(0, 1, 5 * 1448, k * apart_ns) - k * apart_ns - 2 * MS for k in range(5000)]
    assert set(delays) == {0, 4 * MS, 12 * MS}  # nothing, one round trip, three
    assert delays.count(12 * MS) / 5000 == pytest.approx(1 - 0.99**2, rel=0.2)
    assert delays.count(0) / 5000 == pytest.approx(0.99**10, rel=0.02)
