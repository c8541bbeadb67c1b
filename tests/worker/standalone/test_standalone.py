"""The framework-free level: workers wired by channels, in one process."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import taut
from taut.errors import Misuse

EXAMPLES = Path(__file__).parents[3] / "examples"


class Adder(taut.Worker):
    """Publishes its own unit vector, and adds up what it hears."""

    def __init__(self, index: int, workers: int) -> None:
        self.unit = np.eye(workers, dtype=np.float32)[index]
        self.sum = np.zeros(workers, np.float32)

    def iterate(self) -> np.ndarray:
        self.sum += self.unit
        return self.unit

    def include(self, update: np.ndarray, sender: int) -> None:
        assert update[sender] == 1.0 or update[sender] > 1.0  # merged on the way, perhaps
        self.sum += update


def test_complete_topology_brings_everything_to_everybody() -> None:
    topology = taut.Topology.complete(Adder(index, 4) for index in range(4))
    taut.run(topology, iterations=50)
    for worker in topology.workers:
        assert worker.sum.tolist() == [50.0] * 4


def test_updates_go_to_neighbours_and_no_further() -> None:
    line = taut.Topology()
    a, b, c = (line.worker(Adder(index, 3)) for index in range(3))
    line.channel(a, b)
    line.channel(b, c)
    taut.run(line, iterations=20)
    assert line.workers[a].sum.tolist() == [20, 20, 0]
    assert line.workers[b].sum.tolist() == [20, 20, 20]


def test_one_failing_worker_ends_the_run_with_its_error() -> None:
    class Broken(Adder):
        def iterate(self) -> np.ndarray:
            raise ArithmeticError("it broke")

    with pytest.raises(ArithmeticError, match="it broke"):
        taut.run(taut.Topology.complete([Adder(0, 2), Broken(1, 2)]), iterations=5)


def test_bad_topologies() -> None:
    apart = taut.Topology()
    apart.worker(Adder(0, 2))
    apart.worker(Adder(1, 2))
    with pytest.raises(Misuse, match="connected"):
        taut.run(apart, iterations=1)
    with pytest.raises(Misuse, match="itself"):
        apart.channel(0, 0)
    with pytest.raises(Misuse, match="attach it first"):
        apart.channel(0, 5)
    with pytest.raises(Misuse, match="at least one"):
        taut.run(taut.Topology(), iterations=1)


def test_the_example_is_short_and_learns(capsys: pytest.CaptureFixture[str]) -> None:
    example = EXAMPLES / "logistic_numpy.py"
    assert len(example.read_text().splitlines()) < 60
    runpy.run_path(str(example), run_name="__main__")
    scores = [float(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    assert len(scores) == 4
    assert min(scores) > 0.85
