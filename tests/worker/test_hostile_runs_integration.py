"""A worker in the run that lies to the others, over real sockets: the honest ones go on, end equal, and say who lied."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from test_hostile import Threads, new_model, words

from taut.codecs.wire.payload import Header, Kind, build
from taut.core.messages import Done, Note, Parcel, Ready, Report, Span, Updates
from taut.strategies.allreduce.final_model import KIND
from taut.strategies.registry import parse
from taut.supervisor.service import Supervisor
from taut.testing.hostile import HostileWorker
from taut.worker.model.flat_params import FlatParams

FORGED = np.full(5, 1000.0, np.float32)


class Run:
    """Honest workers that train, and one that is in the run with them and does what a test likes."""

    def __init__(self, folder: Path, strategy: str, honest: int) -> None:
        settings: dict[str, object] = {"strategy": strategy, "topology": "complete", "codec": "tether"}
        self.supervisor = Supervisor(settings, folder, run="r", workers=honest, seed=0)
        self.supervisor.start()
        self.honest = Threads(self.supervisor, honest)
        self.until(lambda: sum(row.statistics.steps > 0 for row in self.rows()) == honest)
        self.hostile = HostileWorker(self.supervisor.address, self.supervisor.token, FlatParams(new_model()).specs())
        streams = not parse(strategy).is_method
        self.hostile.join(ready=streams)
        if not streams:
            self.hostile.say(Ready())

    def rows(self):
        return [row for row in self.supervisor.view().workers if row.state != "gone"]

    def others(self) -> list[int]:
        return sorted(row.rank for row in self.rows() if row.rank != self.hostile.rank and row.statistics.steps > 0)

    def until(self, condition) -> None:
        while not condition():
            assert self.supervisor.wait(0.02) is None

    def end(self):
        """Drain, and return the outcome when all honest workers have ended."""
        self.supervisor.drain("enough")
        outcome = self.supervisor.wait(30)
        for thread in self.honest.threads:
            thread.join(20)
        return outcome


@contextmanager
def run_with_liar(folder: Path, strategy: str, honest: int) -> Iterator[Run]:
    run = Run(folder, strategy, honest)
    try:
        yield run
    finally:
        run.hostile.close()
        run.supervisor.stop()


def assert_whole(run: Run, outcome, honest: int) -> None:
    assert not run.honest.failures
    assert outcome is not None
    assert (outcome.exit_code, outcome.identical) == (0, True), outcome
    assert len(run.honest.models) == honest
    assert all(bool((weight.abs() < 100).all()) for weight in run.honest.models.values())


@pytest.mark.parametrize("strategy", ["averaging:every=1", "easgd:every=1"])
def test_a_final_model_in_mid_run_is_refused_and_shown(tmp_path: Path, strategy: str) -> None:
    with run_with_liar(tmp_path, strategy, honest=2) as run:
        numbers = itertools.count(1)

        def refused() -> bool:  # a worker that has not placed the liar yet passes over what it says: it goes on to say it
            number = next(numbers)
            for rank in run.others():
                run.hostile.send(rank, Parcel(number, 0, Note(KIND), 0, 1), [FORGED.tobytes()])
            told = [event.text for event in run.supervisor.view().events if event.kind == "refused"]
            return any("a final model, though the run goes on" in text for text in told)

        run.hostile.until(refused)
        run.hostile.say(Done(leaving=True))
        run.until(lambda: run.hostile.rank not in {row.rank for row in run.rows()})
        assert_whole(run, run.end(), honest=2)


def settled(run: Run, honest: int) -> bool:
    """The liar is gone, and all honest workers train, those that had to take over a state again too."""
    run.hostile.listen(0.0)
    gone = run.hostile.expelled is not None and run.hostile.rank not in {row.rank for row in run.rows()}
    return gone and len(run.others()) == honest


def test_different_updates_to_different_workers_get_their_sender_expelled(tmp_path: Path) -> None:
    with run_with_liar(tmp_path, "async", honest=3) as run:
        others = run.others()
        for number in range(1, 11):
            for place, rank in enumerate(others):
                message = Updates(0, 0, [Span(run.hostile.rank, number, number)])
                run.hostile.until(lambda rank=rank, m=message, at=place: run.hostile.send(rank, m, [words(at)]))
        run.hostile.until(lambda: settled(run, honest=3))
        assert "different updates to different workers" in str(run.hostile.expelled)
        told = [(event.kind, event.text) for event in run.supervisor.view().events]
        assert any(kind == "dispute" and f"of worker {run.hostile.rank}'s updates" in text for kind, text in told), told
        outcome = run.end()
        assert outcome is not None and outcome.exact
        assert_whole(run, outcome, honest=3)


def mutated(choose: random.Random, rank: int, numbers: dict[int, int], to: int) -> tuple[Updates | Report, list[bytes]]:
    """A message to worker ``to`` that is nearly right. ``numbers``: of the last update that each was sent."""
    payload = bytearray(choose.choice([words(choose.randrange(5)), huge(choose), b""]))
    for _ in range(choose.randrange(3) if payload else 0):
        payload[choose.randrange(len(payload))] = choose.randrange(256)
    if choose.random() < 0.2:
        have = {choose.randrange(5): choose.randrange(50) for _ in range(3)}
        return Report(0, choose.randrange(-1, 50), choose.random() < 0.5, have, [choose.randrange(5)], -1), []
    if choose.random() < 0.1:  # of somebody else, or from another time
        return Updates(0, 0, [Span(choose.randrange(4), choose.randrange(1, 99), 2**40)]), [bytes(payload)]
    lo = numbers.get(to, 0) + 1
    numbers[to] = lo + choose.choice([0, 0, 0, 7])
    return Updates(choose.randrange(3), choose.randrange(99), [Span(rank, lo, numbers[to])]), [bytes(payload)]


def huge(choose: random.Random) -> bytes:
    quantum = 2.0 ** choose.choice([20, 60, 126])
    return build(Header(Kind.WORDS, quantum, 0, 5, 1), np.array([2 << 1], np.uint32))


@pytest.mark.parametrize("strategy", ["async", "ssp:3"])
def test_mutated_messages_end_nobody_and_leave_the_honest_equal(tmp_path: Path, strategy: str) -> None:
    with run_with_liar(tmp_path, strategy, honest=3) as run:
        choose = random.Random(strategy)
        numbers: dict[int, int] = {}
        sent = 0
        while run.hostile.expelled is None:
            for rank in run.others():
                message, payloads = mutated(choose, run.hostile.rank, numbers, rank)
                sent += run.hostile.send(rank, message, payloads)
            run.hostile.listen(0.001)
            assert sent < 20_000, "it is never expelled"
        run.hostile.until(lambda: settled(run, honest=3))
        outcome = run.end()
        assert_whole(run, outcome, honest=3)
        assert all(bool(torch.isfinite(weight).all()) for weight in run.honest.models.values())
