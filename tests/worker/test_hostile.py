"""A worker that is let in and sends rubbish: it is refused, counted, shown, expelled; the others' models stay whole."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

import taut
from taut.codecs.wire.payload import Header, Kind, build
from taut.config import WorkerEnvironment
from taut.core.events import Arrived, Heard, PeerGone, PeerJoined, Published, Taken, Tick
from taut.core.messages import SUPERVISOR, Member, Note, Parcel, Receipt, Report, Roster, Span, StateRequest, Updates
from taut.errors import MalformedMessage
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.compatibility import default_topology
from taut.strategies.delivery.channels import Channels
from taut.strategies.registry import REGISTRY, parse
from taut.supervisor.service import Supervisor
from taut.testing.hostile import HostileWorker
from taut.testing.worlds.codec_actor import with_codec, with_coder
from taut.testing.worlds.method_world import MethodWorld
from taut.transport.framing import encode
from taut.transport.keys import WorkerKeys
from taut.transport.memory import MemoryNetwork
from taut.transport.transport import Transport
from taut.transport.zmq.transport import ZmqTransport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.joining.connection import CONNECTOR, SocketConnector
from taut.worker.model.flat_params import FlatParams

# ------------------------------------------------------------------------------------------- in a run, over sockets


class Threads:
    """Honest workers as threads of this process, over real sockets; they train until the run is drained."""

    def __init__(self, supervisor: Supervisor, workers: int) -> None:
        self.supervisor, self.failures, self.models = supervisor, [], {}
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        for thread in self.threads:
            thread.start()

    def _work(self) -> None:
        CONNECTOR.set(SocketConnector(WorkerEnvironment(self.supervisor.address, token=self.supervisor.token)))
        model = new_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        x = torch.linspace(-1, 1, 64 * 4).reshape(64, 4)
        try:
            with taut.join(model, optimizer) as worker:
                for inputs in worker.batches(x, batch_size=8, epochs=10**6):
                    worker.step((model(inputs) - inputs.sum(1, keepdim=True)).square().mean())
            self.models[worker.rank] = model.weight.detach().clone()
        except BaseException as error:
            self.failures.append(error)


def new_model() -> torch.nn.Linear:
    torch.manual_seed(0)
    return torch.nn.Linear(4, 1)


def words(*indices: int) -> bytes:
    return build(Header(Kind.WORDS, 2.0**-8, 0, 5, len(indices)), np.array([i << 1 for i in indices], np.uint32))


def dense(*values: float) -> bytes:
    return build(Header(Kind.DENSE, 0.0, 0, len(values), len(values)), np.array(values, np.float32))


RUBBISH = {
    "an index out of range": words(7),
    "not a number": dense(1, float("nan"), 0, 0, 0),
    "infinite": dense(1, float("inf"), 0, 0, 0),
    "another model": dense(*[1.0] * 9),
    "no payload at all": b"",
}


def test_rubbish_is_refused_counted_shown_and_its_sender_expelled(tmp_path: Path) -> None:
    settings: dict[str, object] = {"strategy": "async", "topology": "complete", "codec": "tether"}
    supervisor = Supervisor(settings, tmp_path, run="r", workers=3, seed=0)
    supervisor.start()
    specs = FlatParams(new_model()).specs()
    honest = Threads(supervisor, 2)
    while sum(row.state == "ready" for row in supervisor.view().workers) < 2:
        assert supervisor.wait(0.02) is None
    hostile = HostileWorker(supervisor.address, supervisor.token, specs)
    try:
        hostile.join()
        others = {row.rank for row in supervisor.view().workers} - {hostile.rank}

        def to_all(message: object, *payloads: bytes) -> None:
            for rank in others:
                hostile.until(lambda rank=rank: hostile.send(rank, message, payloads))  # type: ignore[arg-type]

        def refused() -> int:
            return next(row.refused for row in supervisor.view().workers if row.rank == hostile.rank)

        hostile.until(lambda: all(row.statistics.steps for row in supervisor.view().workers if row.rank in others))
        for number, payload in enumerate(RUBBISH.values(), start=1):
            to_all(Updates(0, 0, [Span(hostile.rank, number, number)]), payload)
            to_all(Updates(0, 0, [Span(hostile.rank, number, number)]), words(1))  # a number that has been used
        to_all(Updates(0, 0, [Span(hostile.rank, 2**60, 2**60)]), words(1))  # from the far future
        to_all(Report(0, 0, False, dict.fromkeys(others, 2**40), [], 2**61))  # an end that never comes
        to_all(Updates(0, 0, [Span(hostile.rank, 1, 1)], phase=9), words(1))
        for rank in others:
            assert hostile.send_frames(rank, [b"\x74\x01rubbish"])
        hostile.until(lambda: refused() >= 2 * (len(RUBBISH) + 4))
        assert hostile.expelled is None, "a few are no reason"
        for number in range(len(RUBBISH) + 1, 130):
            to_all(Updates(0, 0, [Span(hostile.rank, number, number)]), RUBBISH["not a number"])
        hostile.until(lambda: hostile.expelled is not None)
        assert "refused too often, by worker" in str(hostile.expelled)
        told = [event.text for event in supervisor.view().events if event.kind == "refused"]
        assert any(f"worker {hostile.rank}: " in text and "refused by worker" in text for text in told), told
        supervisor.drain("enough")
        outcome = supervisor.wait(30)
        for thread in honest.threads:
            thread.join(20)
    finally:
        hostile.close()
        supervisor.stop()
    assert not honest.failures
    assert outcome is not None
    assert (outcome.exit_code, outcome.identical, outcome.exact) == (0, True, True), outcome
    assert [bool(torch.isfinite(weight).all()) for weight in honest.models.values()] == [True, True]


def test_a_million_tiny_messages_are_dropped_unread_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a second's worth and a burst so many are taken; the rest costs nothing but its count. Others are heard."""
    keys = [WorkerKeys.generate() for _ in range(3)]
    ends = [ZmqTransport(one, messages_per_s=10.0) for one in keys]
    members = [Member(rank, end.address, one.public_key) for rank, (end, one) in enumerate(zip(ends, keys, strict=True))]
    now = [1000.0]
    monkeypatch.setattr("taut.transport.zmq.transport.time.monotonic", lambda: now[0])
    try:
        for rank in (1, 2):
            ends[0].admit(members[rank])
            ends[rank].admit(members[0])
        sent, taken = 0, []
        while sent < 2_000:
            while sent < 2_000 and ends[1].send(0, [b"tiny"]):
                sent += 1
            taken += ends[0].receive(0.05)
            ends[1].receive(0.0)
        while len(taken) + ends[0].excess[1] < sent:
            taken += ends[0].receive(0.05)
        assert len(taken) == 100
        assert ends[0].excess == {1: 1_900}
        assert ends[2].send(0, [b"hello"])
        assert ends[1].send(0, [bytes(5000)])  # a large one is bounded by other means
        now[0] += 1.0
        assert ends[1].send(0, [b"later"])
        while len(taken) < 103:
            taken += ends[0].receive(0.05)
        assert {(one, frames[0][:5]) for one, frames in taken[100:]} == {
            (2, b"hello"),
            (1, bytes(5)),
            (1, b"later"),
        }
    finally:
        for end in ends:
            end.close()


def test_rubbish_to_the_supervisor_needs_no_witness(tmp_path: Path) -> None:
    settings: dict[str, object] = {"strategy": "async", "topology": "complete", "codec": "tether"}
    supervisor = Supervisor(settings, tmp_path, run="r", workers=2, seed=0)
    supervisor.start()
    hostile = HostileWorker(supervisor.address, supervisor.token, FlatParams(new_model()).specs())
    try:
        hostile.join()
        for _ in range(101):
            hostile.until(lambda: hostile.send_frames(SUPERVISOR, [b"\x74\x01rubbish"]))
        hostile.until(lambda: hostile.expelled is not None)
        assert "by the supervisor" in str(hostile.expelled)
    finally:
        hostile.close()
        supervisor.stop()


# ------------------------------------------------------------------------------------------ what waits is bounded


def begun(protocol: object, limit_nbytes: int) -> tuple[CommThread, Transport]:
    """A worker without a supervisor, and the other end of its only link."""
    wire = MemoryNetwork()
    mine, theirs = wire.transport(0), wire.transport(1)
    theirs.admit(wire.member(0))
    node = CommThread(Dispatcher(mine, lambda _: protocol, state_limit_nbytes=limit_nbytes))  # type: ignore[arg-type,return-value]
    node.join_alone(0, [wire.member(1)])
    node.dispatcher.work(None)
    return node, theirs


def test_more_than_is_included_is_not_received_and_comes_when_it_is_sent_again() -> None:
    node, peer = begun(Broadcast(merge=b"".join), limit_nbytes=10_000)
    for number in range(1, 61):
        assert peer.send(0, encode(Updates(0, 0, [Span(1, number, number)]), [bytes(1000)]))
        node.dispatcher.work(0.0)
    assert len(node.take()) == 7  # the first that goes beyond the limit is the last
    assert node.phase_protocol.state.have()[1] == 7
    for number in range(8, 11):
        assert peer.send(0, encode(Updates(0, 0, [Span(1, number, number)]), [bytes(1000)]))
        node.dispatcher.work(0.0)
    assert [item.hi for item in node.take()] == [8, 9, 10]
    assert not node.rejections.counts
    node.close()


def test_mail_that_nobody_reads_is_bounded() -> None:
    node, peer = begun(Channels(), limit_nbytes=10_000)
    for number in range(1, 61):
        assert peer.send(0, encode(Parcel(number, 0, Note("x"), 0, 1), [bytes(1000)]))
        node.dispatcher.work(0.0)
    assert len(node.phase_protocol.mail) == 7
    while node.phase_protocol.mail:
        node.phase_protocol.take_mail()
    assert peer.send(0, encode(Parcel(8, 0, Note("x"), 0, 1), [b"next"]))
    node.dispatcher.work(0.0)
    assert node.phase_protocol.take_mail().payload == b"next"
    node.close()


def test_messages_of_the_next_phase_and_requests_for_the_state_are_bounded() -> None:
    node, peer = begun(Channels(), limit_nbytes=10_000)
    for _ in range(60):
        assert peer.send(0, encode(Parcel(1, 0, Note("x"), 0, 1, phase=1), [bytes(1000)]))
        node.dispatcher.work(0.0)
    assert len(node.protocols.early) == 10
    for _ in range(20):
        assert peer.send(0, encode(StateRequest(0)))
        assert peer.send(0, encode(Receipt(0)))  # it has the state, and asks again
        node.dispatcher.work(0.0)
    assert node.rejections.counts == {1: 4}
    assert "asked for 20 times" in node.rejections.why[1]
    node.close()


def test_an_early_message_that_makes_no_sense_is_refused_when_its_phase_comes() -> None:
    node, peer = begun(Channels(), limit_nbytes=10_000)
    assert peer.send(0, encode(Updates(0, 0, [Span(1, 1, 1)], phase=1), [b"x"]))
    node.dispatcher.work(0.0)
    node.protocols.advance(Channels())
    assert node.rejections.counts == {1: 1}
    node.close()


def test_updates_of_a_phase_that_is_over_are_not_included_in_the_next() -> None:
    node, peer = begun(Broadcast(merge=b"".join), limit_nbytes=10_000)
    node.protocols.advance(Broadcast(merge=b"".join))
    assert peer.send(0, encode(Updates(0, 0, [Span(1, 1, 1)]), [b"x"]))
    node.dispatcher.work(0.0)
    assert node.take() == []
    node.close()


def test_a_member_that_cannot_be_reached_does_not_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = begun(Channels(), limit_nbytes=10_000)
    admit = node.transport.admit

    def choosy(member: Member) -> None:
        if member.rank == 2:
            raise MalformedMessage("worker 2 has no usable key or address")
        admit(member)

    monkeypatch.setattr(node.transport, "admit", choosy)
    members = [Member(rank, f"tcp://127.0.0.1:{rank + 1}", "k" * 40) for rank in (0, 1, 2, 3)]
    node.dispatcher._enter(Roster(1, members, []))
    assert sorted(node.protocols.members) == [1, 3]
    assert node.rejections.counts == {2: 1}
    node.close()


# ------------------------------------------------------------------- whatever is said, nothing worse than a refusal

RANKS = st.sampled_from([0, 1, 2, 3, 9])
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 40, 2**24, 2**40, 2**62])
SPANS = st.tuples(RANKS, NUMBERS, NUMBERS).map(lambda one: Span(one[0], max(1, min(one[1:])), max(1, *one[1:])))
UPDATES = st.builds(Updates, NUMBERS, NUMBERS, st.lists(SPANS, max_size=3))
REPORTS = st.builds(
    Report,
    st.integers(0, 3),
    st.just(-1) | NUMBERS,
    st.booleans(),
    st.dictionaries(RANKS, NUMBERS, max_size=4),
    st.lists(RANKS, max_size=3),
    st.just(-1) | NUMBERS,
    NUMBERS,
)
OWN = st.sampled_from([Published(b"ab"), Tick(), PeerGone(3), PeerJoined(4), "included"])


@given(st.lists(OWN | st.tuples(st.sampled_from([1, 1, 4]), UPDATES | REPORTS), max_size=120))
@settings(max_examples=some(150), deadline=None)
def test_no_lie_breaks_the_broadcast(history) -> None:
    protocol = Broadcast(merge=b"".join, budget_nbytes=40, window_nbytes=20)
    state, now = protocol.start(0, True), 0.0
    for rank in (1, 2):
        protocol.on(state, PeerJoined(rank), now)
    for event in history:
        now += 0.3
        if not isinstance(event, tuple):
            protocol.on(state, Taken({1: state.log_of(1).head}) if event == "included" else event, now)
            continue
        sender, message = event
        payloads = [b"x" * 3 for _ in message.spans] if isinstance(message, Updates) else []
        try:
            protocol.on(state, Arrived(sender, message, payloads), now)
        except MalformedMessage:
            continue
    assert all(len(link.seen) <= len(state.logs) + 1024 for link in state.links.values())


PARCELS = st.builds(
    Parcel, NUMBERS.map(lambda n: max(1, n)), NUMBERS, st.just(Note("x")), st.integers(0, 3), st.integers(1, 4)
)


@given(st.lists(PARCELS | st.builds(Receipt, NUMBERS, st.booleans()), max_size=60))
@settings(max_examples=100, deadline=None)
def test_no_lie_breaks_a_channel(messages) -> None:
    protocol = Channels(limit_nbytes=400)
    state = protocol.start(0, synced=True)
    protocol.on(state, PeerJoined(1), 0.0)
    for number, message in enumerate(messages):
        try:
            protocol.on(state, Arrived(1, message, [b"x" * 9] if isinstance(message, Parcel) else []), float(number))
        except MalformedMessage:
            continue
        protocol.on(state, Tick(), float(number))
    assert len(state.links[1].parts) <= 8


KINDS = (
    "adopt",
    "again",
    "answer",
    "ask",
    "bye",
    "end",
    "final",
    "full",
    "got",
    "gradient",
    "hand",
    "have",
    "last",
    "mean",
    "model",
    "piece",
    "pull",
    "push",
    "reference",
    "result",
    "settled",
    "shard",
    "stand",
    "state",
    "stray",
    "update",
    "verdict",
    "want",
    "weights",
    "whole",
    "x",
)


def lie(choose: random.Random, size: int) -> tuple[Note, bytes]:
    """A message that could be one of some method's."""
    odd = [0.0, 1.0, 2.0, 5.0, -1.0, 0.5, 2.0**53, float("nan"), float("inf")]
    numbers = [1.0] + [choose.choice(odd[:4] if choose.random() < 0.6 else odd) for _ in range(choose.randrange(4))]
    note = Note(
        choose.choice(KINDS), choose.choice([0, 0, 1, 1, 2, 3, 2**40]), choose.choice([0, 0, 1, 2, 2**30]), numbers
    )
    values = np.full(choose.choice([size, size, 1, size + 3, 2 * size]), choose.choice([1.0, 0.0, np.nan]), np.float32)
    return note, choose.choice([values.tobytes(), values.tobytes(), b"", choose.randbytes(choose.randrange(64))])


@pytest.mark.parametrize("name", sorted(name for name in REGISTRY if parse(name).is_method))
def test_no_lie_breaks_a_method(name: str) -> None:
    """Worker 3 of four says what it likes; the others may be held up by it, but nothing breaks."""
    choice = parse(name)
    method = choice.method()
    for seed in range(50):
        choose = random.Random(f"{name} {seed}")
        actor = with_codec("tether", 4) if method.streams else with_coder("topk:density=0.1", 4)
        starts = [np.ones(24, np.float32)] * 4
        world = MethodWorld(method, starts, topology=default_topology(choice), seed=seed, step=lambda _: 3, actor=actor)
        for _ in range(15):
            for rank in range(3):
                quietly(world.catch_up, rank)
                world.take_step(rank)
            for _ in range(4):
                quietly(world._hear, choose.randrange(3), Heard(3, *lie(choose, 24)))
            for _ in range(choose.randrange(8)):
                quietly(world.deliver)


def quietly(act: Callable[..., object], *given: object) -> None:
    with np.errstate(all="ignore"), suppress(MalformedMessage):
        act(*given)
