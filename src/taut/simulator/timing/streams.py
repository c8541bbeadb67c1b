"""Streams in virtual time: the turns of ``worker/exchange/stream_driver.py``, with durations for computing and messages.
Strategy and turns are those of a real run; payloads are as long as the codec's on average."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from taut.codecs.registry import parse
from taut.core.events import (
    Arrived,
    Drained,
    Event,
    Include,
    PeerGone,
    PeerJoined,
    Send,
    Synced,
    Tick,
)
from taut.core.messages import Updates
from taut.simulator.timing.accounts import Account
from taut.simulator.timing.stand_ins import FRAME_NBYTES
from taut.simulator.timing.stream_worker import StreamWorker
from taut.simulator.timing.worker import SECOND_NS, Setting
from taut.simulator.timing.world import TICK_NS, TimingWorld
from taut.worker.exchange.stream_driver import ALONE_STEPS_PER_TURN, StreamDriver, stream_limits
from taut.worker.exchange.turns import Turn, Wait
from taut.worker.model.fragments import fragments

if TYPE_CHECKING:
    from taut.simulator.models.costs import CodecCost
    from taut.simulator.scenario import Scenario

HAVE_NBYTES = 4  # of a report, per worker that it speaks of


def encode_ns(cost: CodecCost, scenario: Scenario) -> int:
    """Return how long encoding takes after each step. As a replica does: a fragment of the weights in turn, where the
    whole would take too much of a step."""
    whole_s = cost.encode_s_per_element * scenario.parameters
    parts = fragments(whole_s, scenario.parameters, scenario.speeds.step_s)
    return round((cost.fixed_s + whole_s / parts) * SECOND_NS)


class StreamTiming(TimingWorld[StreamWorker]):
    """A world in which every worker runs the stream."""

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
            self._merge, payload_nbytes=max(32 << 20, self.dense_nbytes), **stream_limits(dense_nbytes)
        )
        self.publishes = bool(self.strategy.complete)  # every stream of the registry says so
        self.encode_ns = encode_ns(cost, scenario) if self.publishes else 0
        self.absorb_ns_per_byte = cost.absorb_s_per_byte * 1e9
        self.receive_ns_per_byte = costs.receive_s_per_byte * 1e9
        self.send_ns_per_byte = costs.send_s_per_byte * 1e9
        self.density = cost.bits_per_element / 32
        self.catches_up = parse(setting.chosen.codec).catches_up
        self.steps_alone = 1 if self.keeps_residual else ALONE_STEPS_PER_TURN
        self.tick_ns = max(TICK_NS, round(scenario.speeds.step_s * SECOND_NS / 4))
        self._merged: dict[int, bytes] = {}

    def _merge(self, payloads: Sequence[bytes]) -> bytes:
        """Return a stand-in for a sum. Sparse updates hardly overlap; their sum is never longer than a dense one."""
        length = min(sum(map(len, payloads)), self.dense_nbytes)
        return self._merged.setdefault(length, bytes(length))

    def make_worker(self, rank: int, goal: int, account: Account) -> StreamWorker:
        return StreamWorker(self, rank, goal, account)

    def start(self) -> None:
        """Make all know of each other, as before a run starts: the first reports cost no time."""
        waiting: list[tuple[int, Send]] = []
        for worker in self.workers.values():
            self._equip(worker, synced=True)
        for rank, worker in self.workers.items():
            for other in self.members:
                if other != rank:
                    actions = self.strategy.on(worker.strategy_state, PeerJoined(other), 0.0)
                    waiting += [(rank, action) for action in actions if isinstance(action, Send)]
        for rank, send in waiting:
            self.strategy.on(self.workers[send.to].strategy_state, Arrived(rank, send.message, []), 0.0)
        for worker in self.workers.values():
            self.at(self.tick_ns, self._tick, worker)

    def _equip(self, worker: StreamWorker, synced: bool) -> None:
        worker.strategy_state = self.strategy.start(worker.rank, synced)
        worker.driver = StreamDriver(worker)

    def enter(self, worker: StreamWorker) -> Turn:
        return worker.driver.start()

    def exchange(self, worker: StreamWorker) -> Iterable[Wait | None]:
        return worker.driver.turn() if worker.driver.due() else ()

    # ----------------------------------------------------------------------------------------------- messages

    def _mail(self, now_ns: int, worker: StreamWorker, mail: tuple[int, Any, list[bytes], int]) -> None:
        """Hand a message to a worker. One that trains looks after messages between steps, or, where those are long, now
        and then."""
        pumped_ns = worker.pumped_ns
        if mail[0] in self.dead:
            return
        worker.inbox.append(mail)
        if worker.busy_ns > now_ns or (worker.training and now_ns - pumped_ns < TICK_NS):
            if not worker.waking:
                worker.waking = True
                due_ns = pumped_ns + TICK_NS if worker.training else worker.busy_ns
                self.at(max(due_ns, worker.busy_ns), self._wake, worker)
            return
        self._attend(worker, now_ns)

    def _wake(self, now_ns: int, worker: StreamWorker, _: None) -> None:
        worker.waking = False
        if not worker.training or now_ns - worker.pumped_ns >= TICK_NS:  # else it has come by since, and will again
            self._attend(worker, now_ns)

    def _attend(self, worker: StreamWorker, now_ns: int) -> None:
        worker.busy_ns = max(worker.busy_ns, now_ns)
        self.take_in(worker)
        self.happened(now_ns, worker)

    def take_in(self, worker: StreamWorker) -> None:
        """Let the worker receive everything that has come."""
        inbox = worker.inbox
        while inbox:
            sender, message, payloads, nbytes = inbox.popleft()
            if sender not in self.dead:
                cost_ns = self.message_ns + int(nbytes * self.receive_ns_per_byte)
                worker.busy_ns += cost_ns
                if worker.training:
                    worker.debt_ns += cost_ns
                self.tell(worker, Arrived(sender, message, payloads))

    def tell(self, worker: StreamWorker, event: Event) -> None:
        """Tell the strategy, and carry out its answers."""
        began_ns = worker.busy_ns
        for action in self.strategy.on(worker.strategy_state, event, began_ns * 1e-9):
            if type(action) is Send:
                self._post(worker, action)
            elif type(action) is Include:
                worker.arrivals.append(action)
            elif type(action) is Drained:
                worker.drained = True
        if worker.training:
            worker.debt_ns += worker.busy_ns - began_ns

    def _post(self, worker: StreamWorker, send: Send) -> None:
        receiver = self.workers.get(send.to)
        if receiver is None or not receiver.alive:
            return
        if isinstance(send.message, Updates):
            nbytes = FRAME_NBYTES + sum(map(len, send.payloads))
        else:
            nbytes = FRAME_NBYTES + HAVE_NBYTES * len(self.members)
        worker.busy_ns += self.message_ns + int(nbytes * self.send_ns_per_byte)
        worker.account.bytes_sent += nbytes
        arrives_ns = self.network.arrival(worker.rank, send.to, nbytes, worker.busy_ns)
        self.at(arrives_ns, self._mail, receiver, (worker.rank, send.message, list(send.payloads), nbytes))

    def _tick(self, now_ns: int, worker: StreamWorker, _: None) -> None:
        """Let time pass for the strategy: what is overdue is sent."""
        self.ticked()
        self._told(now_ns, worker, Tick())
        self.at(now_ns + self.tick_ns, self._tick, worker)

    def _told(self, now_ns: int, worker: StreamWorker, event: Event) -> None:
        worker.busy_ns = max(worker.busy_ns, now_ns)
        self.tell(worker, event)
        self.happened(now_ns, worker)

    # ------------------------------------------------------------------------------------------ members

    def changed(self, now_ns: int, gone: int | None) -> None:
        for rank in self.members if gone is not None else ():
            self.at(now_ns, self._told, self.workers[rank], PeerGone(gone))  # type: ignore[arg-type]

    def admit(self, worker: StreamWorker, donor: StreamWorker, now_ns: int) -> None:
        """Let a newcomer in whose state has arrived. All agree at the same moment on what is kept for it."""
        self._equip(worker, synced=False)
        worker.pumped_ns = now_ns
        for rank in self.members:
            self.workers[rank].busy_ns = max(now_ns, self.workers[rank].busy_ns)
        for rank in sorted(self.gone):
            if rank not in self.members:
                self.tell(worker, PeerGone(rank))
        for rank in self.members:
            if rank != worker.rank:
                self.tell(worker, PeerJoined(rank))
                self.tell(self.workers[rank], PeerJoined(worker.rank))
        donor.driver.idle()
        have = {**donor.strategy_state.taken, donor.rank: donor.strategy_state.log_of(donor.rank).head}
        self.tell(worker, Synced(have, donor.strategy_state.tail(have)))
        worker.driver.clock = worker.strategy_state.clock
        self.at(now_ns + self.tick_ns, self._tick, worker)
        self.begin(worker, now_ns)

    def figures(self, worker: StreamWorker) -> dict[str, float]:
        return {"staleness": float(worker.strategy_state.staleness * worker.driver.steps_per_turn)}
