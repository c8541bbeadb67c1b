"""Methods of many workers in one thread: a world in which every choice comes from one seeded generator.

``MethodWorld`` drives the very objects that the runtime drives, in the turns of the runtime. Messages are
delivered in order per pair, in any interleaving; with ``lossy`` they go through ``Channels`` over a network that loses,
repeats, delays and reorders. Workers take their steps in any order that the method allows, may be slower than others,
die, and join.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from taut.core.events import Arrived, Ended, PeerGone, PeerJoined, Send, Tick
from taut.errors import MalformedMessage
from taut.strategies import api
from taut.strategies.allreduce.round_agreement import NEW
from taut.strategies.delivery.channels import Channels, ChannelsState
from taut.testing.worlds.method_actor import Actor, Step, Vector
from taut.testing.worlds.method_turns import ActorTurns
from taut.topologies.registry import parse as parse_topology


def _with_own_codec(method: api.Method, workers: int) -> Callable[[int, Vector, ChannelsState], Actor]:
    """Return plain actors, unless the method compresses vectors whatever is asked for."""
    if method.streams or method.codecs[0] == "dense":
        return Actor
    from taut.testing.worlds.codec_actor import with_coder

    return with_coder(method.codecs[0], workers)


class MethodWorld:
    """``step(actor)`` is a worker's local step. ``speeds[rank]``: how often it gets its turn, relative to others.

    >>> from taut.strategies.gossip.dpsgd import DPSGD
    >>> world = MethodWorld(DPSGD(), [np.full(2, float(rank), np.float32) for rank in range(4)], topology="ring")
    >>> world.run(20)
    >>> bool(world.spread() < 0.01), round(float(world.mean()[0]), 3)
    (True, 1.5)
    """

    def __init__(
        self,
        method: api.Method,
        vectors: Sequence[Vector],
        *,
        topology: str = "complete",
        seed: int = 0,
        step: Step | None = None,
        lossy: bool = False,
        loss: float = 0.1,
        repeat: float = 0.1,
        speeds: Sequence[float] | None = None,
        rate: float = 0.1,
        hold_ups: float = 0.0,
        actor: Callable[[int, Vector, ChannelsState], Actor] | None = None,
    ) -> None:
        actor = actor or _with_own_codec(method, len(vectors))
        self.new_actor = actor
        self.method, self.shape, self.random = method, parse_topology(topology), random.Random(seed)
        self.step = step or (lambda actor: 1)
        self.rate = rate  # the learning rate that methods are told
        self.lossy, self.loss, self.repeat = lossy, loss, repeat
        self.hold_ups = hold_ups  # how often somebody who waits is told that it takes too long
        self.channels = Channels()
        self.now = 0.0
        self.version = 1
        self.sent_nbytes = self.messages = 0
        self.refused: list[tuple[int, str]] = []  # senders of messages that were refused, and why
        self.under_way: list[tuple[int, Arrived]] = []  # lossy: any order
        self.queues: dict[tuple[int, int], deque[api.Heard]] = {}  # not lossy: in order per pair
        self.held: dict[int, list[api.Heard]] = {}  # for workers that are training
        self.actors: dict[int, Actor] = {}
        self.ranks = len(vectors)  # given so far: none is used twice
        self.speeds = dict(enumerate(speeds or []))
        for rank, vector in enumerate(vectors):
            self.actors[rank] = self._new(rank, np.array(vector, np.float32))
        for rank, each in self.actors.items():
            for other in self.actors:
                if other != rank:
                    self.channels.on(each.channels, PeerJoined(other), 0.0)
            each.emit()
            each.method_state = method.start(self.membership(rank), each)

    def _new(self, rank: int, vector: Vector) -> Actor:
        actor = self.new_actor(rank, vector, self.channels.start(rank, synced=True))
        actor.io = ActorTurns(self, rank)
        return actor

    # ------------------------------------------------------------------------------------------ what happens

    def membership(self, rank: int) -> api.Membership:
        return api.Membership(rank, tuple(sorted(self.actors)), self.shape, self.version)

    def take_step(self, rank: int, catches_up: bool = False) -> None:
        """Let the worker train for one step, if it may, and take its turn; one that has ended takes an idle turn.
        ``catches_up``: the turn begins with what came meanwhile, as in the runtime; else ``catch_up`` tells that."""
        actor = self.actors[rank]
        if not actor.proceed or actor.finished:
            return
        samples = 0
        if not actor.ended and not self.method.owed(actor.method_state):
            samples = self.step(actor)
            actor.steps += 1
        actor.io.begin(samples, catches_up)

    def tell(self, rank: int, event: api.MethodEvent) -> None:
        self._carry_out(rank, self.method.on(self.actors[rank].method_state, event, self.now))
        if self.method.hands_over:
            self._hand_over(rank)
        self.actors[rank].io.go_on()

    def _hand_over(self, rank: int) -> None:
        """Give the state to whoever asks for it, if this is the moment; take over what came. As the runtime does."""
        method: Any = self.method
        actor = self.actors[rank]
        for taker in method.takers(actor.method_state):
            self._carry_out(rank, method.give(actor.method_state, taker, actor.pack()))
        state = method.handed(actor.method_state, starting=actor.since == NEW)
        if state is not None:
            try:
                actor.unpack(state)
            except MalformedMessage:
                self._carry_out(rank, method.refuse(actor.method_state))
                return
            actions = method.took(actor.method_state, votes=False)
            if actor.since == NEW:
                actor.since, actor.proceed = 0, api.Proceed() not in actions
            self._carry_out(rank, actions)

    def _carry_out(self, rank: int, actions: Sequence[api.MethodAction]) -> None:
        actor = self.actors[rank]
        for action in actions:
            match action:
                case api.Tell(to, note, payload):
                    self.messages += 1
                    self.sent_nbytes += len(payload)
                    if self.lossy:
                        self._network(rank, self.channels.on(actor.channels, action, self.now))
                    elif to in self.actors:
                        queue = self.queues.setdefault((rank, to), deque())
                        queue.append(api.Heard(rank, note, bytes(payload)))
                case api.Proceed():
                    assert not actor.proceed, "Proceed without a turn"
                    actor.proceed = True
                    actor.proceeded()
                case api.Finished():
                    actor.io.driver.finished = True
                case api.Refuse(sender, why):
                    self.refused.append((sender, why))

    def _network(self, rank: int, actions: Sequence[Any]) -> None:
        for action in actions:
            if isinstance(action, Send):
                copies = (self.random.random() >= self.loss) + (self.random.random() < self.repeat)
                event = Arrived(rank, action.message, [bytes(one) for one in action.payloads])
                self.under_way += [(action.to, event)] * copies
            elif isinstance(action, api.Heard):
                self._hear(rank, action)

    def _hear(self, rank: int, item: api.Heard) -> None:
        actor = self.actors[rank]
        if actor.proceed and not self.method.concurrent and not actor.ended:
            # The worker is training: the runtime would hold this back until its next turn.
            self.held.setdefault(rank, []).append(item)
        else:
            self.tell(rank, item)

    def deliver(self) -> bool:
        """Deliver any message that is under way. False: none is."""
        if self.lossy:
            if not self.under_way:
                return False
            to, event = self.under_way.pop(self.random.randrange(len(self.under_way)))
            if to in self.actors:
                self._network(to, self.channels.on(self.actors[to].channels, event, self.now))
            return True
        pairs = [pair for pair, queue in sorted(self.queues.items()) if queue]
        if not pairs:
            return False
        pair = self.random.choice(pairs)
        item = self.queues[pair].popleft()
        if pair[1] in self.actors:
            self._hear(pair[1], item)
        return True

    def catch_up(self, rank: int) -> None:
        """Hand over what came while the worker trained."""
        for item in self.held.pop(rank, []):
            if item.sender in self.actors:
                self.tell(rank, item)

    def tick(self) -> None:
        self.now += 0.5
        for rank in sorted(self.actors):
            self._network(rank, self.channels.on(self.actors[rank].channels, Tick(), self.now))

    # ---------------------------------------------------------------------------------------- whole histories

    def run(self, steps: int, limit: int = 1_000_000, ends: bool = False, freely: bool = False) -> None:
        """Run until every worker has made ``steps`` local steps more (idle ones of the ended aside). A worker that has
        made them is out of data and takes idle turns (``ends``), goes on until the last one has (``freely``), or else
        stands still."""
        goal = {rank: actor.steps + steps for rank, actor in self.actors.items()}
        for _ in range(limit):
            for rank, actor in sorted(self.actors.items()):
                if ends and not actor.ended and actor.proceed and actor.steps >= goal.get(rank, 0):
                    actor.ended = True
                    self.catch_up(rank)
                    self.tell(rank, Ended())
            busy = [r for r in sorted(self.actors) if not self.actors[r].ended and self.actors[r].steps < goal.get(r, 0)]
            idle = [r for r, a in sorted(self.actors.items()) if a.ended and a.proceed and self.method.lockstep]
            if not busy:
                self._quiet()
                return
            going = [r for r in sorted(self.actors) if not self.actors[r].ended] if freely else busy
            if not self._happen(going + idle):
                raise AssertionError(f"nothing can happen: workers {busy} wait for ever")
        raise AssertionError(f"no end after {limit} events")

    def _happen(self, ranks: Sequence[int]) -> bool:
        """Let one event happen: a step of a worker that may take one, or a delivery."""
        if self.hold_ups and self.method.drifts and self.random.random() < self.hold_ups:
            waiting = [rank for rank, actor in sorted(self.actors.items()) if not (actor.proceed or actor.finished)]
            if waiting:
                self.tell(self.random.choice(waiting), api.HeldUp())
                return True
        able = [rank for rank in ranks if self.actors[rank].proceed]
        if able and self.random.random() < 0.5:
            weights = [self.speeds.get(rank, 1.0) for rank in able]
            self.take_step(self.random.choices(able, weights)[0], catches_up=True)
            return True
        if self.deliver():
            return True
        if self.lossy:
            self.tick()
            return True
        if able:
            self.take_step(self.random.choice(able), catches_up=True)
            return True
        return False

    def _quiet(self) -> None:
        """Deliver everything under way (a worker that waits goes on waiting)."""
        for _ in range(100_000):
            if not self.deliver():
                if not self.lossy or all(a.channels.delivered() for a in self.actors.values()):
                    break
                self.tick()
        for rank in sorted(self.actors):
            self.catch_up(rank)

    def finish(self, limit: int = 200_000) -> None:
        """Drain the run, all data being used up: every worker must come to an end."""
        for rank in sorted(self.actors):
            self.actors[rank].ended = True
            self.catch_up(rank)
            self.tell(rank, Ended())
        for rank in sorted(self.actors):
            self.tell(rank, api.Draining())
        for _ in range(limit):
            left = [rank for rank, actor in sorted(self.actors.items()) if not actor.finished]
            if not left:
                return
            turning = left if self.method.turns_until_finished else []
            if not self._happen(turning) and not self.deliver():
                break
        unfinished = [rank for rank, actor in self.actors.items() if not actor.finished]
        raise AssertionError(f"workers {unfinished} do not finish")

    def kill(self, rank: int) -> None:
        """Remove a worker, with everything that it had under way and that was not delivered yet."""
        del self.actors[rank]
        self.version += 1
        self.under_way = [(to, event) for to, event in self.under_way if rank not in (event.sender, to)]
        for pair in list(self.queues):
            if rank in pair:
                del self.queues[pair]
        for other in sorted(self.actors):
            self.channels.on(self.actors[other].channels, PeerGone(rank), self.now)
            self.catch_up(other)
            self.tell(other, api.MembersChanged(self.membership(other)))

    def join(self) -> int:
        """Add a worker that takes over the state of the lowest rank; where the method hands the state over, it waits for
        that."""
        rank = self.enter()
        for other in sorted(self.actors):
            if other != rank:
                self.catch_up(other)
                self.tell(other, api.MembersChanged(self.membership(other)))
        return rank

    def enter(self) -> int:
        """Add a worker that the others do not know of yet."""
        rank = self.ranks
        self.ranks += 1
        donor = self.actors[min(self.actors)]
        self.version += 1
        shown = self.method.shown(donor.method_state)
        newcomer = self._new(rank, donor.snapshot() if shown is None else shown.copy())
        for other in sorted(self.actors):
            self.channels.on(newcomer.channels, PeerJoined(other), self.now)
            self.channels.on(self.actors[other].channels, PeerJoined(rank), self.now)
        self.actors[rank] = newcomer
        newcomer.emit()
        if self.method.hands_over:
            newcomer.since, newcomer.proceed = NEW, False
        newcomer.method_state = self.method.start(self.membership(rank), newcomer)
        return rank

    # ------------------------------------------------------------------------------------------ what is seen

    def vectors(self) -> list[Vector]:
        return [self.actors[rank].x for rank in sorted(self.actors)]

    def mean(self) -> Vector:
        mean: Vector = np.mean(np.stack(self.vectors()).astype(np.float64), axis=0).astype(np.float32)
        return mean

    def spread(self) -> float:
        """Return the largest distance of an x from the mean: the consensus distance."""
        mean = self.mean()
        return max(float(np.linalg.norm(x - mean)) for x in self.vectors())
