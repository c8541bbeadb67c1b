"""A place in a run: admission, the state, leases, exchange, and the orderly end. All of it in the training thread."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from taut.codecs import Codec, merge, parse
from taut.communication.keys import Token, WorkerKeys, read_token_file
from taut.communication.zmq_transport import ZmqTransport
from taut.config import WorkerEnvironment
from taut.core.messages import (
    PROTOCOL_VERSION,
    Digest,
    Done,
    Hello,
    Lease,
    LeaseDone,
    LeaseRequest,
    Ready,
    Statistics,
    Upload,
    Welcome,
)
from taut.errors import ReplicasDiffer, RunFailed, SupervisorLost
from taut.strategies import named
from taut.strategies.broadcast import Broadcast
from taut.worker.arena import Arena
from taut.worker.batches import LeaseSource, Plan
from taut.worker.facts import Facts
from taut.worker.node import Node
from taut.worker.participant import Participant
from taut.worker.replica import Replica
from taut.worker.state import unpack

UPLOAD_NBYTES = 1 << 20
RETUNE_STEPS = 64
EXCHANGE_SHARE = 0.03
MOST_STEPS_PER_TURN = 8
LEASES_AHEAD = 3
LEASE_S = 0.1  # at least, where steps are shorter: asking costs a round trip, perhaps of a busy machine


class Seat:
    """Takes a place in the run that ``environment`` names, for the model in ``arena``. When the constructor returns, the
    worker is admitted and has the run's state; ``train`` waits for the start."""

    def __init__(self, environment: WorkerEnvironment, arena: Arena, codec: str | None = None) -> None:
        self.arena, self._codec_of_script = arena, codec
        self.statistics: Callable[[], Statistics] = Statistics
        self.bytes_dense = 0
        self._steps = 0
        self._steps_per_turn = 1
        self._exchange_s = 0.0  # of this thread, spent on exchanges since the last retune
        self._retuned_s = time.thread_time()
        self._settings: dict[str, Any] = {}
        token = environment.token or read_token_file(environment.token_file or "")
        keys = WorkerKeys.generate()
        transport = ZmqTransport(
            keys,
            bind=environment.bind,
            advertise=environment.advertise,
            supervisor=(environment.supervisor, Token.parse(token)),
        )
        state_nbytes = 4 * arena.size + len(arena.still_bytes())
        self.node = Node(
            transport,
            self._strategy,
            statistics=self._count,
            sketch=self._take_sketch,
            state_limit_nbytes=8 * state_nbytes + (256 << 20),
        )
        self.node.start()
        try:
            self._admit(keys.public_key, transport.address)
        except BaseException:
            self.node.close()
            raise

    def _strategy(self, welcome: Welcome) -> Broadcast:
        settings = json.loads(welcome.settings)
        budget_nbytes = max(16 << 20, 4 * self.arena.size // 8)
        window_nbytes = max(1 << 20, 4 * self.arena.size // 16)  # several updates, whatever the model's size
        chosen = named(settings.get("strategy", "async"))
        return chosen(merge=merge, budget_nbytes=budget_nbytes, window_nbytes=window_nbytes)

    def _codec(self) -> Codec:
        chosen = self._settings.get("codec", "tether")
        if self._codec_of_script is not None and "codec" not in self._settings.get("explicit", ()):
            chosen = self._codec_of_script
        return parse(chosen)

    def _admit(self, public_key: str, address: str) -> None:
        node = self.node
        host = socket.gethostname()[:255]
        node.say(Hello(PROTOCOL_VERSION, self.arena.specs(), address, public_key, host, os.getpid()))
        node.wait(lambda facts: facts.welcome is not None, _nothing)
        welcome = node.facts.welcome
        assert welcome is not None
        self.seed = welcome.seed
        self._settings = json.loads(welcome.settings)
        self._talks = named(self._settings.get("strategy", "async")).complete
        self.replica = Replica(self.arena, self._codec(), self._talks)
        self.participant = Participant(self.replica, node)
        self.leases = SupervisorLeases(self)
        node.wait(lambda facts: facts.donor == -1 or facts.state is not None, _nothing)
        if node.facts.state is None:
            self.replica.found(max(1, welcome.workers))
            node.synced({}, ())
        else:
            data, have = node.facts.state
            state = unpack(data)
            node.facts.state = None  # its bytes are in the model now
            self.replica.join(state, max(1, welcome.workers))
            self.participant.have.update(have)
            node.synced(have, state.tail)
        node.say(Ready())

    def train(self) -> None:
        """Wait for the start."""
        self.node.wait(lambda facts: facts.started or facts.drain is not None, self.participant.idle)
        self.participant.watch.restart()

    @property
    def stopping(self) -> bool:
        return self.node.facts.drain is not None

    def exchange(self) -> None:
        """After a local step: include what arrived, send what changed."""
        participant, node = self.participant, self.node
        if node.facts.failure is not None:
            raise node.facts.failure
        participant.watch.charge("compute")
        self.bytes_dense += 4 * self.arena.size * (node.workers - 1)
        if self._steps % RETUNE_STEPS == 0:
            self._retune()
        self._steps += 1
        if self._steps % self._steps_per_turn:
            return
        begun_s = time.thread_time()
        if self._talks:
            participant.turn()
        else:
            participant.idle()
        self._exchange_s += time.thread_time() - begun_s

    def _retune(self) -> None:
        """Tell the codec how many there are and how late updates come (in exchanges). Where steps are so short that
        exchanging after each would cost more than ``EXCHANGE_SHARE`` of the time, exchange after every second, fourth or
        eighth: the slack absorbs the wait, and as an element sends one sign per exchange at most, nothing piles up."""
        now_s = time.thread_time()  # this thread's own time: how busy the machine is must not change what is sent
        cost_s = self._exchange_s * self._steps_per_turn  # as if after each step
        share = cost_s / max(now_s - self._retuned_s - self._exchange_s, 1e-9)
        self._retuned_s, self._exchange_s = now_s, 0.0
        self._steps_per_turn = 1
        while self._talks and self._steps_per_turn < min(MOST_STEPS_PER_TURN, share / EXCHANGE_SHARE):
            self._steps_per_turn *= 2
        self.replica.retune(self.node.workers, self.node.staleness)
        self.replica.update_sketch()

    def add_statistics(self, mine: Statistics) -> Statistics:
        """``mine`` with what the seat knows: traffic and codec."""
        codec_state = self.replica.codec_state
        return msgspec.structs.replace(
            mine,
            bytes_sent=self.node.bytes_sent,
            bytes_dense=self.bytes_dense,
            updates_sent=self.participant.published,
            updates_included=self.participant.included,
            staleness=float(self.node.staleness * self._steps_per_turn),
            density=float(codec_state.density) if codec_state is not None else 0.0,
            tau=float(codec_state.tau) if codec_state is not None else 0.0,
        )

    def _count(self) -> Statistics:
        return self.statistics()

    def _take_sketch(self) -> list[float]:
        replica = getattr(self, "replica", None)
        return replica.sketch if replica is not None else []

    # --------------------------------------------------------------------------------------------- the end

    def finish(self) -> None:
        """Drain, agree on the model, hand it in if asked to, and go."""
        node, participant = self.node, self.participant
        try:
            node.say(Done())
            node.wait(lambda facts: facts.drain is not None, participant.idle)
            participant.watch.charge("wait")
            self._flush()
            participant.drain()
            self._agree()
        except SupervisorLost as error:
            raise SupervisorLost(f"{error}; the model as this worker has it is in {self.save_here()}") from None
        finally:
            node.close(linger_s=1.0)

    def save_here(self) -> Path:
        """Nobody takes the model: it must not be lost."""
        from safetensors.torch import save_file

        assert self.node.facts.welcome is not None
        self.replica.settle()
        path = Path(f"{self.node.facts.welcome.run}-worker-{self.node.rank}.safetensors").absolute()
        temporary = path.with_suffix(".part")
        save_file(self.arena.state_dict(), temporary)
        temporary.replace(path)
        return path

    def leave(self) -> None:
        """Go before the end: flush, wait until all others have everything of ours, say good-bye."""
        try:
            self._flush()
            self.node.end()
            self.node.wait(lambda _: self.node.settled(), self.participant.idle)
            self.node.say(Done(leaving=True))
        finally:
            self.node.close(linger_s=1.0)

    def _flush(self) -> None:
        positions = self.participant.merge()
        self.participant.watch.charge("merge")
        for payload in self.replica.flush() if self._talks else []:
            self.participant.hand_over(payload, positions)
            positions = {}
        if positions:
            self.node.taken(positions)

    def _agree(self) -> None:
        node, replica = self.node, self.replica
        exact = replica.codec.exact and self._talks
        if exact and replica.grid is not None:
            exact = not replica.grid.exceeded(replica.shared())
        have = {**self.participant.have, node.rank: self.participant.published}
        digest = Digest(replica.digest(), exact, have, self.statistics())
        node.say(digest, [self.arena.buffer_bytes()])
        replica.settle()
        node.wait(lambda facts: facts.finish is not None, self.participant.idle)
        assert node.facts.finish is not None
        finish, buffers = node.facts.finish
        if buffers:
            self.arena.load_buffers(buffers)
        self._hand_in()
        if exact and not finish.identical:
            raise ReplicasDiffer("replicas differ after the drain, although this codec promises that they cannot")

    def _hand_in(self) -> None:
        """Wait until the model is saved; upload it as soon as this worker is the one asked for it."""
        node = self.node

        def asked(facts: Facts) -> bool:
            return facts.finish is not None and facts.finish[0].writer == node.rank

        node.wait(lambda facts: facts.saved is not None or asked(facts), self.participant.idle)
        if asked(node.facts):
            self._upload()
        node.wait(lambda facts: facts.saved is not None, self.participant.idle)
        saved = node.facts.saved
        if saved is not None and saved.error and asked(node.facts):
            raise RunFailed(f"the supervisor could not save the model: {saved.error}")

    def _upload(self) -> None:
        from safetensors.torch import save

        data = save(self.arena.state_dict())
        for offset in range(0, max(1, len(data)), UPLOAD_NBYTES):
            self.node.say(Upload(offset, len(data)), [data[offset : offset + UPLOAD_NBYTES]])


class SupervisorLeases(LeaseSource):
    """Leases from the supervisor, asked for ahead so that nobody waits for the network between them."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._asked = 0  # requests under way

    def take(self, plan: Plan) -> Lease | None:
        seat, facts = self._seat, self._seat.node.facts
        final = plan.until - 1

        def answered(facts: Facts) -> bool:
            return bool(facts.leases) or final in facts.dealt_out or facts.drain is not None

        self._ask(plan)
        if not answered(facts):
            seat.participant.watch.charge("data")
            seat.node.wait(answered, seat.participant.idle, again=lambda: self._ask_again(plan))
            seat.participant.watch.charge("wait")
        if facts.drain is not None:
            return None
        if not facts.leases:
            self._asked = 0
            return None
        lease = facts.leases.popleft()
        self._asked -= 1
        if final not in facts.dealt_out:
            self._ask(plan)
        return lease

    def _ask(self, plan: Plan) -> None:
        """Keep ``LEASES_AHEAD`` answers under way or at hand."""
        while self._asked < LEASES_AHEAD:
            self._asked += 1
            least = self._least_batches()
            self._seat.node.say(LeaseRequest(plan.first, plan.length, plan.batch_size, plan.last, plan.until, least))

    def _ask_again(self, plan: Plan) -> None:
        """A lease may have been lost with a connection that broke; one too many does no harm."""
        self._asked = 0
        self._ask(plan)

    def _least_batches(self) -> int:
        """So many that a lease lasts ``LEASE_S``, by the steps so far."""
        made = self._seat.statistics()
        return max(1, min(64, round(LEASE_S * made.steps / made.wall_s))) if made.wall_s > 0 else 1

    def done(self, lease: Lease) -> None:
        self._seat.node.say(LeaseDone([lease.lease]))


def _nothing() -> None:
    pass
