"""What the demo says is computed from what its workers noted."""

import json
from pathlib import Path

import pytest

from taut.cli.demo.figures import DemoPoint, Notes, Training, read_notes, sentences
from taut.cli.demo.three_runs import DemoFaults, ThreeRuns
from taut.config import resolve


def training(
    name: str, losses: list[float], sent: int = 0, pause_s: float | None = None, identical: bool = True
) -> Training:
    curve = [DemoPoint(float(second), loss, 1.0 - loss / 10) for second, loss in enumerate(losses)]
    killed_s = None if pause_s is None else 2.0
    return Training(name, "run", Path("model"), 4, curve, 100.0, sent, identical, killed_s, pause_s)


ALONE = training("one worker", [2.0, 1.5, 1.2, 1.0, 0.8])


def test_the_time_to_a_loss_is_that_of_the_first_point_below_it() -> None:
    assert ALONE.time_to(1.2) == 2.0
    assert ALONE.time_to(0.9) == 4.0
    assert ALONE.time_to(0.1) is None


def test_sentences_say_who_was_faster_slower_or_never_there() -> None:
    fast, equal = training("async", [2.0, 0.9, 0.7, 0.6, 0.5]), training("ssp", [2.0, 1.5, 1.2, 1.0, 0.8])
    late = training("sync", [2.0, 1.9, 1.8, 1.7, 1.6])
    first, _ = sentences(ALONE, [late, fast], 0.8)
    assert "one worker had after 4 s" in first
    assert "sync did not get there (its loss was 1.60, not 0.80)" in first
    assert "async got there in 2.0 s, 2.0 times as fast as one worker" in first
    assert "ssp got there in 4.0 s, as fast as one worker" in sentences(ALONE, [equal], 0.8)[0]
    slow = training("sync", [2.0, 1.5, 1.2, 1.1, 1.0, 0.9, 0.8, 0.8, 0.8])
    assert "sync got there in 6.0 s, 1.5 times as slow as one worker" in sentences(ALONE, [slow], 0.8)[0]


def test_sentences_say_what_the_kill_cost_and_whether_replicas_are_identical() -> None:
    sync = training("sync", [2.0], sent=100_000_000, pause_s=0.5)
    other = training("async", [2.0], sent=1_000_000, pause_s=0.03)
    second = sentences(ALONE, [sync, other], 0.8)[1]
    assert "no other paused for more than 0.50 s (sync) and 0.03 s (async)" in second
    assert "100.0 MB (sync) against 1.0 MB (async)" in second
    assert "were identical" in second
    assert "not all identical" in sentences(ALONE, [sync, training("async", [2.0], identical=False)], 0.8)[1]


def test_a_pause_is_between_two_steps_of_one_that_was_left() -> None:
    steps = {
        0: [(10.0, 32), (10.1, 32), (14.0, 32), (14.1, 32), (14.6, 32)],  # the longest is before the kill
        1: [(10.0, 32), (14.05, 32)],
        2: [(10.0, 32), (14.0, 32), (14.2, 32)],
    }
    notes = Notes(steps, [(10.0, 2.0, 0.1), (11.0, 1.0, 0.5), (13.0, 0.5, 0.9)])
    assert notes.killed_s(1) == pytest.approx(4.05)
    assert notes.longest_pause_s(1) == pytest.approx(0.5)
    assert notes.samples_per_s == pytest.approx(10 * 32 / 4.6)
    assert [(point.seconds, point.loss) for point in notes.curve()] == [(0.0, 2.0), (1.0, 1.5), (3.0, 0.5)]


def test_the_last_line_of_a_killed_worker_may_be_cut(tmp_path: Path) -> None:
    (tmp_path / "steps-0.jsonl").write_text("[1.0, 32]\n[2.0, 32]\n")
    (tmp_path / "steps-1.jsonl").write_text("[1.5, 32]\n[2.")
    (tmp_path / "steps-2.jsonl").write_text("[1.")
    (tmp_path / "losses.json").write_text(json.dumps([[1.0, 2.0, 0.1]]))
    assert read_notes(tmp_path).steps == {0: [(1.0, 32), (2.0, 32)], 1: [(1.5, 32)]}


def test_table_record_and_picture_hold_the_three_trainings(tmp_path: Path) -> None:
    runs = (ALONE, training("sync", [2.0, 1.9], pause_s=0.5), training("async", [2.0, 0.7], pause_s=0.03))
    settings = resolve({"workers": 4, "link": "100mbit"}, environ={}, cwd=tmp_path)
    made = ThreeRuns(settings, DemoFaults(4.0, 3, 1, 2.0), runs)
    assert made.rows()["seconds to a loss of 0.80"] == ["4.0", "-", "1.0"]
    assert {len(cells) for cells in made.rows().values()} == {3}
    record = made.record()
    assert record["trainings"]["async"]["time_to_target_s"] == 1.0
    assert record["words"] == made.words()
    assert made.draw(tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
