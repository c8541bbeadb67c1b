"""Streams in virtual time: what ``worker/exchange/stream.py`` does around a ``Broadcast``, with durations for computing
and messages. The strategy is the very object that a real run drives; payloads are as long as the codec's on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from taut.core.events import (
    Arrived,
    Drained,
    Ended,
    Event,
    Include,
    PeerGone,
    PeerJoined,
    Published,
    Send,
    Synced,
    Taken,
    Tick,
    Ticked,
)
from taut.core.messages import Updates
from taut.simulator.timing.accounts import ENCODE, MERGE, SEND, WAIT
from taut.simulator.timing.stand_ins import FRAME_NBYTES
from taut.simulator.timing.worker import SECOND_NS, Setting, Worker
from taut.simulator.timing.world import TimingWorld
from taut.worker.comm.dispatcher import TICK_S
from taut.worker.exchange.stream import EXCHANGE_SHARE, MOST_STEPS_PER_TURN, MUCH_SHARE, RETUNE_STEPS
from taut.worker.model.fragments import fragments

if TYPE_CHECKING:
    from taut.simulator.models.costs import CodecCost
    from taut.simulator.scenario import Scenario

TICK_NS = round(TICK_S * SECOND_NS)
HAVE_NBYTES = 4  # of a report, per worker that it speaks of


def encode_ns(cost: CodecCost, scenario: Scenario) -> int:
    """What encoding takes after each step. As a replica does: a fragment of the arena in turn, where the whole would take
    too much of a step."""
    whole_s = cost.encode_s_per_element * scenario.parameters
    parts = fragments(whole_s, scenario.parameters, scenario.speeds.step_s)
    return round((cost.fixed_s + whole_s / parts) * SECOND_NS)


class Side:
    """One worker's part of the broadcast, beside the strategy's own state."""

    __slots__ = ("arrivals", "clock", "exchange_ns", "holding", "published", "pumped_ns", "retuned_ns", "steps_per_turn")

    def __init__(self) -> None:
        self.arrivals: list[Include] = []
        self.clock = self.published = 0
        self.pumped_ns = self.exchange_ns = self.retuned_ns = 0
        self.steps_per_turn = 1
        self.holding = False  # beyond the strategy's horizon


class StreamTiming(TimingWorld):
    """Everybody runs the stream."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        scenario, costs = self.scenario, self.costs
        cost = costs.codec(setting.chosen.codec)
        dense_nbytes = 4 * scenario.parameters
        self.payload = bytes(
            max(1, round(cost.bits_per_element * scenario.parameters / 8))
        )  # one for all: it is not read
        self.dense_nbytes = max(dense_nbytes, len(self.payload))
        self.strategy = setting.chosen.strategy.stream(
            self._merge,
            budget_nbytes=max(16 << 20, dense_nbytes // 8),
            window_nbytes=max(1 << 20, dense_nbytes // 16),
            payload_nbytes=max(32 << 20, self.dense_nbytes),
        )
        self.talks = bool(self.strategy.complete)  # every stream of the registry says so
        self.encode_ns = encode_ns(cost, scenario) if self.talks else 0
        self.absorb_ns_per_byte = cost.absorb_s_per_byte * 1e9
        self.receive_ns_per_byte = costs.receive_s_per_byte * 1e9
        self.send_ns_per_byte = costs.send_s_per_byte * 1e9
        self.density = cost.bits_per_element / 32
        self.tick_ns = max(TICK_NS, round(scenario.speeds.step_s * SECOND_NS / 4))
        self._merged: dict[int, bytes] = {}

    def _merge(self, payloads: Sequence[bytes]) -> bytes:
        """Sparse updates hardly overlap; their sum is never longer than a dense one."""
        length = min(sum(map(len, payloads)), self.dense_nbytes)
        return self._merged.setdefault(length, bytes(length))

    def start(self) -> None:
        """Before a run starts all know of each other: the first reports cost no time."""
        waiting: list[tuple[int, Send]] = []
        for rank, worker in self.workers.items():
            worker.stream = Side()
            worker.state = self.strategy.start(rank, synced=True)
        for rank, worker in self.workers.items():
            for other in self.members:
                if other != rank:
                    actions = self.strategy.on(worker.state, PeerJoined(other), 0.0)
                    waiting += [(rank, action) for action in actions if isinstance(action, Send)]
        for rank, send in waiting:
            self.strategy.on(self.workers[send.to].state, Arrived(rank, send.message, []), 0.0)
        for worker in self.workers.values():
            self.at(self.tick_ns, self._tick, worker)
            if worker.goal:
                self.begin_step(worker, 0)
            else:
                self.end(worker, 0)

    # --------------------------------------------------------------------------------------------- one step

    def stepped(self, worker: Worker, now_ns: int) -> None:
        side: Side = worker.stream
        if (worker.steps - 1) % RETUNE_STEPS == 0:
            self._retune(side, now_ns)
        if worker.steps % side.steps_per_turn:
            self._go_on(worker, now_ns)
            return
        worker.training = False
        clock_ns = self._take_in(worker, max(now_ns, worker.busy_ns))
        worker.account.charge(SEND, clock_ns)
        positions, clock_ns = self._include(worker, clock_ns)
        worker.account.charge(MERGE, clock_ns)
        if self.talks:
            clock_ns += self.encode_ns
            worker.account.charge(ENCODE, clock_ns)
        worker.busy_ns = clock_ns
        side.exchange_ns += clock_ns - now_ns
        if clock_ns > now_ns:
            self.at(clock_ns, self._hand_over, worker, positions)
        else:
            self._hand_over(now_ns, worker, positions)

    def _hand_over(self, now_ns: int, worker: Worker, positions: dict[int, int]) -> None:
        side: Side = worker.stream
        clock_ns = self._tell(worker, Taken(positions), now_ns) if positions else now_ns
        if self.talks:
            side.published += 1
            worker.account.sent += 1
            clock_ns = self._tell(worker, Published(self.payload), clock_ns)
        worker.account.charge(SEND, clock_ns)
        side.exchange_ns += clock_ns - now_ns
        side.pumped_ns = clock_ns
        if self.strategy.bounded:
            side.clock += 1
            clock_ns = self._tell(worker, Ticked(side.clock), clock_ns)
        self._go_on(worker, clock_ns)

    def _go_on(self, worker: Worker, now_ns: int) -> None:
        worker.training = False
        if worker.steps >= worker.goal:
            self.end(worker, now_ns)
        elif worker.stream.clock > self.strategy.horizon(worker.state):
            worker.stream.holding = True
        else:
            self.begin_step(worker, now_ns)

    def _retune(self, side: Side, now_ns: int) -> None:
        """Exchange after every step, or where that would take too much of the time, less often: as ``Streaming`` does."""
        cost_ns = side.exchange_ns * side.steps_per_turn
        share = cost_ns / max(now_ns - side.retuned_ns - side.exchange_ns, 1)
        side.retuned_ns, side.exchange_ns, side.steps_per_turn = now_ns, 0, 1
        may_skip = self.talks and not self.strategy.bounded
        wanted = min(MOST_STEPS_PER_TURN, share / EXCHANGE_SHARE) if may_skip and share > MUCH_SHARE else 1
        while side.steps_per_turn < wanted:
            side.steps_per_turn *= 2

    # ----------------------------------------------------------------------------------------------- messages

    def _mail(self, now_ns: int, worker: Worker, mail: tuple[int, Any, list[bytes], int]) -> None:
        """While it trains a worker looks after messages between steps, or, where those are long, now and then."""
        side: Side = worker.stream
        if mail[0] in self.dead:
            return
        if worker.busy_ns > now_ns or (worker.training and now_ns - side.pumped_ns < TICK_NS):
            worker.inbox.append(mail)
            if not worker.waking:
                worker.waking = True
                due_ns = side.pumped_ns + TICK_NS if worker.training else worker.busy_ns
                self.at(max(due_ns, worker.busy_ns), self._wake, worker)
            return
        self._attend(worker, mail, now_ns)

    def _attend(self, worker: Worker, mail: tuple[int, Any, list[bytes], int], now_ns: int) -> None:
        clock_ns = self._hear(worker, mail, now_ns)
        if not worker.training:
            self._idle(worker, clock_ns)

    def _wake(self, now_ns: int, worker: Worker, _: None) -> None:
        worker.waking = False
        if worker.training and now_ns - worker.stream.pumped_ns < TICK_NS:
            return  # it has come by since, and will again
        clock_ns = self._take_in(worker, max(now_ns, worker.busy_ns))
        if not worker.training:
            self._idle(worker, clock_ns)

    def _take_in(self, worker: Worker, now_ns: int) -> int:
        """Everything that has come; when that is done."""
        clock_ns, inbox = now_ns, worker.inbox
        while inbox:
            mail = inbox.popleft()
            if mail[0] not in self.dead:
                clock_ns = self._hear(worker, mail, clock_ns)
        return clock_ns

    def _hear(self, worker: Worker, mail: tuple[int, Any, list[bytes], int], now_ns: int) -> int:
        sender, message, payloads, nbytes = mail
        cost_ns = self.message_ns + int(nbytes * self.receive_ns_per_byte)
        if worker.training:
            worker.debt_ns += cost_ns
        return self._tell(worker, Arrived(sender, message, payloads), now_ns + cost_ns)

    def _include(self, worker: Worker, now_ns: int) -> tuple[dict[int, int], int]:
        side: Side = worker.stream
        positions: dict[int, int] = {}
        nbytes = 0
        for item in side.arrivals:
            positions[item.origin] = item.hi
            nbytes += len(item.payload)
        worker.account.included += len(side.arrivals)
        side.arrivals = []
        return positions, now_ns + int(nbytes * self.absorb_ns_per_byte)

    def _idle(self, worker: Worker, now_ns: int) -> None:
        """While it waits, a worker goes on including, and looks whether it may go on."""
        side: Side = worker.stream
        positions, clock_ns = self._include(worker, now_ns)
        if positions:
            clock_ns = self._tell(worker, Taken(positions), clock_ns)
        worker.busy_ns = max(worker.busy_ns, clock_ns)
        if worker.ended:
            if self.strategy.bounded and worker.state.fastest() > side.clock:
                side.clock = worker.state.fastest()  # nobody is to wait for one that has no data
                self._tell(worker, Ticked(side.clock), clock_ns)
        elif side.holding and side.clock <= self.strategy.horizon(worker.state):
            side.holding = False
            worker.account.charge(WAIT, clock_ns)
            self.begin_step(worker, clock_ns)

    def _tell(self, worker: Worker, event: Event, now_ns: int) -> int:
        """Tell the strategy, and carry out what it answers; when that is done."""
        clock_ns = now_ns
        for action in self.strategy.on(worker.state, event, now_ns * 1e-9):
            if type(action) is Send:
                clock_ns = self._post(worker, action, clock_ns)
            elif type(action) is Include:
                worker.stream.arrivals.append(action)
            elif type(action) is Drained:
                worker.finished = True
                self.look_whether_all_finished(clock_ns)
        if clock_ns > now_ns:
            worker.busy_ns = max(worker.busy_ns, clock_ns)
            if worker.training:
                worker.debt_ns += clock_ns - now_ns
        return clock_ns

    def _post(self, worker: Worker, send: Send, now_ns: int) -> int:
        receiver = self.workers.get(send.to)
        if receiver is None or not receiver.alive:
            return now_ns
        if isinstance(send.message, Updates):
            nbytes = FRAME_NBYTES + sum(map(len, send.payloads))
        else:
            nbytes = FRAME_NBYTES + HAVE_NBYTES * len(self.members)
        clock_ns = now_ns + self.message_ns + int(nbytes * self.send_ns_per_byte)
        worker.account.bytes_sent += nbytes
        arrives_ns = self.network.arrival(worker.rank, send.to, nbytes, clock_ns)
        self.at(arrives_ns, self._mail, receiver, (worker.rank, send.message, list(send.payloads), nbytes))
        return clock_ns

    def _tick(self, now_ns: int, worker: Worker, _: None) -> None:
        """Time passes: what is overdue is sent."""
        self.ticked()
        self._tell(worker, Tick(), max(now_ns, worker.busy_ns))
        if not worker.training:
            self._idle(worker, max(now_ns, worker.busy_ns))
        self.at(now_ns + self.tick_ns, self._tick, worker)

    # ------------------------------------------------------------------------------- who comes, goes, and ends

    def end(self, worker: Worker, now_ns: int) -> None:
        super().end(worker, now_ns)
        self._idle(worker, now_ns)
        self.look_whether_all_ended(now_ns)

    def drain(self, now_ns: int) -> None:
        for rank in self.members:
            worker = self.workers[rank]
            clock_ns = max(now_ns, worker.busy_ns)
            self._idle(worker, clock_ns)
            if self.talks:
                worker.stream.published += 1
                clock_ns = self._tell(worker, Published(self.payload), max(clock_ns, worker.busy_ns))
            self._tell(worker, Ended(), clock_ns)

    def changed(self, now_ns: int, gone: int | None) -> None:
        for rank in self.members:
            worker = self.workers[rank]
            if worker.alive and gone is not None:
                self._tell(worker, PeerGone(gone), max(now_ns, worker.busy_ns))
                if not worker.training:
                    self._idle(worker, max(now_ns, worker.busy_ns))

    def admit(self, worker: Worker, donor: Worker, now_ns: int) -> None:
        """The newcomer's state has arrived. Who holds what for it is agreed upon at the same moment."""
        worker.stream = Side()
        worker.stream.pumped_ns = now_ns
        worker.state = self.strategy.start(worker.rank, synced=False)
        for rank in sorted(self.gone):
            if rank not in self.members:
                self._tell(worker, PeerGone(rank), now_ns)
        for rank in self.members:
            if rank != worker.rank:
                self._tell(worker, PeerJoined(rank), now_ns)
                self._tell(self.workers[rank], PeerJoined(worker.rank), now_ns)
        positions, _ = self._include(donor, now_ns)
        self._tell(donor, Taken(positions), now_ns)
        have = {**donor.state.taken, donor.rank: donor.state.log_of(donor.rank).head}
        self._tell(worker, Synced(have, donor.state.tail(have)), now_ns)
        worker.stream.clock = worker.state.clock
        self.at(now_ns + self.tick_ns, self._tick, worker)
        self.begin_step(worker, now_ns)

    def figures(self, worker: Worker) -> dict[str, float]:
        return {"staleness": float(worker.state.staleness * worker.stream.steps_per_turn)}
