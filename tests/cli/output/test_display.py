"""Figures, tables and logs, from made-up workers."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from taut.cli.main import app
from taut.cli.output.display import Display, fitting, replicas_text, show_outcome
from taut.cli.output.format import outcome_record, time_shares
from taut.core.messages import TIME_PARTS, Statistics
from taut.quantities import size
from taut.supervisor.metrics import cluster_rate, compression, total
from taut.supervisor.storage.store_writer import StoreWriter, plain
from taut.supervisor.view import ClusterView, Event, Outcome, ValidationScores, WorkerRow

seconds = st.just(0.0) | st.floats(1e-3, 1e6)
some_statistics = st.builds(
    Statistics,
    steps=st.integers(0, 10**6),
    samples=st.integers(0, 10**9),
    loss=st.none() | st.floats(-1e3, 1e3),
    bytes_sent=st.integers(0, 10**12),
    bytes_dense=st.integers(0, 10**15),
    wall_s=seconds,
    **{f"{part}_s": seconds for part in TIME_PARTS},
)


def row(rank: int, statistics: Statistics, state: str = "training", reason: str = "") -> WorkerRow:
    return WorkerRow(rank, "host", 100 + rank, state, statistics, 0.0, reason)  # type: ignore[arg-type]


def view(rows: list[WorkerRow], wall_s: float = 1.0, events: tuple[Event, ...] = ()) -> ClusterView:
    return ClusterView("r", "training", 0, tuple(rows), 0.1, 0, 5, 10, events, wall_s, wall_s)


def outcome(rows: list[WorkerRow], identical: bool | None = True, exact: bool = True) -> Outcome:
    return Outcome(
        state="finished",
        exit_code=0,
        identical=identical,
        exact=exact,
        digest="abcdef0123456789",
        model=Path("runs/r/model.safetensors"),
        workers={each.rank: each for each in rows},
        consensus=0.25,
        wall_s=3.0,
    )


@given(some_statistics)
def test_shares_of_the_time_are_shares(given: Statistics) -> None:
    split = time_shares(given)
    assert set(split) == {*TIME_PARTS, "other"}
    assert all(share >= 0 for share in split.values())
    claimed_s = sum(getattr(given, f"{part}_s") for part in TIME_PARTS)
    if 0 < claimed_s <= given.wall_s:
        assert sum(split.values()) == pytest.approx(1.0)


@given(st.lists(some_statistics, max_size=5))
def test_the_total_adds_up(workers: list[Statistics]) -> None:
    together = total(workers)
    assert together.samples == sum(each.samples for each in workers)
    assert together.bytes_sent == sum(each.bytes_sent for each in workers)
    losses = [each.loss for each in workers if each.loss is not None and each.steps]
    if losses:
        assert together.loss is not None
        assert min(losses) - 1e-6 <= together.loss <= max(losses) + 1e-6
    longest_s = max((each.wall_s for each in workers), default=0)
    assert cluster_rate(workers) * longest_s == pytest.approx(together.samples if longest_s else 0)


@given(st.lists(some_statistics, max_size=3), st.sampled_from([True, False, None]), st.booleans())
def test_the_record_of_any_outcome_is_json(workers: list[Statistics], identical: bool | None, exact: bool) -> None:
    rows = [row(rank, each) for rank, each in enumerate(workers)]
    record = outcome_record("r", "runs/r", {"codec": "tether"}, outcome(rows, identical, exact))
    again = json.loads(json.dumps(plain(record), allow_nan=False))
    assert again["replicas_identical"] is identical
    assert len(again["workers"]) == len(workers)
    assert again["bytes_sent"] == sum(each.bytes_sent for each in workers)


def test_nothing_sent_is_no_compression() -> None:
    assert compression(Statistics()) is None
    assert compression(Statistics(bytes_sent=2)) is None, "without peers there is nothing to compare with"
    assert compression(Statistics(bytes_sent=2, bytes_dense=100)) == 50


def test_what_is_not_finite_is_null() -> None:
    assert plain({"loss": float("inf"), "row": Statistics(loss=float("nan"))})["loss"] is None


@given(st.floats(0, 1e18))
def test_sizes_stay_short(nbytes: float) -> None:
    assert len(size(nbytes)) <= 12


def test_the_summary_says_what_matters() -> None:
    text = io.StringIO()
    workers = [
        row(0, Statistics(steps=10, samples=320, bytes_sent=1000, bytes_dense=100_000, wall_s=2, compute_s=2)),
        row(1, Statistics(), "gone", "killed by SIGKILL"),
    ]
    show_outcome(Console(file=text, width=120), "r", outcome(workers))
    said = text.getvalue()
    for word in (
        "100x",
        "160",
        "killed by SIGKILL",
        "identical (hash abcdef012345)",
        "model.safetensors",
        "all",
    ):
        assert word in said


def test_the_table_fits_into_80_columns_and_no_state_is_cut_off() -> None:
    split = {f"{part}_s": 1.0 + index for index, part in enumerate(TIME_PARTS)}
    busy = Statistics(123_456, 10**8, 0.1234, bytes_sent=10**9, bytes_dense=10**11, wall_s=sum(split.values()), **split)
    judged = replace(
        outcome([row(0, busy, "finished"), row(123, busy, "gone", "killed by SIGKILL, " * 5)]),
        validation=ValidationScores({0: 0.98765, 123: None}, 0.98765),
    )
    text = io.StringIO()
    show_outcome(Console(file=text, width=80), "r", judged)
    lines = text.getvalue().splitlines()
    title, heading, first, second, together, *_ = lines
    assert max(map(len, lines[: lines.index(together) + 3])) <= 80 and "…" not in text.getvalue()
    assert " ".join(heading.split()) == "worker state steps samples/s loss sent compute talk wait data score"
    assert " ".join(first.split()) == "0 finished 123,456 4,761,905 0.1234 1.0 GB 5% 48% 19% 29% 0.9877"
    assert title.startswith("run r: finished")
    assert second.split()[:2] == ["123", "gone"] and together.split()[0] == "all"
    assert "worker 123 is gone: killed by SIGKILL, killed" in lines[5]


def test_workers_that_are_gone_make_room_for_the_others() -> None:
    rows = [row(rank, Statistics(), "gone" if rank < 2 else "training") for rank in range(5)]
    assert [each.rank for each in fitting(rows, 5)] == [0, 1, 2, 3, 4]
    assert [each.rank for each in fitting(rows, 4)] == [0, 2, 3, 4]
    assert [each.rank for each in fitting(rows, 2)] == [2, 3]
    assert [each.rank for each in fitting(rows, -3)] == [2]


def test_the_display_is_never_higher_or_wider_than_the_terminal() -> None:
    rows = [row(rank, Statistics(steps=7, wall_s=1)) for rank in range(60)]
    console = Console(file=io.StringIO(), width=80, height=24)
    console.print(Display(console)._drawn(view(rows)))
    drawn = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert drawn[-3] == "... and 42 more" and drawn[-1].startswith("60 of 60 here  0 samples/s")
    assert 20 < len(drawn) < 24 and max(map(len, drawn)) <= 80


def test_scores_are_in_the_table_the_summary_and_the_record() -> None:
    text = io.StringIO()
    judged = replace(
        outcome([row(0, Statistics()), row(1, Statistics())]),
        finish="average",
        writer=0,
        validation=ValidationScores({0: 0.625, 1: None}, 0.75),
    )
    show_outcome(Console(file=text, width=120), "r", judged)
    said = text.getvalue()
    for word in ("score", "0.625", "the average of 2 replicas, validation score 0.75", "0.25 before they were averaged"):
        assert word in said
    record = plain(outcome_record("r", "runs/r", {}, judged))
    assert record["validation"] == {"replicas": {"0": 0.625, "1": None}, "chosen": 0.75, "better": "higher"}
    assert (record["finish"], record["consensus_distance"]) == ("average", 0.25)
    assert outcome_record("r", "runs/r", {}, outcome([]))["validation"] is None


@pytest.mark.parametrize(
    ("finish", "words"),
    [("best", "the best replica, worker 2's"), ("any", "worker 2's replica"), ("ensemble", "all 2 replicas")],
)
def test_the_summary_says_which_model_it_is(finish: str, words: str) -> None:
    files = {0: Path("runs/r/model-0.safetensors"), 3: Path("runs/r/model-3.safetensors")}
    judged = replace(outcome([]), finish=finish, writer=2, ensemble=files if finish == "ensemble" else {})
    text = io.StringIO()
    show_outcome(Console(file=text, width=120), "r", judged)
    assert f"finish: {words}\n" in text.getvalue()
    assert ("model-3.safetensors" in text.getvalue()) == (finish == "ensemble")


def test_a_broken_promise_is_loud() -> None:
    assert "DIFFERENT" in replicas_text(outcome([], identical=False, exact=True))
    assert "DIFFERENT" not in replicas_text(outcome([], identical=False, exact=False))
    assert replicas_text(outcome([], identical=None)) == "not compared"


def test_without_a_terminal_there_are_plain_lines_and_each_event_once() -> None:
    text = io.StringIO()
    event = Event(1, 0.5, "joined", "worker 0")
    with Display(Console(file=text, width=200)) as display:
        for tenth in range(100):
            display.update(view([row(0, Statistics(steps=1, wall_s=1))], tenth / 10, (event,)))
    lines = text.getvalue().splitlines()
    assert sum("joined: worker 0" in line for line in lines) == 1
    assert sum("samples/s" in line for line in lines) == 5
    assert "\x1b" not in text.getvalue()


def test_on_a_terminal_there_is_one_line_per_worker() -> None:
    text = io.StringIO()
    rows = [row(rank, Statistics(steps=7, wall_s=1)) for rank in range(3)]
    with Display(Console(file=text, force_terminal=True, width=120)) as display:
        display.update(view(rows))
        assert display._live is not None
        display._live.refresh()
    for rank in range(3):
        assert f" {rank} " in text.getvalue()


HARM = "h\x1b]0;owned\x07\x1b[2J\n[   9.0 s] verdict: 2 replicas are identical"


def test_no_text_of_a_worker_controls_the_terminal_or_begins_a_line(tmp_path: Path) -> None:
    said = io.StringIO()
    liar = WorkerRow(0, HARM, 100, "gone", Statistics(), 0.0, HARM)
    event = Event(1, 0.5, "joined", f"worker 0 (process 7 on {HARM})")
    console = Console(file=said, width=200)
    with Display(console) as display:
        display.update(view([liar], events=(event,)))
    show_outcome(console, "r", replace(outcome([liar], identical=None), failures=(HARM,), error=HARM))
    store = StoreWriter(tmp_path / "r", "r")
    store.begin(100.0, "taut run", {}, {})
    store.joined(101.0, 0, HARM, 7)
    store.departed(102.0, 0, HARM)
    store.event(102.0, "gone", HARM)
    store.close()
    said.write(CliRunner().invoke(app, ["show", "r", "--runs-dir", str(tmp_path)]).output)
    assert said.getvalue().count("owned") >= 4
    assert "\x1b" not in said.getvalue() and "\x07" not in said.getvalue()
    assert not any(line.startswith("[   9.0 s]") for line in said.getvalue().splitlines())


def test_quiet_is_quiet() -> None:
    text = io.StringIO()
    with Display(Console(file=text, force_terminal=True), quiet=True) as display:
        display.update(view([row(0, Statistics())]))
    assert text.getvalue() == ""
