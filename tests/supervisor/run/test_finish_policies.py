"""Which model comes out: average, best, any, ensemble; scores, the consensus distance, and who may join late."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted, digest, hello

from taut.core.messages import Digest, Expulsion, Finish, Ready, Refusal, Saved, Upload
from taut.supervisor.run.actions import SaveIndex
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.verdict import by_score, consensus, relative, spread
from taut.supervisor.storage.model_file import write_index


def planned(workers: int = 2, **plan: object) -> Scripted:
    run = Scripted(workers)
    run.cluster = Cluster(RunPlan("quiet-otter", 7, workers, "{}", "host", **plan), run.now)  # type: ignore[arg-type]
    return run


def drained(run: Scripted, *digests: Digest, buffers: bytes = b"") -> None:
    run.train(*range(len(digests)))
    run.done(*range(len(digests)))
    for rank, each in enumerate(digests):
        run.say(rank, each, buffers)


def scored(score: float | None, text: str = "", **more: object) -> Digest:
    return msgspec.structs.replace(digest(text or str(score), exact=False), score=score, **more)


def save(run: Scripted, path: str, error: str = "") -> list[SaveIndex]:
    actions = run.take(run.cluster.saved(path, error, run.now))
    return [action for action in actions if isinstance(action, SaveIndex)]


def write(run: Scripted, rank: int, score: float | None = None) -> None:
    run.say(rank, Upload(0, 3, score), b"abc")


# ------------------------------------------------------------------------------------------------------- scores

scores = st.dictionaries(st.integers(0, 9), st.none() | st.floats(), min_size=1)


@given(scores, st.booleans())
def test_the_best_comes_first_and_what_is_no_number_last(table: dict[int, float | None], lower: bool) -> None:
    order = by_score(table, lower)
    assert sorted(order) == sorted(table)
    good = [rank for rank in order if table[rank] is not None and not math.isnan(table[rank] or 0.0)]
    assert order[: len(good)] == good
    values = [table[rank] for rank in good]
    assert values == sorted(values, reverse=not lower)  # type: ignore[type-var]
    given = list(table)
    for one, other in pairwise(good):
        assert table[one] != table[other] or given.index(one) < given.index(other), "ties go to the first one"


@pytest.mark.parametrize(("lower", "writer"), [(False, 1), (True, 2)])
def test_the_best_replica_is_written(lower: bool, writer: int) -> None:
    run = planned(4, finish="best", agrees=False)
    each = [scored(value, lower_is_better=lower) for value in (math.nan, 0.9, 0.1, 0.5)]
    drained(run, *each, buffers=np.float32([1, 2]).tobytes())
    assert run.heard(0, Finish) == [Finish(identical=False, writer=writer)]
    payloads = [one.payloads for one in run.sent[b"0"] if isinstance(one.message, Finish)]
    assert payloads == [(b"",)], "batch-norm statistics belong to the weights that they were taken with"
    write(run, writer, 0.91)
    save(run, "m")
    validation = run.outcome.validation
    assert validation is not None
    assert validation.chosen == 0.91
    assert validation.better == ("lower" if lower else "higher")
    assert validation.replicas[1] == 0.9
    assert (run.outcome.finish, run.outcome.writer, run.outcome.exit_code) == ("best", writer, 0)


@pytest.mark.parametrize(("policy", "islands", "writer"), [("best", (1, 0), 1), ("any", (1, 0), 1), ("best", (0, 1), 0)])
def test_all_parts_choose_the_same_island(policy: str, islands: tuple[int, int], writer: int) -> None:
    """Ranks in the run of a part follow from who came first; the numbers of islands are the same in all."""
    run = planned(2, finish=policy, agrees=False)
    drained(run, *(msgspec.structs.replace(scored(0.5), island=number) for number in islands))
    assert run.heard(0, Finish)[-1].writer == writer


def test_when_the_best_dies_the_second_best_is_asked() -> None:
    run = planned(3, finish="best", agrees=False)
    drained(run, scored(0.5), scored(0.9), scored(0.7))
    run.exit(1)
    assert run.heard(2, Finish)[-1].writer == 2
    assert run.heard(0, Finish)[-1].writer == 1, "it is not asked"


def test_without_scores_the_best_is_any_and_that_is_said() -> None:
    run = planned(2, finish="best", agrees=False)
    drained(run, scored(None, "a"), scored(None, "b"))
    assert run.heard(0, Finish)[0].writer == 0
    assert "no scores" in run.told("finish")
    write(run, 0)
    save(run, "m")
    assert run.outcome.validation is None


def test_what_a_validation_function_raised_is_recorded() -> None:
    run = planned(2)
    drained(run, scored(None, "a", note="validate (f) raised ValueError: x"), scored(0.5, "b"))
    assert "worker 0: validate (f) raised ValueError: x" in run.told("finish")
    assert "worker 0: none, worker 1: 0.5" in run.told("validation")


def test_any_where_replicas_differ_is_said_at_the_start_and_keeps_buffers_apart() -> None:
    run = planned(2, finish="any", agrees=False, strategy="dpsgd")
    drained(run, scored(None, "a"), scored(None, "b"), buffers=b"\0" * 8)
    assert "dpsgd" in run.told("finish")
    assert [one.payloads for one in run.sent[b"1"] if isinstance(one.message, Finish)] == [(b"",)]
    assert "differ" not in planned(2, finish="any").told("finish")


def test_an_average_brings_averaged_buffers() -> None:
    run = planned(2, finish="average", agrees=False)
    run.train(0, 1)
    run.done(0, 1)
    run.say(0, digest(samples=300), np.float32([0]).tobytes())
    run.say(1, digest(samples=100), np.float32([4]).tobytes())
    assert [one.payloads for one in run.sent[b"1"] if isinstance(one.message, Finish)] == [(np.float32([1]).tobytes(),)]


# ----------------------------------------------------------------------------------------------------- ensemble


def test_every_model_of_an_ensemble_is_written_in_turn_and_listed() -> None:
    run = planned(3, finish="ensemble", agrees=False)
    drained(run, scored(0.5), scored(0.6), scored(0.7))
    for rank in range(3):
        assert run.heard(rank, Finish)[-1].writer == rank
        write(run, rank, 0.1 * rank)
        assert run.heard(0, Saved) == [], "everybody stays until all are written"
        index = save(run, f"runs/x/model-{rank}.safetensors")
    (listed,) = index
    models = listed.index["models"]
    assert models == [
        {"rank": rank, "file": f"model-{rank}.safetensors", "score": pytest.approx(0.1 * rank)} for rank in range(3)
    ]
    save(run, "runs/x/ensemble.json")
    assert [len(run.heard(rank, Saved)) for rank in range(3)] == [1, 1, 1]
    assert run.outcome.model == Path("runs/x/ensemble.json")
    assert sorted(run.outcome.ensemble) == [0, 1, 2]
    assert run.outcome.exit_code == 0
    assert run.outcome.validation is not None
    assert run.outcome.validation.chosen is None


def test_an_ensemble_goes_on_without_the_dead_and_the_unwritable() -> None:
    run = planned(3, finish="ensemble", agrees=False)
    drained(run, scored(None, "a"), scored(None, "b"), scored(None, "c"))
    write(run, 0)
    save(run, "", "disk full")
    assert "disk full" in run.told("writer")
    run.exit(1)
    assert run.heard(2, Finish)[-1].writer == 2
    write(run, 2)
    (listed,) = save(run, "m/model-2.safetensors")
    assert [one["rank"] for one in listed.index["models"]] == [2]  # type: ignore[attr-defined]
    save(run, "m/ensemble.json")
    assert list(run.outcome.ensemble) == [2]


def test_an_ensemble_of_which_nothing_is_left_is_a_failure() -> None:
    run = planned(1, finish="ensemble", agrees=False)
    drained(run, scored(None, "a"))
    write(run, 0)
    assert save(run, "", "disk full") == []
    assert run.outcome.state == "failed"


def test_the_index_is_json_whatever_the_scores_are(tmp_path: Path) -> None:
    path = write_index(tmp_path, {"models": [{"rank": 0, "score": math.nan}]})
    assert json.loads(path.read_text()) == {"models": [{"rank": 0, "score": None}]}
    assert [one.name for one in tmp_path.iterdir()] == ["ensemble.json"]


# -------------------------------------------------------------------------------------------- consensus distance


def test_the_distance_is_measured_where_it_was_and_estimated_elsewhere() -> None:
    measured = {0: scored(None, distance=3.0), 1: scored(None, distance=4.0), 2: scored(None)}
    assert spread(measured) == pytest.approx(math.sqrt(12.5))
    assert spread({rank: digest() for rank in range(3)}) == 0.0, "equal by hash"
    sketched = {0: scored(None, "a", sketch=[3.0, 4.0]), 1: scored(None, "b", sketch=[3.0, 6.0])}
    assert spread(sketched) == pytest.approx(1.0 / math.hypot(3.0, 5.0))


def test_the_relative_distance_does_not_depend_on_the_scale() -> None:
    rows = [[1.0, 2.0, 3.0], [1.5, 2.0, 2.5]]
    large = [[1e3 * value for value in row] for row in rows]
    assert relative(rows) == pytest.approx(relative(large))
    assert relative([[1.0, 0.0], [-1.0, 0.0]]) == consensus([[1.0, 0.0], [-1.0, 0.0]]), "no mean to compare with"
    assert relative([]) == 0.0


# ------------------------------------------------------------------------------------------------- coming late


def test_where_nobody_may_join_late_a_latecomer_is_told_why() -> None:
    run = planned(2, admits_late=False, strategy="sync")
    run.train(0, 1)
    run.join(2)
    (refusal,) = run.heard(2, Refusal)
    assert "'sync'" in refusal.reason
    assert "async" in refusal.reason
    assert [member.rank for member in run.roster(0).members] == [0, 1]


def test_one_that_is_not_ready_at_the_start_is_too_late() -> None:
    run = planned(2, admits_late=False, strategy="sync")
    run.join(0, 1, 2)
    run.say(0, Ready())
    run.say(2, Ready())
    (expulsion,) = run.heard(1, Expulsion)
    assert "'sync'" in expulsion.reason
    assert [gone.rank for gone in run.roster(0).gone] == [1]
    run.done(0, 2)
    run.drained(0, 2)
    assert run.heard(2, Finish) != []


def test_elsewhere_workers_join_in_mid_run() -> None:
    run = planned(2)
    run.train(0, 1)
    run.say(2, hello(102))
    assert run.heard(2, Refusal) == []
