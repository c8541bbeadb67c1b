"""Every schedule: what a program says by itself, and what its formulas promise."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reducing import longest_path, programs

from taut.collectives import REGISTRY, HalvingDoubling, Ring, Torus, named
from taut.errors import Misuse

groups = st.integers(1, 17)
lengths = st.one_of(st.integers(0, 40), st.integers(0, 3000))
schedules = st.sampled_from([*REGISTRY.values(), Torus(rows=1)])


@settings(max_examples=150, deadline=None)
@given(schedules, groups, lengths)
def test_every_send_is_received_and_nothing_else_is(schedule, p, length):
    sent, received = [], []
    for position, program in enumerate(programs(schedule, p, length)):
        assert program.length == length
        for number, (sends, receives) in enumerate(program.rounds):
            assert all(0 <= each.lo < each.hi <= program.length for each in (*sends, *receives))
            sent += [(number, position, each.peer, each.lo, each.hi) for each in sends]
            received += [(number, each.peer, position, each.lo, each.hi) for each in receives]
    assert sorted(sent) == sorted(received)
    assert all(frm != to for _, frm, to, _, _ in sent)


@settings(max_examples=150, deadline=None)
@given(schedules, groups, lengths)
def test_bytes_are_those_of_the_formula(schedule, p, length):
    for position, program in enumerate(programs(schedule, p, length)):
        sent = sum(4 * (send.hi - send.lo) for sends, _ in program.rounds for send in sends)
        assert sent == schedule.bytes_sent(p, position, 4 * length)


@pytest.mark.parametrize("schedule", [Ring(), Torus(), HalvingDoubling()], ids=lambda each: each.name)
@pytest.mark.parametrize("p", [1, 2, 4, 8, 16])
def test_bytes_are_the_fewest_possible_where_chunks_are_equal(schedule, p):
    for position in range(p):
        assert schedule.bytes_sent(p, position, 1600) == Fraction(2 * (p - 1), p) * 1600


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("p", range(1, 18))
def test_rounds_and_messages_are_those_of_the_formula(schedule, p):
    made = programs(schedule, p, 1000)
    assert {len(program.rounds) for program in made} == {schedule.rounds(p)}
    per_round = max((len(part) for program in made for both in program.rounds for part in both), default=0)
    assert per_round == min(p - 1, 1)  # one at a time
    messages = sum(len(sends) for program in made for sends, _ in program.rounds)
    q = 1 << p.bit_length() - 1
    rows, columns = Torus().shape(p)
    assert (
        messages
        == {
            "ring": 2 * p * (p - 1),
            "tree": 2 * (p - 1),
            "halving-doubling": 2 * q * (q.bit_length() - 1) + 2 * (p - q),
            "torus": 2 * p * (rows - 1 + columns - 1),
        }[schedule.name]
    )


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("p", range(1, 18))
def test_latency_counts_as_often_as_messages_wait_for_one_another(schedule, p):
    """Not quite in a tree that is not full: there the last round of the root waits for its turn, not for a message."""
    full = p & (p - 1) == 0
    waits = schedule.rounds(p) if full or schedule.name != "tree" else schedule.rounds(p) - 2
    assert longest_path(programs(schedule, p, 1000)) == waits
    assert schedule.cost(p, 0, 1.0, 5.0) == schedule.rounds(p)


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("p", range(1, 18))
def test_bandwidth_counts_as_the_busiest_place_of_each_round(schedule, p):
    """Per round the longest message that somebody sends, in bytes; chunks are equal to within one element."""
    length = 720720  # the least common multiple of 1 to 16
    made = programs(schedule, p, length)
    rounds = zip(*(program.rounds for program in made), strict=True)
    busiest = sum(max(sum(4 * (each.hi - each.lo) for each in part) for both in row for part in both) for row in rounds)
    assert schedule.cost(p, 4 * length, 7.0, 0.0) == 7.0 * schedule.rounds(p)
    assert schedule.cost(p, 4 * length, 0.0, 1.0) == pytest.approx(busiest, rel=1e-4)


def test_a_torus_is_as_square_as_it_can_be():
    shapes = {p: Torus().shape(p) for p in (1, 2, 4, 6, 7, 12, 16, 17)}
    assert shapes == {1: (1, 1), 2: (1, 2), 4: (2, 2), 6: (2, 3), 7: (1, 7), 12: (3, 4), 16: (4, 4), 17: (1, 17)}
    assert Torus().program(7, 3, 50) == Ring().program(7, 3, 50)
    with pytest.raises(Misuse, match=r"torus of 3 rows with 16 workers.*try 1, 2, 4, 8, 16"):
        Torus(rows=3).program(16, 0, 10)


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=lambda each: each.name)
@pytest.mark.parametrize(("p", "position", "length"), [(0, 0, 1), (3, 3, 1), (3, -1, 1), (3, 0, -1)])
def test_groups_that_cannot_be_are_refused(schedule, p, position, length):
    with pytest.raises(Misuse):
        schedule.program(p, position, length)


def test_schedules_have_names():
    assert all(named(name) is schedule and schedule.name == name for name, schedule in REGISTRY.items())
    with pytest.raises(Misuse, match=r"'halving-dubling'.*did you mean 'halving-doubling'\?"):
        named("halving-dubling")
    with pytest.raises(Misuse, match="one of ring, "):
        named("xyz")
