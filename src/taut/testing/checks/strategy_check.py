"""Conformance of complete strategies: whatever the network and the workers do, after the drain all hold the same updates.

``World`` drives any number of strategy objects in one thread over a network that loses, repeats, delays and reorders,
with workers that die and join at any moment; every choice comes from one seeded generator.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from taut.core import events as ev
from taut.core.messages import Updates
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.broadcast.state import BroadcastState


def merge_sets(payloads: Sequence[bytes]) -> bytes:
    """Merge payloads of this check, which are lists of update names: merging is joining, and applying twice shows."""
    return b"".join(payloads)


@dataclass
class UpdateSet:
    """A worker of the world: the set of updates it has included."""

    state: BroadcastState
    included: set[tuple[int, int]] = field(default_factory=set)
    waiting: list[ev.Include] = field(default_factory=list)
    published: int = 0
    drained: bool = False
    carried: BroadcastState | None = None  # of one that came back: its side of the broadcast, as it left it
    was: tuple[int, ...] = ()  # and its ranks before

    def include_all(self) -> dict[int, int]:
        positions: dict[int, int] = {}
        for item in self.waiting:
            for name in self.names(item.payload):
                assert name not in self.included, f"update {name} was applied twice at {self.state.rank}"
                self.included.add(name)
            positions[item.origin] = item.hi
        self.waiting.clear()
        return positions

    @staticmethod
    def written(origin: int, number: int) -> bytes:
        """Return the payload of one update."""
        return struct.pack("<II", origin, number)

    @staticmethod
    def names(payload: bytes) -> Iterator[tuple[int, int]]:
        """Return the updates in a payload."""
        return struct.iter_unpack("<II", payload)


class World:
    """Workers, the messages under way between them, and a seed.

    >>> world = World(Broadcast(merge=merge_sets), workers=3, seed=1)
    >>> for _ in range(50): world.publish(world.any())
    >>> world.finish()
    """

    kind: ClassVar[type[UpdateSet]] = UpdateSet  # how its workers write updates down

    def __init__(self, strategy: Broadcast, workers: int, seed: int, loss: float = 0.1, repeat: float = 0.1) -> None:
        self.strategy, self.random = strategy, random.Random(seed)
        self.loss, self.repeat = loss, repeat
        self.now = 0.0
        self.live: dict[int, UpdateSet] = {}
        self.under_way: list[tuple[int, ev.Arrived]] = []
        self.dead: set[int] = set()
        self.away: set[int] = set()  # on the other side of a cut, without the supervisor
        self.given_up: dict[int, UpdateSet] = {}  # of those away, who go on all the same
        self.back: dict[int, int] = {}  # ranks of those who came back -> how many updates they had published
        self.names = 0
        for _ in range(workers):
            self.join()

    def any(self) -> int:
        return self.random.choice(sorted(self.live.keys() | self.given_up.keys()))

    def replica(self, rank: int) -> UpdateSet | None:
        return self.live.get(rank) or self.given_up.get(rank)

    def tell(self, rank: int, event: ev.Event) -> None:
        replica = self.replica(rank)
        if replica is not None:
            self._do(rank, replica, self.strategy.on(replica.state, event, self.now))

    def announce(self, event: ev.Event) -> None:
        """Tell all workers that the supervisor reaches."""
        for rank in sorted(self.live.keys() - self.away):
            self.tell(rank, event)

    def _do(self, rank: int, replica: UpdateSet, actions: list[ev.Action]) -> None:
        blocked = set[int]()
        for action in actions:
            match action:
                case ev.Send(to, message, payloads):
                    if to in blocked:
                        continue  # what follows to the same neighbour is lost, as by a broken connection
                    if isinstance(message, Updates) and self.random.random() < self.loss / 4:
                        blocked.add(to)
                        self.tell(rank, ev.Blocked(to, message))
                        continue
                    copies = (self.random.random() >= self.loss) + (self.random.random() < self.repeat)
                    self.under_way += [(to, ev.Arrived(rank, message, [bytes(one) for one in payloads]))] * copies
                case ev.Include():
                    replica.waiting.append(action)
                case ev.Disputed():
                    raise AssertionError(f"nobody lies, and worker {rank} disputes: {action}")
                case ev.Drained(have):
                    replica.drained = True
                    assert have == replica.state.have()

    def join(self) -> int:
        rank = self.names
        self.names += 1
        founder = not any(replica.state.synced for replica in self.live.values())
        newcomer = self.kind(self.strategy.start(rank, synced=founder))
        others = sorted(self.live)
        self.live[rank] = newcomer
        for other in sorted(self.dead):
            self.tell(rank, ev.PeerGone(other))
        for other in others:
            self.tell(rank, ev.PeerJoined(other))
            if other not in self.away:
                self.tell(other, ev.PeerJoined(rank))
        return rank

    def kill(self, rank: int) -> None:
        if rank in self.away or (self.live[rank].state.synced and len(self._donors()) < 2):
            return  # the last that holds the state
        for previous in self.live.pop(rank).was:
            self.back.pop(previous, None)  # it may have died before it passed anything on
        self.dead.add(rank)
        self.announce(ev.PeerGone(rank))

    def cut(self, rank: int) -> None:
        """Cut ``rank`` off: it hears only those who are cut off as well; a worker with the state stays with the
        supervisor."""
        if rank in self.live and self.live[rank].state.synced and len(set(self._donors()) - {rank}) > 0:
            self.away.add(rank)

    def give_up(self, rank: int) -> None:
        """Evict ``rank``, which was silent for too long: those whom the supervisor reaches go on without it, and it goes
        on, too."""
        if rank in self.away and rank in self.live:
            self.given_up[rank] = self.live.pop(rank)
            self.dead.add(rank)
            self.announce(ev.PeerGone(rank))

    def heal(self, rank: int) -> None:
        """Let ``rank`` hear everybody again; if it was evicted, it rejoins under another rank, with its logs."""
        self.away.discard(rank)
        if rank in self.given_up:
            previous = self.given_up.pop(rank)
            self.back[rank] = previous.published
            newcomer = self.live[self.join()]
            newcomer.carried, newcomer.was = previous.state, (*previous.was, rank)
            return
        for other in sorted(self.dead):
            self.tell(rank, ev.PeerGone(other))
        for other in sorted(self.live.keys() - {rank}):
            self.tell(rank, ev.PeerJoined(other))

    def _donors(self) -> list[int]:
        return [rank for rank in sorted(self.live.keys() - self.away) if self.live[rank].state.synced]

    def sync(self, rank: int) -> None:
        """Give ``rank`` a donor's state, if it has none and may ask for one."""
        replica, donors = self.live[rank], self._donors()
        if replica.state.synced or not replica.state.attached() or not donors:
            return
        donor = self.live[self.random.choice(donors)]
        self.take(donor.state.rank)  # a donor includes all it has received: what it acknowledged is in the state
        replica.included = set(donor.included)
        have = {**donor.state.taken, donor.state.rank: donor.published}
        added = replica.carried.beyond(have, self.dead) if replica.carried is not None else []
        replica.waiting += added
        self.tell(rank, ev.Synced({**have, **replica.include_all()}, donor.state.tail(have) + added))

    def publish(self, rank: int) -> None:
        replica = self.replica(rank)
        if replica is None or not replica.state.synced or replica.state.final >= 0:
            return
        if not self.strategy.complete:  # what it does with an update is to keep it at home
            self.tell(rank, ev.Published(None))
            return
        replica.published += 1
        replica.included.add((rank, replica.published))
        self.tell(rank, ev.Published(self.kind.written(rank, replica.published)))

    def take(self, rank: int) -> None:
        replica = self.replica(rank)
        if replica is not None:
            self.tell(rank, ev.Taken(replica.include_all()))

    def deliver(self) -> None:
        if self.under_way:
            to, event = self.under_way.pop(self.random.randrange(len(self.under_way)))
            if (to in self.away) == (event.sender in self.away):
                self.tell(to, event)

    def tick(self, seconds: float = 0.3) -> None:
        self.now += seconds
        for rank in sorted(self.live.keys() | self.given_up.keys()):
            if rank in self.live:
                self.sync(rank)
            self.tell(rank, ev.Tick())

    def finish(self, rounds: int = 2000) -> None:
        """Heal all cuts, end every stream, let the network run, and check the law."""
        for rank in sorted(self.away):
            self.heal(rank)
        for _ in range(rounds):
            if all(replica.state.synced for replica in self.live.values()):
                break
            self._settle()
        for rank in sorted(self.live):
            self.tell(rank, ev.Ended())
        for _ in range(rounds):
            if all(replica.drained for replica in self.live.values()):
                break
            self._settle()
        assert all(replica.drained for replica in self.live.values()), "the drain does not end"
        replicas = list(self.live.values())
        if self.strategy.complete:
            assert all(replica.included == replicas[0].included for replica in replicas), "replicas differ"
            for rank, published in self.back.items():
                made = {(rank, n) for n in range(1, published + 1)}
                assert made <= replicas[0].included, f"what worker {rank} made before it came back is lost"
        for replica in replicas:
            assert {(replica.state.rank, n) for n in range(1, replica.published + 1)} <= replica.included

    def _settle(self) -> None:
        for _ in range(len(self.under_way)):
            self.deliver()
        for rank in sorted(self.live):
            self.take(rank)
        self.tick()


def check_strategy(strategy: Broadcast, seed: int, steps: int = 300) -> World:
    """Run a random history of publishing, delivery, deaths, joins, cuts and returns, then require the law of complete
    communication: the drain ends, every update was included exactly once, and all replicas hold the same ones."""
    choose = random.Random(seed)
    world = World(strategy, workers=choose.randint(1, 5), seed=seed, loss=choose.choice([0, 0.1, 0.4]))
    for _ in range(steps):
        kind = choose.random()
        if kind < 0.40:
            world.publish(world.any())
        elif kind < 0.80:
            world.deliver()
        elif kind < 0.92:
            world.take(world.any())
        elif kind < 0.96:
            world.tick(choose.random())
        elif kind < 0.97:
            world.cut(world.any())
        elif kind < 0.98 and world.away:
            who = choose.choice(sorted(world.away))
            world.heal(who) if choose.random() < 0.4 else world.give_up(who)
        elif kind < 0.99:
            world.join()
        elif len(world.live) > 1:
            world.kill(choose.choice(sorted(world.live)))
    world.finish()
    return world
