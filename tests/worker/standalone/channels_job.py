"""Workers that count, wired as ``--edges`` says; each notes what it ended with in ``--told``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int)
parser.add_argument("--edges", help="0-1,1-2")
parser.add_argument("--iterations", type=int, default=20)
parser.add_argument("--told", type=Path)
parser.add_argument("--speaker", type=int, help="the only worker that has updates")
parser.add_argument("--raises", type=int, help="the worker that fails at its third iteration")
parser.add_argument("--own", action="store_true", help="wire the topology by the process's number")
options = parser.parse_args()


class Counter(taut.Worker):
    """``sums``: what it included, by the worker that made it; ``chain``: the same in order."""

    def __init__(self, index: int) -> None:
        self.index, self.turn, self.chain = index, 0, 0
        self.sums = np.zeros(options.workers, np.float32)

    def iterate(self) -> np.ndarray | None:
        self.turn += 1
        if options.raises == self.index and self.turn == 3:
            raise ArithmeticError("it broke")
        if options.speaker not in (None, self.index):
            return None
        update = np.zeros(options.workers, np.float32)
        update[self.index] = self.turn
        self.include(update, self.index)
        return update

    def include(self, update: np.ndarray, sender: int) -> None:
        self.sums += update
        self.chain = (31 * self.chain + int(update.sum()) + sender) % 1_000_003


topology = taut.Topology()
for index in range(options.workers):
    topology.worker(Counter(index))
for edge in options.edges.split(","):
    a, b = edge.split("-")
    topology.channel(int(a), int(b))
if options.own:
    extra = len(list(options.told.glob("wired*")))
    (options.told / f"wired{extra}").touch()
    topology.channel(0, 2) if extra else None
taut.run(topology, options.iterations)
for rank, worker in topology.here():
    ended = {"sums": worker.sums.tolist(), "turns": worker.turn, "chain": worker.chain}
    (options.told / f"{rank}.json").write_text(json.dumps(ended))
