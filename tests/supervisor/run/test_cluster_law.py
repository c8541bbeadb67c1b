"""Law 7: leases cover the data, and killing any worker at any message neither hangs nor loses anything.

Workers that behave as real ones do are played against the state machine, in any order of messages, with
deaths and late joiners anywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, digest, hello

from taut.core.messages import (
    Done,
    Donor,
    Drain,
    Finish,
    Lease,
    LeaseDone,
    LeaseRequest,
    Message,
    NoLease,
    Ready,
    Saved,
    Start,
    Upload,
    Welcome,
)

LENGTH, BATCH, PASSES = 60, 4, 2


@dataclass
class Actor:
    """One well-behaved worker: answers each message it is told with what a worker would say."""

    number: int
    read: int = 0  # how many of the messages told to it it has taken
    epoch: int = 0
    ready: bool = False
    drained: bool = False
    over: bool = False
    rank: int = -1
    trained: list[tuple[int, int]] = field(default_factory=list)

    def take(self, run: Scripted, message: Message) -> None:
        match message:
            case Welcome(rank):
                self.rank = rank
            case Donor() if not self.ready:
                self.ready = True
                run.say(self.number, Ready())
            case Start() | NoLease() if self.drained:
                pass
            case Start():
                self.ask(run)
            case Lease(lease, epoch, lo, hi):
                self.trained += [(epoch, index) for index in range(lo, hi)]
                run.say(self.number, LeaseDone([lease]))
                self.ask(run)
            case NoLease():
                self.epoch += 1
                if self.epoch < PASSES:
                    self.ask(run)
                else:
                    run.say(self.number, Done())
            case Drain() if not self.drained:
                self.drained = True
                run.say(self.number, digest(), b"")
            case Finish(writer=writer):
                self.over = writer != self.rank
                if not self.over:
                    run.say(self.number, Upload(0, 6), b"abc")
                    run.say(self.number, Upload(3, 6), b"def")
            case Saved():
                self.over = True

    def ask(self, run: Scripted) -> None:
        run.say(self.number, LeaseRequest(self.epoch, LENGTH, BATCH, self.epoch == PASSES - 1))


def play(run: Scripted, actors: dict[int, Actor], incidents: dict[int, str], chance: Random) -> set[int]:
    """Deliver messages in any order until nothing is left, with incidents after so many. Returns the
    killed."""
    killed: set[int] = set()
    for step in range(20_000):
        waiting = [one for one in actors.values() if one.read < len(run.sent.get(b"%d" % one.number, []))]
        incident = incidents.get(step)
        if incident == "kill" and (alive := [one for one in actors.values() if not one.over]):
            victim = chance.choice(alive).number
            del actors[victim]
            killed.add(victim)
            run.exit(victim)
        elif incident == "join" and run.cluster.state in ("waiting", "training"):
            number = len(actors) + len(killed)
            actors[number] = Actor(number)
            run.say(number, hello(100 + number))
        elif waiting:
            actor = chance.choice(waiting)
            message = run.sent[b"%d" % actor.number][actor.read].message
            actor.read += 1
            actor.take(run, message)
        else:
            return killed
        if run.saves and not run.outcomes:
            run.take(run.cluster.saved("m", "", run.now))
    raise AssertionError("no end")


@settings(max_examples=some(300), deadline=None)
@given(
    st.dictionaries(st.integers(0, 130), st.sampled_from(["kill", "join"]), max_size=5),
    st.integers(1, 4),
    st.randoms(use_true_random=False),
)
def test_the_run_ends_and_the_data_are_covered(incidents: dict[int, str], workers: int, chance: Random) -> None:
    run = Scripted(workers=workers)
    actors = {number: Actor(number) for number in range(workers)}
    for number in actors:
        run.say(number, hello(100 + number))
    killed = play(run, actors, incidents, chance)
    if not run.outcomes:  # the writer was killed and those who could replace it had gone: only time tells
        run.pass_time(60)
    outcome = run.outcome
    if not killed:
        assert outcome.exit_code == 0
        assert outcome.samples_again == 0
        assert Counter(index for one in actors.values() for index in one.trained) == {
            (epoch, index): 1 for epoch in range(PASSES) for index in range(LENGTH)
        }
    if outcome.model is not None:
        assert outcome.exit_code == 0, outcome.error
        assert outcome.samples_undone == 0
        assert run.saves == [b"abcdef"]
    else:
        assert killed
    assert len([failure for failure in outcome.failures if "SIGKILL" in failure]) <= len(killed)
