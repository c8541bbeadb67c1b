"""What is shown of a run, from its supervisor and from its store: bounded, and never more trusted than it is."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from played import SETTINGS, row, view

from taut.core.messages import Statistics
from taut.dashboard.records import RunLine, StreamMessage, WorkerLine
from taut.dashboard.sources import StoreSource
from taut.dashboard.view_model import MOST_CHARACTERS, MOST_EVENTS, MOST_WORKERS, from_view, worker_lines
from taut.supervisor.storage.store_reader import load_run
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import Outcome

anything = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=40)
@example("<b>\n\n", math.nan, math.inf, 5e-324)
@example("x" * 2000, 1.0, math.nan, math.nan)
@given(st.text(max_size=20) | st.text(max_size=20).map(lambda text: text * 200), anything, anything, anything)
def test_whatever_a_worker_says_is_a_bounded_record(host: str, loss: float, staleness: float, wall_s: float) -> None:
    told = row(0, host, reason=host, loss=loss, staleness=staleness, wall_s=wall_s, samples=2**62)
    seen = from_view(view(told, text=host), SETTINGS, None, False)
    look = StreamMessage(seen.run, seen.workers, seen.events_after(0), (), True)
    text = msgspec.json.encode(look)
    assert msgspec.json.decode(text, type=StreamMessage) == look, "the fields are what they are said to be"
    assert b"\n" not in text, "one line of server-sent events"
    worker = seen.workers.workers[0]
    assert len(worker.host) <= MOST_CHARACTERS and all(len(event.text) <= MOST_CHARACTERS for event in seen.events)
    for value in (worker.loss, worker.staleness, worker.samples_per_s, seen.run.loss, seen.run.samples_per_s):
        assert value is None or math.isfinite(value)


def test_answers_hold_so_many_and_who_is_there_comes_first() -> None:
    rows = [row(rank, state="gone" if rank % 2 else "training") for rank in range(2 * MOST_WORKERS - 100)]
    random.Random(0).shuffle(rows)
    lines = worker_lines(rows)
    assert (lines.total, len(lines.workers)) == (len(rows), MOST_WORKERS)
    ranks = [line.rank for line in lines.workers]
    there = [rank for rank in range(len(rows)) if rank % 2 == 0]
    assert ranks[: len(there)] == there
    assert (
        ranks[len(there) :] == sorted((rank for rank in range(len(rows)) if rank % 2), reverse=True)[: 500 - len(there)]
    )
    seen = from_view(view(*rows, events=450), SETTINGS, None, False)
    events, after, answers = [], 0, 0
    while (answer := seen.events_after(after)).events:
        events += [event.number for event in answer.events]
        after, answers = events[-1], answers + 1
        assert (len(answer.events) <= MOST_EVENTS, answer.last) == (True, 450)
    assert (events, answers) == (list(range(1, 451)), 3)


def test_the_run_line() -> None:
    seen = from_view(view(row(0), row(1, loss=0.7), row(2, state="gone", loss=9.0)), SETTINGS, None, True)
    assert seen.run == RunLine(
        run="quiet-otter",
        state="training",
        source="supervisor",
        secret_for="everything",
        strategy="async",
        topology="complete",
        codec="tether",
        expected=0,
        workers=2,
        ranks=3,
        wall_s=3.0,
        train_s=3.0,
        epoch=1,
        samples_done=50,
        samples_total=100,
        samples=1920,
        samples_per_s=960.0,
        loss=0.6,
        staleness=0.0,
        consensus=0.01,
        bytes_sent=0,
        identical=None,
        exit_code=None,
        error="",
    )


def test_a_run_is_followed_through_its_store(tmp_path: Path) -> None:
    store = StoreWriter(tmp_path / "otter", "otter")
    store.begin(100.0, "taut run x.py", SETTINGS, {})
    for rank in (0, 1):
        store.joined(101.0, rank, "host", 40 + rank)
    for second in range(10):
        for rank in (0, 1):
            store.measured(102.0 + second, rank, Statistics(steps=second, samples=50 * second, loss=1.0, wall_s=second))
    store.event(101.0, "joined", "worker 0")
    store.flush()
    source = StoreSource(tmp_path / "otter", False)
    seen = source.look()
    assert (seen.run.state, seen.run.source, seen.run.samples, seen.run.workers) == ("running", "store", 900, 2)
    rates = [point.samples_per_s for point in source.history.points]
    assert rates[0] == 50.0 and set(rates[1:]) == {100.0}, "one worker's row comes before the other's"
    assert [(event.number, event.time_s) for event in seen.events] == [(1, 1.0)]

    store.departed(112.0, 1, "left")
    store.event(112.0, "gone", "worker 1: left")
    store.measured(113.0, 0, Statistics(steps=11, samples=550, loss=math.nan, wall_s=11.0))
    store.flush()
    seen = source.look()
    assert (seen.run.samples, seen.run.workers, seen.run.ranks, seen.run.loss) == (1000, 1, 2, None)
    assert [event.number for event in seen.events_after(1).events] == [2]
    assert {line.refused for line in seen.workers.workers} == {None}, "not known, which is not none"
    assert not seen.over

    store.finished(114.0, Outcome("finished", 0, True, True, "abc", Path("m"), {0: row(0, state="finished")}))
    store.close()
    seen = source.look()
    assert (seen.run.state, seen.run.wall_s, seen.run.identical, seen.over) == ("finished", 14.0, True, True)
    assert [(line.rank, line.state, line.reason, line.refused) for line in seen.workers.workers] == [
        (0, "finished", "", 0),
        (1, "gone", "left", 0),
    ]
    again = StoreSource(tmp_path / "otter", False)
    assert again.look().workers == seen.workers, "the same, whenever it was begun"
    assert len(load_run(tmp_path, "otter").statistics) == 21


def test_the_page_knows_every_field_it_reads() -> None:
    """A field that is renamed must be renamed in the page."""
    from taut.dashboard.app import read_page

    script = read_page("page.js").decode()
    for name, record in (("run", RunLine), ("worker", WorkerLine)):
        used = set(re.findall(rf"\b{name}\.([a-z_]+)", script))
        assert used
        assert used <= set(record.__struct_fields__)
