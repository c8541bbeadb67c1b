"""Methods in virtual time: the turns of ``worker/exchange/round_driver.py``, with durations for computing and messages.
Method and turns are those of a real run."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappush
from typing import Any

from taut.errors import MalformedMessage, Misuse
from taut.simulator.timing.accounts import WAIT, Account
from taut.simulator.timing.grouped_allreduce import TOGETHER, Together
from taut.simulator.timing.method_worker import RATE, MethodWorker
from taut.simulator.timing.noise import Noise
from taut.simulator.timing.stand_ins import in_stand_in_units, sizes_for
from taut.simulator.timing.streams import encode_ns
from taut.simulator.timing.worker import SECOND_NS, Setting
from taut.simulator.timing.world import TimingWorld
from taut.strategies.allreduce.round_agreement import NEW
from taut.strategies.allreduce.sync import Sync
from taut.strategies.api import Finished, Heard, Membership, MethodAction, Proceed, Tell
from taut.topologies.registry import parse as parse_topology
from taut.worker.exchange.round_driver import FORWARD_SHARE, GradientDriver, RoundDriver
from taut.worker.exchange.turns import Turn, Wait

STATE_COPIES = 3  # of the parameters, in what a newcomer is given: the weights, and Adam's two averages
Mail = tuple[int, Any, bytes, int]  # the sender, the note, the payload, and what hearing it costs


class MethodTiming(TimingWorld[MethodWorker]):
    """A world in which every worker runs the method. ``together``: its all-reduces are executed for all workers at
    once."""

    def __init__(self, setting: Setting, together: bool) -> None:
        super().__init__(setting)
        scenario, costs = self.scenario, self.costs
        method = setting.chosen.strategy.method()
        cost = costs.codec(setting.chosen.codec)
        self.sizes = sizes_for(method, scenario.workers, scenario.parameters, setting.chosen.codec, cost, together)
        self.method = in_stand_in_units(method, self.sizes)
        self.shape = parse_topology(setting.chosen.topology)
        self.concurrent, self.drifts = method.concurrent, method.drifts
        self.copies = method.vector == "gradients"
        self.hands_over = method.hands_over
        self.elects = method.majority and method.takes_newcomers
        coded = bool(self.sizes.coded_kinds)
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
        if setting.noise:
            if self.copies or coded or self.sizes.broad or method.consensus:
                raise Misuse(f"noise under strategy {scenario.strategy!r}", "one that mixes weights", "such as dpsgd")
            self.noise = Noise(scenario.seed, setting.steps * scenario.workers)

    def make_worker(self, rank: int, goal: int, account: Account) -> MethodWorker:
        return MethodWorker(self, rank, goal, account)

    def start(self) -> None:
        for worker in self.workers.values():
            worker.local = self.sizes.stand_in()
            self._equip(worker)

    def membership(self, rank: int) -> Membership:
        """Return the members, as worker ``rank`` sees them."""
        return Membership(rank, self.members, self.shape, self.version)

    def _equip(self, worker: MethodWorker) -> None:
        worker.version = self.version
        worker.method_state = self.method.start(self.membership(worker.rank), worker.local)
        worker.driver = GradientDriver(self.method, worker) if self.copies else RoundDriver(self.method, worker)
        if self.together is not None:
            self.together.take_over(worker.method_state)
        elif self.sizes.segment:
            self.method.map_groups(worker.method_state, self._cut)

    def _cut(self, machine: Any) -> Any:
        """Cut an all-reduce into as many pieces as the model's would be."""
        machine.segment_elements = self.sizes.segment
        return machine

    # --------------------------------------------------------------------------------------------- one step

    def begin_step(self, worker: MethodWorker, now_ns: int) -> int:
        ends_ns = super().begin_step(worker, now_ns)
        buckets = len(worker.method_state.buckets) if self.copies else 0
        if buckets > 1 and isinstance(worker.driver, GradientDriver) and worker.driver.completes:
            backward_ns = round((ends_ns - now_ns) * (1 - FORWARD_SHARE))
            for bucket in range(buckets - 1):  # the last is complete when backward is over
                launch_ns = ends_ns - backward_ns * (buckets - 1 - bucket) // buckets
                self.at(launch_ns, self._launch, worker, (worker.steps, bucket))
        return ends_ns

    def _launch(self, now_ns: int, worker: MethodWorker, item: tuple[int, int]) -> None:
        """Send a bucket whose gradients are complete."""
        steps, bucket = item
        if not worker.training or worker.steps != steps or not isinstance(self.method, Sync):
            return  # it had stood still, and is through
        if not worker.method_state.buckets[bucket].launched:
            worker.busy_ns = max(now_ns, worker.busy_ns)
            samples = worker.driver.gathered + self.scenario.batch
            actions = self.method.launch(worker.method_state, bucket, samples, RATE)
            worker.debt_ns += self.copy_ns // len(worker.method_state.buckets)
            self.do(worker, actions)

    def enter(self, worker: MethodWorker) -> Turn:
        if worker.local.since == NEW and isinstance(worker.driver, GradientDriver):
            yield from worker.driver.await_state()
        yield None  # of a newcomer: until the state is here
        worker.account.charge(WAIT, worker.busy_ns)

    def exchange(self, worker: MethodWorker) -> Iterable[Wait | None]:
        driver, samples = worker.driver, self.scenario.batch
        if isinstance(driver, GradientDriver):
            return self._gradient_turns(driver) if driver.gather(samples) else ()
        if self.noise is not None:
            self.noise.stepped(worker, self.workers)
        return driver.turn(samples, RATE)

    def _gradient_turns(self, driver: GradientDriver) -> Turn:
        yield from driver.turn(driver.gathered, RATE)
        yield from driver.make_up()

    # ------------------------------------------------------------------------------------ messages and members

    def _mail(self, now_ns: int, worker: MethodWorker, mail: Mail) -> None:
        """Hand a message to a worker: it waits while the worker trains, unless the method is told at once."""
        if worker.training and not self.concurrent:
            worker.held.append(mail)
        elif worker.busy_ns > now_ns or worker.inbox:
            worker.inbox.append(mail)
            if not worker.waking:
                worker.waking = True
                self.at(worker.busy_ns, self._wake, worker)
        else:
            answered = self.hear(worker, mail)
            if worker.wait is not None:
                self._heard(now_ns, worker, worker.wait, answered)

    def _heard(self, now_ns: int, worker: MethodWorker, wait: Wait, answered: bool) -> None:
        """Look whether the worker may go on, after messages. What the method did not answer ends no wait, unless it ends
        a round."""
        driver = worker.driver
        if self.hands_over:
            self.hand_over(worker)
        elif not (answered or driver.proceed or wait.pauses) and (  # with `proceed`, it waits outside of a turn
            not self.drifts or self.method.rounds_over(worker.method_state) == driver.rounds
        ):
            return
        if wait.pauses or wait.until():
            self.resume(now_ns, worker)

    def _wake(self, now_ns: int, worker: MethodWorker, _: None) -> None:
        """Hand on what waits until the worker's thread is free."""
        worker.waking = False
        inbox, answered = worker.inbox, False
        while inbox and worker.busy_ns <= now_ns:
            mail = inbox.popleft()
            if worker.training and not self.concurrent:
                worker.held.append(mail)
            else:
                answered |= self.hear(worker, mail)
        if inbox:
            worker.waking = True
            self.at(worker.busy_ns, self._wake, worker)
        if worker.wait is not None:
            self._heard(now_ns, worker, worker.wait, answered)

    def hear(self, worker: MethodWorker, mail: Mail) -> bool:
        """Tell the method of a message; return whether it answered."""
        sender, note, payload, cost_ns = mail
        if sender in self.dead:
            return False
        busy_ns, now_ns = worker.busy_ns, self.now_ns
        worker.busy_ns = busy_ns = (busy_ns if busy_ns > now_ns else now_ns) + cost_ns
        if worker.training:
            worker.debt_ns += cost_ns
        worker.account.included += 1
        try:
            actions = self.method.on(worker.method_state, Heard(sender, note, payload), busy_ns * 1e-9)
        except MalformedMessage:
            return False
        if actions:
            self.do(worker, actions)
        return bool(actions)

    def hand_over(self, worker: MethodWorker) -> None:
        """Give the state to the newcomer that is due for it, if this is the moment; take over the state that came."""
        assert isinstance(self.method, Sync)
        method, state = self.method, worker.method_state
        for taker in method.takers(state):
            self.do(worker, method.give(state, taker, bytes(STATE_COPIES * worker.local.x.nbytes)))
        if method.handed(state, worker.local.since == NEW) is not None:
            worker.local.since = 0
            self.do(worker, method.took(state, votes=False))

    def do(self, worker: MethodWorker, actions: list[MethodAction]) -> None:
        """Carry out the method's answers."""
        began_ns = clock_ns = worker.busy_ns
        heap, workers, arrival = self.heap, self.workers, self.network.arrival
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
                worker.driver.proceed = True
            elif type(action) is Finished:
                worker.driver.finished = True
        worker.account.bytes_sent += sent_nbytes
        worker.busy_ns = clock_ns
        if worker.training:
            worker.debt_ns += clock_ns - began_ns

    def _costs(self, kind: str, nbytes: int) -> tuple[int, int]:
        """Return what sending a message, and what hearing it, costs a worker's thread."""
        per_byte = self.absorb_ns_per_byte if kind in self.sizes.coded_kinds else self.heard_ns_per_byte
        return self.message_ns + int(nbytes * self.send_ns_per_byte), self.message_ns + int(nbytes * per_byte)

    def changed(self, now_ns: int, gone: int | None) -> None:
        self.stir(now_ns)
        if self.together is not None:
            self.together.look_again(now_ns)

    def admit(self, worker: MethodWorker, donor: MethodWorker, now_ns: int) -> None:
        worker.busy_ns = now_ns
        worker.local = self.sizes.stand_in()
        if not self.sizes.broad:
            worker.local.x[:] = donor.local.x
        worker.local.since = NEW if self.hands_over else 0
        self._equip(worker)
        if (
            self.hands_over and not worker.method_state.buckets[0].machine.bare
        ):  # rounds of all at once: it is given nothing
            worker.local.since = 0
            nbytes = 4 * STATE_COPIES * self.scenario.parameters
            worker.busy_ns = self.network.arrival(donor.rank, worker.rank, nbytes, now_ns)
        self.begin(worker, now_ns)
        self.changed(now_ns, None)

    def figures(self, worker: MethodWorker) -> dict[str, float]:
        return self.method.figures(worker.method_state)
