"""The supervisor of a model that grows: all must ask for it, all for the same, and who is not in it is told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

from taut.core.messages import Done, Expulsion, NextPhase, PhaseDone, Refusal, TensorSpec, Welcome
from taut.supervisor.storage.snapshot import keep, recall

GROWN = [TensorSpec("0.weight", [8, 4], "float32", "trained")]


def ask(run: Scripted, *ranks: int, phase: int = 0, growths: int = 1, model: list[TensorSpec] = GROWN) -> None:
    for rank in ranks:
        run.say(rank, PhaseDone(phase, growths, model))


def told(run: Scripted, rank: int = 0) -> list[tuple[int, int]]:
    return [(each.phase, each.growths) for each in run.heard(rank, NextPhase)]


def test_the_model_grows_when_the_last_worker_asks() -> None:
    run = Scripted(2)
    run.train(0, 1)
    ask(run, 0)
    ask(run, 0)  # again: the first may have been lost
    assert told(run) == []
    ask(run, 1)
    assert told(run) == told(run, 1) == [(1, 1)]
    ask(run, 0, 1)  # late repetitions
    assert told(run) == [(1, 1)]
    ask(run, 0, 1, phase=1, growths=2)
    assert told(run) == [(1, 1), (2, 2)]


def test_who_dies_or_is_done_holds_nobody_up() -> None:
    run = Scripted(3)
    run.train(0, 1, 2)
    ask(run, 0)
    run.say(1, Done())
    assert told(run) == []
    run.say(2, Done(leaving=True))
    assert told(run) == told(run, 1) == [(1, 1)], "worker 1 must know that it cannot stay"


def test_a_worker_that_asks_for_another_model_is_refused() -> None:
    run = Scripted(2)
    run.train(0, 1)
    ask(run, 0)
    ask(run, 1, model=[TensorSpec("0.weight", [9, 4], "float32", "trained")])
    (why,) = run.heard(1, Refusal)
    assert why.reason.startswith("worker.grow to another model: trained tensor '0.weight' of shape 9x4")
    assert told(run) == []


def test_who_joins_meanwhile_or_later_with_the_model_of_before_cannot() -> None:
    run = Scripted(2)
    run.train(0, 1)
    run.join(2)
    ask(run, 0, 1)
    assert "has grown while it joined" in run.heard(2, Expulsion)[0].reason
    run.join(3)
    assert not run.heard(3, Welcome) and "has grown since its start" in run.heard(3, Refusal)[0].reason


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["steps", "grow"]), min_size=1, max_size=6), st.randoms())
def test_growths_and_changes_of_the_strategy_come_in_the_order_in_which_all_reached_them(
    order: list[str], dice: object
) -> None:
    """However they interleave, each announcement is one phase further, and a growth is announced alone."""
    phases = 1 + order.count("steps")
    run = Scripted(2, phases=phases)
    run.train(0, 1)
    growths = 0
    for phase, what in enumerate(order):
        growths += what == "grow"
        for rank in sorted((0, 1), key=lambda _: dice.random()):  # type: ignore[attr-defined]
            if what == "grow":
                ask(run, rank, phase=phase, growths=growths)
            else:
                run.say(rank, PhaseDone(phase + 1, growths))
        assert told(run)[-1] == told(run, 1)[-1] == (phase + 1, growths)
    assert [each[0] for each in told(run)] == list(range(1, len(order) + 1))


def test_one_that_was_ahead_of_the_others_before_the_growth_is_so_after_it() -> None:
    run = Scripted(2, phases=2)
    run.train(0, 1)
    run.say(0, PhaseDone(1))
    ask(run, 0, phase=1)
    ask(run, 1)
    assert told(run) == [(1, 1)]
    run.say(1, PhaseDone(2, 1))
    assert told(run) == [(1, 1), (2, 1)], "worker 0 need not say again that it has made the first phase's steps"


def test_a_supervisor_that_comes_back_knows_the_grown_model() -> None:
    run = Scripted(2)
    run.train(0, 1)
    ask(run, 0, 1)
    again = recall(run.cluster.plan, keep(run.cluster, run.now), 1, run.now)
    assert again.ledger.growths == 1 and list(again.members.model or ()) == GROWN
