"""Methods in virtual time: what ``rounds.py`` and ``gradient_rounds.py`` of ``worker/talks`` do around one, with
durations for computing and messages. The method is the very object that a real run drives."""

from __future__ import annotations

from heapq import heappush
from typing import Any

from taut.core.events import Ended
from taut.errors import MalformedMessage, Misuse
from taut.simulator.timing.accounts import ENCODE, MERGE, WAIT
from taut.simulator.timing.grouped_allreduce import TOGETHER, Together
from taut.simulator.timing.noise import Noise
from taut.simulator.timing.stand_ins import in_stand_in_units, sizes_for
from taut.simulator.timing.streams import encode_ns
from taut.simulator.timing.worker import SECOND_NS, Setting, Worker
from taut.simulator.timing.world import TimingWorld
from taut.strategies.allreduce.round_agreement import NEW
from taut.strategies.allreduce.sync import Sync
from taut.strategies.api import Draining, Finished, Heard, MemberPlace, MethodAction, Placed, Proceed, Stepped, Tell
from taut.topologies.registry import parse as parse_topology
from taut.worker.comm.dispatcher import TICK_S

RATE = 0.1  # the learning rate that methods are told
BACKWARD = 2 / 3  # the share of a step in which gradients appear, the last layers' first
STATE_COPIES = 3  # of the parameters, in what a newcomer is given: the weights, and Adam's two averages
TICK_NS = round(TICK_S * SECOND_NS)
Mail = tuple[int, Any, bytes, int]  # the sender, the note, the payload, and what hearing it costs


class MethodTiming(TimingWorld):
    """Everybody runs the method; ``together``: its all-reduces are executed for all places at once."""

    def __init__(self, setting: Setting, together: bool) -> None:
        super().__init__(setting)
        scenario, costs = self.scenario, self.costs
        method = setting.chosen.strategy.method()
        cost = costs.codec(setting.chosen.codec)
        self.sizes = sizes_for(method, scenario.workers, scenario.parameters, setting.chosen.codec, cost, together)
        self.method = in_stand_in_units(method, self.sizes)
        self.shape = parse_topology(setting.chosen.topology)
        self.concurrent, self.lockstep = method.concurrent, method.lockstep
        self.every = method.every if isinstance(method, Sync) else 1
        self.copies = method.vector == "gradients"
        self.hands_over = method.hands_over
        coded = bool(self.sizes.coded_kind)
        whole = self.sizes.coder is not None  # a codec of vectors encodes all of one, that of a stream a fragment
        whole_ns = round(cost.encode_s(scenario.parameters) * SECOND_NS)
        self.encode_ns = (whole_ns if whole else encode_ns(cost, scenario)) if coded else 0
        self.density = cost.bits_per_element / 32 if coded else 0.0
        self.send_ns_per_byte = costs.send_s_per_byte * 1e9
        self.heard_ns_per_byte = (costs.receive_s_per_byte + costs.copy_s_per_byte) * 1e9
        self.absorb_ns_per_byte = (costs.receive_s_per_byte + cost.absorb_s_per_byte) * 1e9
        self.copy_ns = round(4e9 * costs.copy_s_per_byte * scenario.parameters) if self.copies else 0
        self.together = Together(self, self.sizes, method) if together else None
        self.mail_handler = self._mail
        self.step_event = Stepped(scenario.batch * self.every, RATE)
        if setting.noise:
            if self.copies or coded or self.sizes.broad or method.consensus:
                raise Misuse(f"noise under strategy {scenario.strategy!r}", "one that mixes weights", "such as dpsgd")
            self.noise = Noise(scenario.seed, setting.steps * scenario.workers)

    def start(self) -> None:
        for worker in self.workers.values():
            worker.local = self.sizes.stand_in()
            self._seat(worker)
        for worker in self.workers.values():
            if worker.goal:
                self._train(worker, 0)
            else:
                self.end(worker, 0)
        self.look_whether_all_ended(0)

    def _place(self, rank: int) -> MemberPlace:
        return MemberPlace(rank, self.members, self.shape, self.version)

    def _seat(self, worker: Worker) -> None:
        worker.version = self.version
        worker.state = self.method.start(self._place(worker.rank), worker.local)
        if self.together is not None:
            self.together.take_over(worker.state)
        elif self.sizes.segment:
            _cut(worker.state, self.sizes.segment)

    # --------------------------------------------------------------------------------------------- one step

    def _train(self, worker: Worker, now_ns: int) -> None:
        ends_ns = self.begin_step(worker, now_ns)
        if not self.copies:
            return
        lanes = len(worker.state.lanes)
        if lanes > 1 and self._due(worker.steps + 1, worker):
            backward_ns = round((ends_ns - now_ns) * BACKWARD)
            for lane in range(lanes - 1):  # the last is complete when backward is over
                launch_ns = ends_ns - backward_ns * (lanes - 1 - lane) // lanes
                self.at(launch_ns, self._launch, worker, (worker.steps, lane))

    def _due(self, steps: int, worker: Worker) -> bool:
        """Whether a turn follows so many steps: gradients of several may add up."""
        return steps % self.every == 0 or steps == worker.goal

    def _launch(self, now_ns: int, worker: Worker, item: tuple[int, int]) -> None:
        steps, lane = item
        if not worker.training or worker.steps != steps or not isinstance(self.method, Sync):
            return  # it had stood still, and is through
        if worker.state.lanes[lane].launched:
            return
        actions = self.method.launch(worker.state, lane, self.scenario.batch * self.every, RATE)
        worker.debt_ns += self.copy_ns // len(worker.state.lanes)
        self._do(worker, actions, max(now_ns, worker.busy_ns))

    def stepped(self, worker: Worker, now_ns: int) -> None:
        if self.every > 1 and not self._due(worker.steps, worker):
            self._train(worker, now_ns)
            return
        worker.training = False
        clock_ns = self._catch_up(worker, now_ns)
        if self.copies:
            lanes = worker.state.lanes
            clock_ns += self.copy_ns * sum(not lane.launched for lane in lanes) // len(lanes)
        worker.account.charge(MERGE, clock_ns)
        clock_ns += self.encode_ns
        worker.account.charge(ENCODE, clock_ns)
        samples = self.scenario.batch * self.every
        if clock_ns > now_ns:
            worker.busy_ns = clock_ns
            self.at(clock_ns, self._turn, worker, samples)
        else:
            self._turn(now_ns, worker, samples)

    def _turn(self, now_ns: int, worker: Worker, samples: int) -> None:
        """The local step is over: tell the method, and wait until it lets the worker go on."""
        worker.turning = True
        worker.account.sent += 1
        if self.noise is not None and samples:
            self.noise.stepped(worker, self.workers)
        event = self.step_event if samples == self.step_event.samples else Stepped(samples, RATE)
        clock_ns = self._do(worker, self.method.on(worker.state, event, now_ns * 1e-9), now_ns)
        if self.hands_over and worker.turning:
            self._hand_over(worker, clock_ns)

    def _proceed(self, worker: Worker, now_ns: int) -> None:
        worker.turning = False
        worker.account.charge(WAIT, now_ns)
        if worker.draining:
            if self.method.turns_until_finished and not worker.finished:
                self.at(now_ns, self._idle_turn, worker)
        elif worker.ended:
            self._rest(worker, now_ns)
        elif self.copies and self.method.owed(worker.state):
            self.at(now_ns, self._turn, worker, 0)
        elif worker.steps >= worker.goal:
            self.end(worker, now_ns)
        else:
            self._train(worker, now_ns)

    # ------------------------------------------------------------------------------------------ without data

    def end(self, worker: Worker, now_ns: int) -> None:
        super().end(worker, now_ns)
        clock_ns = self._tell(worker, Ended(), self._catch_up(worker, now_ns))
        if self.lockstep:
            self.at(clock_ns, self._idle_turn, worker)
        self.look_whether_all_ended(now_ns)

    def _idle_turn(self, now_ns: int, worker: Worker, _: None = None) -> None:
        """A turn without data, for the others' sake."""
        worker.resting = False
        over = worker.draining and not self.method.turns_until_finished
        if not worker.turning and not worker.finished and not over:
            self._turn(now_ns, worker, 0)

    def _rest(self, worker: Worker, now_ns: int) -> None:
        """Between two turns without data: until something happens, or for a moment."""
        if self.draining:
            self._drain(worker, now_ns)
        elif self.copies and worker.state.rate is not None:
            self.at(now_ns, self._idle_turn, worker)
        elif self.lockstep:
            worker.resting = True
            if any(not self.workers[rank].ended for rank in self.members):
                self.at(now_ns + TICK_NS, self._idle_turn_if_resting, worker)

    def _idle_turn_if_resting(self, now_ns: int, worker: Worker, _: None) -> None:
        self.ticked()
        if worker.resting:
            self._idle_turn(now_ns, worker)

    def drain(self, now_ns: int) -> None:
        for rank in self.members:
            worker = self.workers[rank]
            if not worker.turning:  # else when its turn is over
                self._drain(worker, now_ns)

    def _drain(self, worker: Worker, now_ns: int) -> None:
        if worker.draining:
            return
        worker.draining, worker.resting = True, False
        clock_ns = self._tell(worker, Draining(), self._catch_up(worker, now_ns))
        if self.method.turns_until_finished and not worker.finished and not worker.turning:
            self.at(clock_ns, self._idle_turn, worker)

    # ------------------------------------------------------------------------------------ messages and members

    def _mail(self, now_ns: int, worker: Worker, mail: Mail) -> None:
        """A message has come: it waits while the worker trains, unless the method is told at once."""
        if self.dead and mail[0] in self.dead:
            return
        if worker.training and not self.concurrent:
            worker.held.append(mail)
        elif worker.busy_ns > now_ns or worker.inbox:
            worker.inbox.append(mail)
            if not worker.waking:
                worker.waking = True
                self.at(worker.busy_ns, self._wake, worker)
        else:
            rested = worker.resting  # a message that ends a turn is no reason for the next one
            self._hear(worker, mail, now_ns)
            if rested:
                self._idle_turn(max(now_ns, worker.busy_ns), worker)

    def _wake(self, now_ns: int, worker: Worker, _: None) -> None:
        """The worker's thread is free again: the next of what waits for it."""
        worker.waking = False
        inbox, rested = worker.inbox, worker.resting
        while inbox and worker.busy_ns <= now_ns:
            mail = inbox.popleft()
            if worker.training and not self.concurrent:
                worker.held.append(mail)
            elif mail[0] not in self.dead:
                self._hear(worker, mail, now_ns)
        if inbox:
            worker.waking = True
            self.at(worker.busy_ns, self._wake, worker)
        elif rested:
            self._idle_turn(max(now_ns, worker.busy_ns), worker)

    def _hear(self, worker: Worker, mail: Mail, now_ns: int) -> int:
        """Hand a message over; when that is done."""
        sender, note, payload, cost_ns = mail
        clock_ns = now_ns + cost_ns
        if cost_ns:
            worker.busy_ns = clock_ns
            if worker.training:
                worker.debt_ns += cost_ns
        worker.account.included += 1
        try:
            actions = self.method.on(worker.state, Heard(sender, note, payload), clock_ns * 1e-9)
        except MalformedMessage:
            return clock_ns
        clock_ns = self._do(worker, actions, clock_ns) if actions else clock_ns
        return self._hand_over(worker, clock_ns) if self.hands_over else clock_ns

    def _hand_over(self, worker: Worker, now_ns: int) -> int:
        """Give the state to who asks for it, if this is the moment; take over what came. When that is done."""
        assert isinstance(self.method, Sync)
        method, state = self.method, worker.state
        for taker in method.takers(state):
            data = bytes(STATE_COPIES * worker.local.x.nbytes)
            now_ns = self._do(worker, method.give(state, taker, data), now_ns)
        starting = worker.local.since == NEW
        if method.handed(state, starting) is not None:
            worker.local.since = 0
            now_ns = self._do(worker, method.took(state, votes=False), now_ns)
            if starting and not worker.turning and not worker.finished:
                self._begin(now_ns, worker)
        return now_ns

    def _begin(self, now_ns: int, worker: Worker, _: None = None) -> None:
        """A newcomer has the state."""
        worker.account.charge(WAIT, now_ns)
        self._train(worker, now_ns)

    def _catch_up(self, worker: Worker, now_ns: int) -> int:
        """Hand over the news of who is here, and what has come; when that is done."""
        clock_ns = max(now_ns, worker.busy_ns)
        if worker.version != self.version:
            worker.version = self.version
            clock_ns = self._tell(worker, Placed(self._place(worker.rank)), clock_ns)
        if worker.held or worker.inbox:
            held, worker.held = [*worker.held, *worker.inbox], []
            worker.inbox.clear()
            for mail in held:
                if mail[0] not in self.dead:
                    clock_ns = self._hear(worker, mail, clock_ns)
        return clock_ns

    def _tell(self, worker: Worker, event: Any, now_ns: int) -> int:
        return self._do(worker, self.method.on(worker.state, event, now_ns * 1e-9), now_ns)

    def _do(self, worker: Worker, actions: list[MethodAction], now_ns: int) -> int:
        """Carry out the method's answers; when that is done."""
        clock_ns, proceeds, heap, workers, arrival = now_ns, False, self.heap, self.workers, self.network.arrival
        rank, events, handler = worker.rank, self.events, self.mail_handler
        payload: bytes | memoryview | None = None
        nbytes = cost_ns = hearing_ns = sent_nbytes = 0
        kind = ""
        for action in actions:
            if type(action) is Tell:
                to, note = action.to, action.note
                if to == TOGETHER:
                    assert self.together is not None
                    self.together.begun(worker, note, action.payload, clock_ns)
                    continue
                receiver = workers.get(to)
                if receiver is None or not receiver.alive:
                    continue
                if action.payload is not payload or note.kind != kind:  # mostly the same goes to several
                    payload, kind = action.payload, note.kind
                    nbytes = self.sizes.real(kind, len(payload))
                    cost_ns, hearing_ns = self._costs(kind, nbytes)
                clock_ns += cost_ns
                sent_nbytes += nbytes
                mail = (rank, note, bytes(payload), hearing_ns)
                heappush(heap, (arrival(rank, to, nbytes, clock_ns), next(events), handler, receiver, mail))
            elif type(action) is Proceed:
                proceeds = True
            elif type(action) is Finished:
                worker.finished = True
        worker.account.bytes_sent += sent_nbytes
        if clock_ns > now_ns:
            worker.busy_ns = clock_ns
            if worker.training:
                worker.debt_ns += clock_ns - now_ns
        if worker.finished and self.draining:
            self.look_whether_all_finished(clock_ns)
        if proceeds and not self.over:
            self._proceed(worker, clock_ns)
        return clock_ns

    def _costs(self, kind: str, nbytes: int) -> tuple[int, int]:
        """What sending a message, and what hearing it, costs a worker's thread."""
        per_byte = self.absorb_ns_per_byte if kind == self.sizes.coded_kind else self.heard_ns_per_byte
        return self.message_ns + int(nbytes * self.send_ns_per_byte), self.message_ns + int(nbytes * per_byte)

    def changed(self, now_ns: int, gone: int | None) -> None:
        for rank in self.members:
            worker = self.workers[rank]
            if worker.alive and not worker.training:
                self._catch_up(worker, now_ns)
                if worker.resting:
                    self._idle_turn(max(now_ns, worker.busy_ns), worker)
        if self.together is not None:
            self.together.look_again(now_ns)

    def admit(self, worker: Worker, donor: Worker, now_ns: int) -> None:
        worker.local = self.sizes.stand_in()
        if not self.sizes.broad:
            worker.local.x[:] = donor.local.x
        if not self.hands_over:
            self._seat(worker)
            self._train(worker, now_ns)
        else:
            worker.local.since = NEW
            self._seat(worker)
            if not worker.state.lanes[0].machine.bare:  # rounds of all at once: it is given nothing
                worker.local.since = 0
                nbytes = 4 * STATE_COPIES * self.scenario.parameters
                self.at(self.network.arrival(donor.rank, worker.rank, nbytes, now_ns), self._begin, worker)
        self.changed(now_ns, None)

    def figures(self, worker: Worker) -> dict[str, float]:
        return self.method.figures(worker.state)


def _cut(state: Any, segment: int) -> None:
    """Pieces of all-reduces as many as the model's would be."""
    for lane in getattr(state, "lanes", ()):
        lane.machine.segment_elements = segment
    if hasattr(state, "group"):
        state.group.segment_elements = segment
