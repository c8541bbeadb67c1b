"""Hash chains: an origin that sends different updates to different workers is noticed, and nobody else is suspected."""

from __future__ import annotations

from taut.core.events import Arrived, Disputed, PeerGone, PeerJoined, Send, Synced, Tick
from taut.core.messages import Report, Span, Updates
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.hash_chains import BLOCK, Chain
from taut.strategies.broadcast.state import BroadcastState

PROTOCOL = Broadcast(merge=b"".join, compares=True)
LIAR = 9


def holders(count: int, synced: bool = True) -> list[BroadcastState]:
    states = [PROTOCOL.start(rank, synced) for rank in range(count)]
    for state in states:
        for other in (*range(count), LIAR):
            if other != state.rank:
                PROTOCOL.on(state, PeerJoined(other), 0.0)
    return states


def send(state: BroadcastState, number: int, payload: bytes, upto: int = 0) -> None:
    message = Updates(0, 0, [Span(LIAR, number, upto or number)])
    PROTOCOL.on(state, Arrived(LIAR, message, [payload]), 0.0)


def exchange(states: list[BroadcastState], now: float) -> set[tuple[int, int, int]]:
    """All report to each other; (who, origin, other) of what is disputed."""
    found = set()
    actions = [(state.rank, action) for state in states for action in PROTOCOL.on(state, Tick(), now)]
    while actions:
        rank, action = actions.pop(0)
        if isinstance(action, Disputed):
            found.add((rank, action.origin, action.other))
        elif isinstance(action, Send) and action.to < len(states):
            answers = PROTOCOL.on(states[action.to], Arrived(rank, action.message, list(action.payloads)), now)
            actions += [(action.to, answer) for answer in answers]
    return found


def test_different_updates_to_different_workers_are_noticed_by_both() -> None:
    states = holders(3)
    for state in states:
        send(state, 1, b"the same")
    assert exchange(states, 10.0) == set()
    for state in states:
        send(state, 2, b"b" if state.rank == 1 else b"a")
    assert exchange(states, 20.0) == {(0, LIAR, 1), (1, LIAR, 0), (1, LIAR, 2), (2, LIAR, 1)}
    assert exchange(states, 30.0) == set(), "it is said once"


def test_a_difference_is_noticed_also_by_who_is_ahead_and_after_the_origin_is_gone() -> None:
    states = holders(2)
    for number in range(1, 40):
        send(states[0], number, b"%d" % number)
        if number < 30:
            send(states[1], number, b"%d" % (number if number < 20 else -number))
    for state in states:
        PROTOCOL.on(state, PeerGone(LIAR), 1.0)
    assert exchange(states, 10.0) == {(0, LIAR, 1)}


def test_updates_that_came_merged_are_compared_from_the_next_block_on() -> None:
    states = holders(2)
    for number in range(1, BLOCK + 1):
        send(states[0], number, b"x")
    send(states[1], 1, b"x" * BLOCK, upto=BLOCK)
    assert exchange(states, 10.0) == set()
    for number in range(BLOCK + 1, BLOCK + 3):
        send(states[0], number, b"y")
        send(states[1], number, b"z")
    assert (1, LIAR, 0) in exchange(states, 20.0)


def test_a_newcomer_compares_nothing_of_what_was_in_the_state() -> None:
    states = holders(1)
    for number in range(1, 4):
        send(states[0], number, b"x")
    newcomer = PROTOCOL.start(1, False)
    for other in (0, LIAR):
        PROTOCOL.on(newcomer, PeerJoined(other), 0.0)
    PROTOCOL.on(states[0], PeerJoined(1), 0.0)
    PROTOCOL.on(newcomer, Synced({LIAR: 3, 0: 0}, []), 0.0)
    send(newcomer, 4, b"y")
    send(states[0], 4, b"y")
    assert exchange([states[0], newcomer], 10.0) == set()


def test_what_was_refused_counts_as_nothing() -> None:
    one, other = Chain(), Chain()
    for chain in (one, other):
        chain.add(1, 1, b"")
        chain.add(2, 2, b"x")
    assert dict(one.marks()) == dict(other.marks())


def test_marks_of_strangers_take_no_memory() -> None:
    from taut.core.messages import Mark

    state = holders(2)[0]
    marks = [Mark(rank, 1, b"v") for rank in range(100, 1100)]
    PROTOCOL.on(state, Arrived(1, Report(0, 0, False, {}, [], -1, marks=marks), []), 0.0)
    assert not state.chains and not state.disputed
