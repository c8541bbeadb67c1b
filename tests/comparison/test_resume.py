"""What was made is kept, whole, and not made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import Runner, compared, script

from taut.comparison.runs.comparison import Interrupted
from taut.comparison.runs.record import RunRecord


def test_nothing_is_made_twice(tmp_path: Path) -> None:
    first = compared(tmp_path)
    again = Runner()
    assert compared(tmp_path, again).records == first.records
    assert again.made == []
    files = sorted((tmp_path / "out" / "runs").iterdir())
    assert len(files) == len(first.records) == 8
    assert {RunRecord.from_json(file.read_text()).key for file in files} == {one.key for one in first.records}


def test_only_what_is_new_is_made(tmp_path: Path) -> None:
    compared(tmp_path)
    more = Runner()
    made = compared(tmp_path, more, strategies=["sync", "gossip"], seeds=[0, 1, 2])
    assert {(cell.strategy, cell.seed) for cell in more.made} == {
        ("gossip", 0),
        ("gossip", 1),
        ("gossip", 2),
        ("sync", 2),
    }
    assert len(made.records) == 12


def test_an_interrupted_comparison_goes_on(tmp_path: Path) -> None:
    with pytest.raises(Interrupted) as stopped:
        compared(tmp_path, Runner(stop_after=3))
    assert len(stopped.value.comparison.records) == 3
    assert stopped.value.comparison.missing == 5
    rest = Runner()
    assert compared(tmp_path, rest).missing == 0
    assert len(rest.made) == 5


def test_another_script_is_another_comparison(tmp_path: Path) -> None:
    compared(tmp_path)
    script(tmp_path, "print('train better')\n")
    again = Runner()
    compared(tmp_path, again)
    assert len(again.made) == 8


def test_a_failed_run_stops_nothing_and_is_tried_again(tmp_path: Path) -> None:
    made = compared(tmp_path, Runner(fails=("async",)))
    assert [one.state for one in made.records].count("failed") == 4
    assert {row["strategy"]: row["failed"] for row in made.summary} == {"sync": 0, "async": 2}
    again = Runner()
    assert all(one.finished for one in compared(tmp_path, again).records)
    assert {cell.strategy for cell in again.made} == {"async"}


@pytest.mark.parametrize("damage", ["", "{}", '{"key": 3}', "\xff\xfe"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    compared(tmp_path)
    file = min((tmp_path / "out" / "runs").iterdir())
    file.write_text(damage, encoding="latin-1")
    again = Runner()
    compared(tmp_path, again)
    assert len(again.made) == 1
    assert RunRecord.from_json(file.read_text()).finished


def test_all_again_if_asked(tmp_path: Path) -> None:
    compared(tmp_path)
    again = Runner()
    compared(tmp_path, again, resume=False)
    assert len(again.made) == 8


def test_a_target_that_is_none_is_told_before_anything_is_run(tmp_path: Path) -> None:
    runner = Runner()
    with pytest.raises(ValueError, match="as in --target"):
        compared(tmp_path, runner, target="fast")
    assert runner.made == []
