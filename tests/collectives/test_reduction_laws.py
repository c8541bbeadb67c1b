"""The machine, for every schedule: the sum, the same bits everywhere, whatever the order of delivery."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from reducing import Cluster, cluster_of, programs, results

from taut.collectives import REGISTRY, Program, Reduction, Ring, Torus
from taut.collectives.plan import segments
from taut.collectives.schedule import Range
from taut.errors import MalformedMessage, Misuse

seeds = st.integers(0, 2**32 - 1)
groups = st.integers(1, 17)
lengths = st.one_of(st.integers(0, 20), st.integers(0, 400))
cuts = st.sampled_from([1 << 18, 64, 17, 5])
schedules = st.sampled_from([*REGISTRY.values(), Torus(rows=1)])
EVERY = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=lambda each: each.name)


def whole_numbers(seed: int, p: int, length: int) -> np.ndarray:
    """Contributions whose sums are exact in float32."""
    return np.random.default_rng(seed).integers(-1000, 1001, (p, length)).astype(np.float32)


@settings(max_examples=some(120), deadline=None)
@given(schedules, groups, lengths, cuts, seeds)
def test_the_sum_everywhere(schedule, p, length, segment_elements, seed):
    """Exact for whole numbers; what goes out is what the program says, once, in segments within the limit."""
    parts = whole_numbers(seed, p, length)
    cluster = cluster_of(schedule, parts, segment_elements)
    cluster.run(seed, repeat=0.2)
    assert all(machine.done for machine in cluster.machines)
    assert all((result == parts.sum(axis=0)).all() for result in results(cluster))
    for position, (program, sent) in enumerate(zip(programs(schedule, p, length), cluster.sent, strict=True)):
        assert sum(len(piece.data) for piece in sent) == schedule.bytes_sent(p, position, 4 * length)
        assert max((len(piece.data) for piece in sent), default=0) <= 4 * segment_elements
        messages = [send for sends, _ in program.rounds for send in sends]
        assert len(sent) == sum(len(list(segments(send.lo, send.hi, segment_elements))) for send in messages)


@settings(max_examples=80, deadline=None)
@given(schedules, groups, lengths, cuts, seeds, seeds)
def test_the_same_bits_everywhere_and_in_every_order(schedule, p, length, segment_elements, seed, other):
    """Values of very different size, so that another order of adding would show."""
    rng = np.random.default_rng(seed)
    parts = (rng.standard_normal((p, length)) * 10.0 ** rng.integers(-6, 7, (p, length))).astype(np.float32)
    found = []
    for order in (seed, other):
        cluster = cluster_of(schedule, parts, segment_elements)
        cluster.run(order, repeat=0.1)
        found += [result.tobytes() for result in results(cluster)]
    assert len(set(found)) == 1
    exact = parts.astype(np.float64)
    tolerance = np.abs(exact).sum(axis=0) * p * 2.0**-24
    assert (np.abs(np.frombuffer(found[0], np.float32) - exact.sum(axis=0)) <= tolerance).all()


@settings(max_examples=100, deadline=None)
@given(schedules, st.integers(2, 12), st.integers(1, 200), cuts, seeds)
def test_a_lost_message_is_never_taken_for_success(schedule, p, length, segment_elements, seed):
    parts = whole_numbers(seed, p, length)
    cluster = cluster_of(schedule, parts, segment_elements)
    cluster.run(seed, lose=seed % sum(len(sends) for each in programs(schedule, p, length) for sends, _ in each.rounds))
    ((frm, piece),) = cluster.lost
    assert not cluster.machines[piece.to].done
    receives = schedule.program(p, piece.to, length).rounds[piece.round][1]
    if all(receive.add for receive in receives if receive.peer == frm):  # then a term is missing, and nobody has the sum
        assert not any(machine.done for machine in cluster.machines)
    for machine, result in zip(cluster.machines, results(cluster), strict=True):
        assert not machine.done or (result == parts.sum(axis=0)).all()
    cluster.deliver(frm, piece)  # sent again, it completes everything
    cluster.run(seed)
    assert all(machine.done for machine in cluster.machines)


@EVERY
def test_everything_may_come_before_the_beginning(schedule):
    """The last place begins when the others have done all they can without it; held messages are not applied before."""
    parts = whole_numbers(1, 4, 100)
    cluster = cluster_of(schedule, parts, 16)
    before = cluster.machines[3].buffer.tobytes()
    for position in range(3):
        cluster.send(position, cluster.machines[position].begin())
    while cluster.flying:
        frm, piece, _ = cluster.flying.pop()
        cluster.deliver(frm, piece)
    assert cluster.machines[3].buffer.tobytes() == before
    assert not cluster.machines[3].done
    cluster.send(3, cluster.machines[3].begin())
    assert cluster.machines[3].begin() == []
    while cluster.flying:
        frm, piece, _ = cluster.flying.pop()
        cluster.deliver(frm, piece)
    assert all((result == parts.sum(axis=0)).all() for result in results(cluster))


@EVERY
@pytest.mark.parametrize("length", [0, 7])
def test_alone_there_is_nothing_to_send(schedule, length):
    values = np.arange(length, dtype=np.float32)
    reduction = Reduction(schedule.program(1, 0, length), values)
    assert not reduction.done
    assert reduction.begin() == [] and reduction.done
    assert values.tolist() == list(range(length))


def test_a_ring_hands_on_a_segment_before_the_message_is_complete():
    """Cut-through: each segment that arrives lets exactly that segment go on."""
    reduction = Reduction(Ring().program(3, 0, 300), np.ones(300, np.float32), 20)
    assert [(piece.round, piece.segment) for piece in reduction.begin()] == [(0, segment) for segment in range(5)]
    for segment in (3, 0, 4):
        (piece,) = reduction.arrived(2, 0, segment, np.ones(20, np.float32).tobytes())
        assert (piece.to, piece.round, piece.segment) == (1, 1, segment)
        assert np.frombuffer(piece.data, np.float32).tolist() == [2.0] * 20


@EVERY
@pytest.mark.parametrize("begun", [False, True])
def test_malformed_messages_change_nothing(schedule, begun):
    parts = whole_numbers(2, 3, 50)
    cluster = cluster_of(schedule, parts, 8)
    receiver = cluster.machines[0]
    if begun:
        cluster.send(0, receiver.begin())
    rounds = enumerate(schedule.program(3, 0, 50).rounds)
    number, first = next((number, receive) for number, (_, receives) in rounds for receive in receives)
    lo, hi = next(segments(first.lo, first.hi, 8))
    frm, data = first.peer, bytes(4 * (hi - lo))
    before = receiver.buffer.tobytes()
    for wrong in [
        (0, number, 0, data),  # from itself
        (7, number, 0, data),
        (frm, 99, 0, data),
        (frm, -1, 0, data),
        (frm, number, 99, data),
        (frm, number, -1, data),
        (frm, number, 0, data[:-1]),
        (frm, number, 0, data + b"1234"),
        (frm, number, 0, b""),
    ]:
        with pytest.raises(MalformedMessage):
            receiver.arrived(*wrong)
    assert receiver.buffer.tobytes() == before
    cluster.run(3)
    assert receiver.done and (results(cluster)[0] == parts.sum(axis=0)).all()


def test_what_is_added_to_while_it_travels_is_copied():
    """A butterfly, which no schedule here uses: both send all they have and add what comes, in the same round."""
    both = [
        Program((((Range(1, 0, 4),), (Range(1, 0, 4, True),)),)),
        Program((((Range(0, 0, 4),), (Range(0, 0, 4, True),)),)),
    ]
    machines = [Reduction(program, np.full(4, position + 1, np.float32)) for position, program in enumerate(both)]
    Cluster(machines).run(0)
    assert [machine.buffer.tolist() for machine in machines] == [[3.0] * 4] * 2


def test_what_comes_for_a_later_round_waits_until_the_range_was_sent():
    """The send of round 1 waits for one half of its range; nothing may be added to the other half meanwhile."""
    program = Program(
        (
            ((), (Range(1, 0, 2, True),)),
            ((Range(1, 0, 4),), ()),
            ((), (Range(1, 2, 4, True),)),
        )
    )
    reduction = Reduction(program, np.ones(4, np.float32))
    assert reduction.begin() == []
    assert reduction.arrived(1, 2, 0, np.float32([9, 9]).tobytes()) == []
    (piece,) = reduction.arrived(1, 0, 0, np.float32([5, 5]).tobytes())
    assert (piece.to, piece.round) == (1, 1)
    assert np.frombuffer(piece.data, np.float32).tolist() == [6.0, 6.0, 1.0, 1.0]
    assert reduction.done and reduction.buffer.tolist() == [6.0, 6.0, 10.0, 10.0]


@EVERY
def test_no_schedule_needs_a_copy(schedule):
    for p in (2, 3, 4, 7, 12):
        for position in range(p):
            buffer = np.zeros(100, np.float32)
            pieces = Reduction(schedule.program(p, position, 100), buffer, 7).begin()
            assert all(np.shares_memory(np.frombuffer(piece.data, np.float32), buffer) for piece in pieces)
            assert all(piece.data.readonly for piece in pieces)


@pytest.mark.parametrize(
    ("buffer", "segment_elements", "said"),
    [
        (np.zeros(9, np.float32), 8, "10, the length"),
        (np.zeros(11, np.float32), 8, "10, the length"),
        (np.zeros(10, np.float64), 8, "float32"),
        (np.zeros((2, 5), np.float32), 8, "vector"),
        (np.zeros(20, np.float32)[::2], 8, "contiguous"),
        (np.zeros(10, np.float32), 0, "at least 1"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffer, segment_elements, said):
    with pytest.raises(Misuse, match=said):
        Reduction(Ring().program(3, 0, 10), buffer, segment_elements)
