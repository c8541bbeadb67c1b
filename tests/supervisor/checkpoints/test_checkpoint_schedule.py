"""Which samples a checkpoint contains, whoever trains, dies and comes meanwhile: those, and what it lists as undone, are
all there are."""

from __future__ import annotations

from collections.abc import Iterable

from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.failure_detector import Detector
from taut.core.messages import Checkpoint, CheckpointBegun, CheckpointDone, Hello, Lease, Statistics
from taut.core.sample_ranges import Span, joined
from taut.specs import Interval
from taut.supervisor.checkpoints.schedule import Checkpointing, continued
from taut.supervisor.data.leases import Leases
from taut.supervisor.run.actions import DropCheckpoint, Outbox, Record, SaveCheckpoint, SendMessage
from taut.supervisor.run.workers import WorkerEntry, WorkerTable

LENGTH, BATCH, WORKERS = 100, 5, 3


def indices(spans: Iterable[Span]) -> set[tuple[int, int]]:
    return {(epoch, index) for epoch, lo, hi in spans for index in range(lo, hi)}


def cluster(workers: int = WORKERS, every: Interval | None = None) -> Checkpointing:
    members, leases, outbox = WorkerTable(), Leases(), Outbox()
    for rank in range(workers):
        hello = Hello(1, [], f"tcp://{rank}", "", "here", rank)
        members.workers[rank] = WorkerEntry(rank, bytes([rank]), hello, Detector(0.0), "training")
    return Checkpointing(every or Interval(1.0, "seconds"), members, leases, outbox)


class Trainee:
    """A worker as far as leases go: what it holds, how much of it is trained on, and what was when it made its copy."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.held: list[tuple[Lease, int]] = []
        self.trained: set[tuple[int, int]] = set()
        self.copied: set[tuple[int, int]] | None = None

    def train(self, samples: int) -> list[int]:
        """Train on so many; the leases that are done by it."""
        done = []
        while self.held and samples:
            lease, at = self.held[0]
            until = min(lease.hi, at + samples)
            self.trained |= indices([(lease.epoch, at, until)])
            samples -= until - at
            self.held[0] = (lease, until)
            if until == lease.hi:
                done.append(self.held.pop(0)[0].lease)
        return done

    def holds(self) -> list[Lease]:
        return [Lease(lease.lease, lease.epoch, at, lease.hi) for lease, at in self.held]


MOVES = st.lists(
    st.tuples(
        st.integers(0, WORKERS - 1), st.sampled_from(["ask", "train", "train", "copy", "write"]), st.integers(1, 12)
    ),
    max_size=80,
)


@given(MOVES)
@settings(deadline=None, max_examples=some(150))
def test_what_is_in_the_copies_and_what_is_undone_are_all_there_is(moves: list[tuple[int, str, int]]) -> None:
    run = cluster()
    trainees = [Trainee(rank) for rank in range(WORKERS)]
    run.advance(0.0, 0.0)
    run.advance(2.0, 0.0)
    assert sum(isinstance(action, SendMessage) for action in run.outbox.take()) == WORKERS
    finish = [(rank, what, 1) for what in ("copy", "write") for rank in range(WORKERS)]
    for rank, what, amount in [*moves, *finish]:
        one, worker = trainees[rank], run.members.workers[rank]
        if what == "ask":
            lease = run.leases.request(rank, 0, LENGTH, batch=BATCH, live_workers=WORKERS)
            lease = lease or run.leases.request(rank, 1, LENGTH, batch=BATCH, live_workers=WORKERS)
            if isinstance(lease, Lease):
                one.held.append((lease, lease.lo))
        elif what == "train":
            done = one.train(amount)
            run.trained(rank, done)
            run.leases.done(rank, done)
        elif what == "copy" and one.copied is None:
            one.copied = set(one.trained)
            assert run.begun(worker, CheckpointBegun(1, one.holds(), 0, amount))
        elif what == "write" and one.copied is not None and run.parts is not None:
            run.done(worker, CheckpointDone(1, 10, "aa"))
            run.advance(3.0, 0.0)
    saved = next(action for action in run.outbox.take() if isinstance(action, SaveCheckpoint))
    undone = indices(tuple(span) for span in saved.manifest["undone"])  # type: ignore[attr-defined]
    contained = set().union(*(one.copied or set() for one in trainees))
    begun = {(epoch, index) for epoch, each in run.leases.passes.items() for index in range(each.length)}
    assert contained | undone == begun
    assert not contained & undone
    again = continued(dict.fromkeys(run.leases.passes, LENGTH), joined(tuple(s) for s in undone_spans(undone)))
    assert again.samples_undone == len(undone)
    dealt: set[tuple[int, int]] = set()
    for epoch in (0, 1):
        while isinstance(lease := again.request(0, epoch, LENGTH, batch=BATCH, live_workers=2), Lease):
            fresh = indices([(lease.epoch, lease.lo, lease.hi)])
            assert not fresh & dealt
            dealt |= fresh
    assert dealt | contained == begun | {(epoch, index) for epoch in (0, 1) for index in range(LENGTH)}
    assert again.samples_again == 0, "nothing of it was trained on twice"


def undone_spans(undone: set[tuple[int, int]]) -> list[Span]:
    return [(epoch, index, index + 1) for epoch, index in undone]


def test_who_dies_is_not_waited_for_and_who_failed_to_write_ends_it() -> None:
    run = cluster()
    run.advance(0.0, 0.0)
    run.advance(2.0, 0.0)
    run.outbox.take()
    run.begun(run.members.workers[0], CheckpointBegun(1, []))
    run.done(run.members.workers[0], CheckpointDone(1, 10, "aa"))
    run.members.remove(run.members.workers[1], "killed")
    run.advance(2.1, 0.0)
    assert not run.outbox.take(), "worker 2 has not begun"
    run.begun(run.members.workers[2], CheckpointBegun(1, []))
    run.done(run.members.workers[2], CheckpointDone(1, 0, "", "disk full"))
    run.advance(2.2, 0.0)
    record, dropped = run.outbox.take()
    assert isinstance(record, Record) and "worker 2: disk full" in record.text and "the one before stays" in record.text
    assert dropped == DropCheckpoint(1)
    run.advance(3.1, 0.0)
    assert [action.message for action in run.outbox.take() if isinstance(action, SendMessage)] == [Checkpoint(2)] * 2


def test_a_connection_that_broke_ends_it() -> None:
    """What the worker said of its copy, or of a lease after it, may have been lost."""
    run = cluster(2)
    run.advance(0.0, 0.0)
    run.advance(2.0, 0.0)
    run.outbox.take()
    for worker in run.members.workers.values():
        run.begun(worker, CheckpointBegun(1, []))
    run.done(run.members.workers[0], CheckpointDone(1, 10, "aa"))
    run.disturbed(run.members.workers[0])
    run.done(run.members.workers[1], CheckpointDone(1, 10, "aa"))
    run.advance(2.2, 0.0)
    record, dropped = run.outbox.take()
    assert isinstance(record, Record) and "worker 0 had broken" in record.text
    assert dropped == DropCheckpoint(1)


def test_what_nobody_asked_for_is_not_taken() -> None:
    run = cluster()
    worker = run.members.workers[0]
    assert not run.begun(worker, CheckpointBegun(1, []))
    run.advance(0.0, 0.0)
    run.advance(2.0, 0.0)
    assert not run.begun(worker, CheckpointBegun(2, []))
    assert not run.done(worker, CheckpointDone(1, 10, "aa")), "a part that was never begun"
    assert run.begun(worker, CheckpointBegun(1, [Lease(7, 0, 0, 5), Lease(0, 0, 3, 2)]))
    assert run.parts is not None and not run.parts.reached, "leases that it does not hold"
    assert not run.begun(worker, CheckpointBegun(1, []))


def test_one_that_is_hastened_is_due_at_once_and_once() -> None:
    run = cluster(1, Interval(1000.0, "seconds"))
    run.advance(0.0, 0.0)
    run.hasten()
    run.advance(2.0, 0.0)
    assert run.number == 1 and run.parts is not None
    run.advance(3.0, 0.0)
    run.begun(run.members.workers[0], CheckpointBegun(1, []))
    run.done(run.members.workers[0], CheckpointDone(1, 10, "aa"))
    run.advance(4.0, 0.0)
    assert [action for action in run.outbox.take() if isinstance(action, SaveCheckpoint)] and run.number == 1
    run.saved(1, "checkpoint 1", "")
    run.advance(500.0, 0.0)
    assert run.number == 1, "the next one keeps its time"
    without = cluster(1)
    without.every = None
    without.hasten()
    without.advance(2.0, 0.0)
    assert without.number == 0, "a run without checkpoints has none"


def test_steps_and_epochs() -> None:
    run = cluster(1, Interval(200.0, "steps"))
    run.advance(0.0, 0.0)
    for steps, number in ((150, 0), (203, 1), (390, 1), (402, 2)):
        run.members.workers[0].statistics = Statistics(steps=steps)
        run.advance(1.0, 0.0)
        assert run.number == number
        run.parts = None
    run = cluster(1, Interval(1.0, "epochs"))
    run.advance(0.0, 0.0)
    numbers = []
    for _ in range(2):
        lease = run.leases.request(0, len(run.leases.passes), 5, batch=5, live_workers=1)
        assert isinstance(lease, Lease)
        run.advance(1.0, 0.0)
        numbers.append(run.number)
        run.leases.done(0, [lease.lease])
        run.advance(1.0, 0.0)
        numbers.append(run.number)
        run.parts = None
    assert numbers == [0, 1, 1, 2]


def test_the_run_of_another_part_follows_its_workers() -> None:
    """Workers of islands begin with a number that the first part's run gave; they file it under their island's number."""
    run = cluster(2)
    run.follows = True
    one, other = run.members.workers.values()
    run.advance(5.0, 0.0)
    assert not run.outbox.take()  # it asks nobody
    assert run.begun(one, CheckpointBegun(3, [], steps=7, island=1))
    assert run.done(one, CheckpointDone(3, 10, "a"))
    run.advance(6.0, 0.0)
    assert run.parts is not None and run.parts.asked == {1}
    assert run.begun(other, CheckpointBegun(3, [], steps=7, island=0)) and run.done(other, CheckpointDone(3, 11, "b"))
    run.advance(7.0, 0.0)
    (saved,) = run.outbox.take()
    assert isinstance(saved, SaveCheckpoint) and saved.number == 3
    files = saved.manifest["files"]
    assert {name: (part.rank, part.blake2b) for name, part in files.items()} == {
        "worker-0.safetensors": (0, "b"),
        "worker-1.safetensors": (1, "a"),
    }


def test_a_part_that_is_late_loses_that_checkpoint_only() -> None:
    run = cluster(2)
    run.follows = True
    one, other = run.members.workers.values()
    assert run.begun(one, CheckpointBegun(1, [])) and run.begun(other, CheckpointBegun(2, []))
    dropped = [action.number for action in run.outbox.take() if isinstance(action, DropCheckpoint)]
    assert dropped == [1] and run.number == 2
    assert run.done(one, CheckpointDone(1, 10, "a"))  # late, and no offence
    assert run.done(one, CheckpointDone(2, 0, "", "the disk is full")) and run.done(other, CheckpointDone(2, 11, "b"))
    run.advance(7.0, 0.0)
    assert [action.number for action in run.outbox.take() if isinstance(action, DropCheckpoint)] == [2]
