"""A group of reductions in one process, and a network that delivers in any order, early and more than once."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from taut.collectives import Piece, Program, Reduction, Schedule
from taut.collectives.plan import plan


@dataclass
class Cluster:
    """``sent``: what each place sent, in order. A message in flight is (from, piece, the bytes when it was sent)."""

    machines: list[Reduction]
    sent: list[list[Piece]] = field(init=False)
    flying: list[tuple[int, Piece, bytes]] = field(default_factory=list)
    lost: list[tuple[int, Piece]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sent = [[] for _ in self.machines]

    def send(self, frm: int, pieces: list[Piece]) -> None:
        self.sent[frm] += pieces
        self.flying += [(frm, piece, bytes(piece.data)) for piece in pieces]

    def deliver(self, frm: int, piece: Piece) -> None:
        """Hands over the view itself: the law on copies is that nobody can tell it from a snapshot."""
        self.send(piece.to, self.machines[piece.to].arrived(frm, piece.round, piece.segment, piece.data))

    def run(self, seed: int, *, repeat: float = 0.0, lose: int | None = None) -> None:
        """Until nothing is in flight. ``repeat``: how often a message comes again; ``lose``: which one never comes."""
        rng = random.Random(seed)
        waiting = list(range(len(self.machines)))
        rng.shuffle(waiting)
        taken = 0
        while waiting or self.flying:
            if waiting and (not self.flying or rng.random() < 0.3):
                position = waiting.pop()
                self.send(position, self.machines[position].begin())
                continue
            which = rng.randrange(len(self.flying))
            self.flying[which], self.flying[-1] = self.flying[-1], self.flying[which]
            frm, piece, snapshot = self.flying.pop()
            taken += 1
            if taken - 1 == lose:
                self.lost.append((frm, piece))
                continue
            assert bytes(piece.data) == snapshot, "the range was overwritten before its addressee had it"
            self.deliver(frm, piece)
            if rng.random() < repeat:
                self.deliver(frm, piece)


def programs(schedule: Schedule, p: int, length: int) -> list[Program]:
    return [schedule.program(p, position, length) for position in range(p)]


def results(cluster: Cluster) -> list[np.ndarray]:
    """Each place's sum."""
    return [machine.buffer for machine in cluster.machines]


def cluster_of(schedule: Schedule, parts: np.ndarray, segment_elements: int = 1 << 18) -> Cluster:
    made = zip(programs(schedule, *parts.shape), parts, strict=True)
    return Cluster([Reduction(program, part.copy(), segment_elements) for program, part in made])


def longest_path(of: list[Program]) -> int:
    """How many messages follow one another at most, each waiting for the one before: what the latency multiplies."""
    plans = [plan(program, 1 << 40) for program in of]
    order = sorted(
        (step.round, not step.sends, position, number)
        for position, each in enumerate(plans)
        for number, step in enumerate(each.steps)
    )
    depth = {(position, number): 0 for _, _, position, number in order}
    for _, _, position, number in order:
        step = plans[position].steps[number]
        if step.sends:
            there = plans[step.peer].receives[position, step.round, step.segment]
            depth[step.peer, there] = max(depth[step.peer, there], depth[position, number] + 1)
        for later in plans[position].then[number]:
            depth[position, later] = max(depth[position, later], depth[position, number])
    return max(depth.values(), default=0)
