"""Fuzzing of the messages between workers: whatever one of them sends, the others go on.

One worker of a small world sends anything: messages made of random fields, and copies of real ones with a field or some
bytes changed. Every strategy of the registry gets them in every state of a run: before the first step, in mid-run, after
deaths and joins, while the run is drained. A message is accepted or refused (``MalformedMessage``); any other exception
is a failure.

    from fuzzers.peer_fuzz import fuzz_peers
    fuzz_peers(count=10_000, seed=0)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from fuzzers.frame_fuzz import mutated
from fuzzers.message_samples import message_samples
from taut.codecs import merge, snap
from taut.codecs import parse as parse_codec
from taut.core import events
from taut.core import messages as m
from taut.errors import MalformedMessage
from taut.strategies.api import Draining, HeldUp
from taut.strategies.compatibility import default_topology
from taut.strategies.delivery.channels import Channels
from taut.strategies.registry import REGISTRY, Choice, parse
from taut.testing.worlds.codec_actor import with_codec, with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.transport.framing import encode, payload_count
from taut.transport.memory import MemoryNetwork
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.comm.phase_protocols import Protocol

DISPATCHER = "dispatcher"  # beside the strategies: a worker's communication thread
HONEST, LIAR = 3, 3  # workers 0, 1, 2, and the rank of the one that lies
SIZE = 24
EPISODE = 60  # lies in one world
NUMBERS = (0, 1, 2, 3, 5, 8, 40, 300, 2**24, 2**40, 2**62)
SCALARS = (0.0, 1.0, 2.0, 3.0, 5.0, -1.0, 0.5, 2.0**20, 2.0**53, 1e300, float("inf"), float("nan"))
FLOATS = (0.0, 1.0, -1.0, 1e30, float("inf"), float("nan"))
KINDS = (
    "adopt", "again", "answer", "ask", "back", "bye", "declined", "end", "final", "full", "got", "gradient", "hand",
    "have", "inherited", "kept", "last", "lend", "lent", "mean", "missed", "model", "piece", "pull", "push",
    "reference", "report", "residual", "result", "settled", "shard", "share", "stand", "state", "stray", "taken",
    "took?", "unknown", "update", "verdict", "want", "weights", "whole", "will", "x",
)  # fmt: skip


@dataclass
class Lies:
    """Counts of the lies: messages that no correct worker sends."""

    refused: int = 0
    taken: int = 0

    def tell(self, act: Callable[[], object]) -> None:
        """Do what a lie leads to, and count whether it is refused."""
        try:
            with np.errstate(all="ignore"):
                act()
        except MalformedMessage:
            self.refused += 1
        else:
            self.taken += 1


def fuzz_peers(count: int, seed: int) -> Lies:
    """Send ``count`` lies, in turn to the workers of every strategy.

    >>> lies = fuzz_peers(count=200, seed=0)
    >>> lies.refused + lies.taken, lies.refused > 0, lies.taken > 0
    (200, True, True)
    """
    choose, lies = random.Random(seed), Lies()
    names = sorted(REGISTRY)
    while lies.refused + lies.taken < count:
        name = choose.choice([*names, DISPATCHER, DISPATCHER])
        episode = min(EPISODE, count - lies.refused - lies.taken)
        if name == DISPATCHER:
            _fuzz_dispatcher(episode, choose, lies)
        elif Choice(name).is_method:
            _fuzz_method(parse(name), episode, choose, lies)
        else:
            _fuzz_stream(parse(name), episode, choose, lies)
    return lies


# ---------------------------------------------------------------------------------------------------- dispatcher


def _fuzz_dispatcher(count: int, choose: random.Random, lies: Lies) -> None:
    """Send frames, whole and broken, to a worker's communication thread, in any phase."""
    wire = MemoryNetwork()
    mine, theirs = wire.transport(0), wire.transport(1)
    theirs.admit(wire.member(0))
    samples = [encode(each, [b"payload"] * payload_count(each)) for each in message_samples() if _is_of_peers(each)]

    def protocol() -> Protocol:
        return choose.choice((Channels(limit_nbytes=4000), parse("async").stream(b"".join, budget_nbytes=200)))

    comm = CommThread(Dispatcher(mine, lambda _: protocol(), state_limit_nbytes=10_000))
    comm.join_alone(0, [wire.member(1)])
    for _ in range(count):
        what = choose.random()
        if what < 0.05:
            comm.dispatcher.work(None)
            comm.protocols.advance(protocol())
            comm.transfer.enter(comm.phase_protocol.phase)
        elif what < 0.3:
            positions = {item.origin: item.hi for item in comm.take()}
            if positions:
                comm.tell(events.Taken(positions))
            while comm.phase_protocol.mail:
                comm.phase_protocol.take_mail()
        frames = mutated(samples, choose) if what < 0.6 else _framed(choose)
        before = sum(comm.rejections.counts.values())
        theirs.send(0, frames)
        theirs.receive(0.0)
        comm.dispatcher.work(0.0)
        refused = sum(comm.rejections.counts.values()) > before
        lies.refused, lies.taken = lies.refused + refused, lies.taken + (not refused)
    comm.close()


def _is_of_peers(message: m.Message) -> bool:
    return isinstance(message, m.PeerMessage)


def _framed(choose: random.Random) -> list[bytes]:
    phase, number, seq = choose.choice((0, 0, 0, 1, 2, 9)), choose.choice(NUMBERS), choose.choice((1, 2, 3, 2**40))
    message: m.Message = choose.choice(
        (
            m.Parcel(seq, number, m.Note("x"), choose.randrange(2), choose.randrange(1, 3), phase),
            m.Receipt(number, choose.random() < 0.5, phase),
            m.StateRequest(number, phase),
            m.StateChunk(number, choose.choice(NUMBERS), {1: number}, phase),
            msgspec.structs.replace(_told([], choose), phase=phase),
        )
    )
    count = payload_count(message)
    return encode(message, [choose.randbytes(choose.randrange(40)) for _ in range(count)])


# ------------------------------------------------------------------------------------------------------- methods


def _fuzz_method(choice: Choice, count: int, choose: random.Random, lies: Lies) -> None:
    method = choice.method()
    actor = with_codec("tether", HONEST + 1) if method.streams else with_coder("topk:density=0.1", HONEST + 1)
    starts = [np.ones(SIZE, np.float32)] * (HONEST + 1)
    seed, topology = choose.randrange(2**32), default_topology(choice)
    world = MethodWorld(method, starts, topology=topology, seed=seed, step=_step, actor=actor)
    drains_at, churns_at = choose.randrange(2 * count), choose.randrange(2 * count)
    for number in range(count):
        if number == drains_at:
            _drain(world)
        if number == churns_at and method.admits_late:
            _quietly(world.join if choose.random() < 0.5 else lambda: world.kill(choose.randrange(HONEST)))
        for _ in range(choose.randrange(4)):
            _quietly(lambda: _live(world, choose))
        victims = [rank for rank in world.actors if rank != LIAR]
        victim = choose.choice(victims)
        note, payload = _lie(world, choose)
        lies.tell(lambda: world._hear(victim, events.Heard(LIAR, note, payload)))  # noqa: B023


def _step(actor: Actor) -> int:
    actor.x *= np.float32(0.9)
    return 3


def _live(world: MethodWorld, choose: random.Random) -> None:
    """Let something honest happen."""
    what, rank = choose.random(), choose.choice(sorted(world.actors))
    if what < 0.4:
        world.deliver()
    elif rank != LIAR:
        world.catch_up(rank)
        if what < 0.9:
            world.take_step(rank)
        elif world.method.drifts and not world.actors[rank].proceed:
            world.tell(rank, HeldUp())


def _drain(world: MethodWorld) -> None:
    for rank in sorted(world.actors):
        if rank != LIAR:
            world.actors[rank].ended = True
            _quietly(lambda: world.catch_up(rank))  # noqa: B023
            for event in (events.Ended(), Draining()):
                _quietly(lambda: world.tell(rank, event))  # noqa: B023


def _lie(world: MethodWorld, choose: random.Random) -> tuple[m.Note, bytes]:
    """Return a made-up message, or a real one, changed."""
    real = [item for queue in world.queues.values() for item in queue]
    if real and choose.random() < 0.6:
        item = choose.choice(real)
        return _bent(item.note, choose), _changed(item.payload, choose)
    numbers = [choose.choice(SCALARS) for _ in range(choose.randrange(6))]
    if choose.random() < 0.6:
        numbers = [float(world.version), *numbers[:2]]
    part = choose.choice((0, 0, 0, 1, 2, 2**30))
    values = np.full(choose.choice((SIZE, SIZE, 1, SIZE + 3, 2 * SIZE)), choose.choice(FLOATS), np.float32)
    payload = choose.choice((values.tobytes(), values.tobytes(), b"", choose.randbytes(choose.randrange(64))))
    return m.Note(choose.choice(KINDS), choose.choice(NUMBERS), part, numbers), payload


def _bent(note: m.Note, choose: random.Random) -> m.Note:
    kind, round_, part, numbers = note.kind, note.round, note.part, list(note.numbers)
    what = choose.randrange(6)
    if what == 0:
        kind = choose.choice(KINDS)
    elif what == 1:
        round_ = max(0, round_ + choose.choice((-2, -1, 1, 2, 2**40)))
    elif what == 2:
        part = choose.choice(NUMBERS)
    elif what == 3 and numbers:
        numbers[choose.randrange(len(numbers))] = choose.choice(SCALARS)
    elif what == 4:
        numbers = numbers[:-1] if choose.random() < 0.5 else [*numbers, choose.choice(SCALARS)]
    return m.Note(kind, round_, part, numbers)


def _changed(payload: bytes, choose: random.Random) -> bytes:
    raw = bytearray(payload)
    for _ in range(choose.randrange(3) if raw else 0):
        raw[choose.randrange(len(raw))] = choose.randrange(256)
    return bytes(raw[: choose.randrange(len(raw) + 1)]) if choose.random() < 0.1 else bytes(raw)


def _quietly(act: Callable[[], object]) -> None:
    """Let an honest worker act on what it received before."""
    try:
        with np.errstate(all="ignore"):
            act()
    except MalformedMessage:
        pass


# ------------------------------------------------------------------------------------------------------- streams


def _fuzz_stream(choice: Choice, count: int, choose: random.Random, lies: Lies) -> None:
    codec, weights = parse_codec("tether:slack=2^-6"), np.ones(SIZE, np.float32)
    state = codec.start(weights, HONEST + 1, snap(weights, [SIZE]))
    payloads = _payloads(choose)
    protocol = choice.stream(
        lambda some: merge(some, SIZE),
        budget_nbytes=200,
        window_nbytes=100,
        payload_nbytes=choose.choice((60, 1000)),
        keep_nbytes=2000,
        check=lambda payload: codec.check(state, payload),
        compares=True,
    )
    own: Any = protocol.start(0, True)
    now = 0.0
    said: list[m.Updates | m.Report] = []

    def happen(event: events.Event) -> None:
        for action in protocol.on(own, event, now):
            if isinstance(action, events.Send) and isinstance(action.message, m.Updates | m.Report):
                said.append(action.message)

    for rank in range(1, HONEST + 1):
        happen(events.PeerJoined(rank))
    for _ in range(count):
        now += choose.choice((0.0, 0.01, 0.6))
        for _ in range(choose.randrange(3)):
            happen(_honest(own, payloads, choose))
        message = _told(said[-8:], choose)
        some = [
            _changed(choose.choice(payloads), choose) for _ in (message.spans if isinstance(message, m.Updates) else ())
        ]
        sender = choose.choice((1, 1, 2, LIAR, 9))
        lies.tell(lambda: happen(events.Arrived(sender, message, some)))  # noqa: B023


def _payloads(choose: random.Random) -> list[bytes]:
    codec, weights = parse_codec("tether:slack=2^-6"), np.ones(SIZE, np.float32)
    state = codec.start(weights, HONEST + 1, snap(weights, [SIZE]))
    found = []
    for _ in range(8):
        weights += np.float32(choose.choice((0.02, -0.05, 0.5)))
        found.append(codec.emit(state, 0, SIZE))
    return [payload for payload in found if payload] + [b""]


def _honest(state: Any, payloads: list[bytes], choose: random.Random) -> events.Event:
    """Return an event of an honest worker that no message causes."""
    possible: list[events.Event] = [events.Tick(), events.Taken({rank: log.head for rank, log in state.logs.items()})]
    if state.final >= 0:
        return choose.choice(possible[:2])
    possible += [events.Published(payloads[0]), events.Published(None), events.Ticked(state.clock + 1)]
    if choose.random() < 0.05:
        possible = [
            events.PeerGone(choose.choice((1, 2, LIAR))),
            events.PeerJoined(choose.randrange(4, 7)),
            events.Ended(),
        ]
    return choose.choice(possible)


def _told(real: list[m.Updates | m.Report], choose: random.Random) -> m.Updates | m.Report:
    """Return updates or a report: made up, or those of an honest worker, from another sender."""
    if real and choose.random() < 0.3:
        return choose.choice(real)

    def number() -> int:
        return choose.choice(NUMBERS)

    def rank() -> int:
        return choose.choice((0, 1, 2, 3, 9))

    if choose.random() < 0.6:
        spans = []
        for _ in range(choose.randrange(1, 4)):
            lo = choose.randrange(1, 12) if choose.random() < 0.8 else max(1, number())
            spans.append(m.Span(rank(), lo, lo if choose.random() < 0.7 else max(1, min(2**62, lo + number() - 1))))
        return m.Updates(number(), number(), spans)
    have = {rank(): number() for _ in range(3)}
    merged = [(choose.randrange(12), choose.randrange(12)) for _ in range(2)]
    marks = [m.Mark(rank(), choose.randrange(12), choose.randbytes(16)) for _ in range(2)]
    position, final = choose.choice((-1, *NUMBERS)), choose.choice((-1, -1, *NUMBERS))
    gap = choose.random() < 0.5
    return m.Report(choose.randrange(3), position, gap, have, [rank()], final, number(), 0, merged, marks)
