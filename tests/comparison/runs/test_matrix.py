"""Which runs there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.comparison.runs.job import Job
from taut.comparison.runs.matrix import expand
from taut.errors import Misuse


def test_every_combination_that_goes_together() -> None:
    made = expand(["sync", "async"], ["dense", "tether"], workers=[2, 4], seeds=[0, 1])
    found = {(cell.strategy, cell.codec, cell.workers, cell.seed) for cell in made.cells}
    assert len(found) == len(made.cells) == 12
    assert not any(strategy == "sync" and codec == "tether" for strategy, codec, _, _ in found)
    (skipped,) = made.skipped
    assert skipped.what == "sync, tether"
    assert "expected dense" in skipped.reason


def test_the_first_seed_of_everything_comes_first() -> None:
    made = expand(["sync", "async"], workers=[2, 4], seeds=[0, 1, 2])
    assert [cell.seed for cell in made.cells] == sorted(cell.seed for cell in made.cells)


def test_a_number_of_workers_that_a_shape_cannot_have() -> None:
    made = expand(["dpsgd"], topologies=["hypercube"], workers=[4, 6])
    assert [cell.workers for cell in made.cells] == [4]
    assert made.skipped[0].what == "dpsgd, hypercube with 6 workers"


def test_two_spellings_of_one_run_are_one() -> None:
    made = expand(["ssp:3", "ssp:slack=3", "ssp:4"])
    assert [cell.strategy for cell in made.cells] == ["ssp:3", "ssp:4"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"strategies": ["asinc"]}, "did you mean 'async'"),
        ({"strategies": ["async"], "codecs": ["dens"]}, "did you mean 'dense'"),
        ({"strategies": ["dpsgd"], "topologies": ["rign"]}, "did you mean 'ring'"),
        ({"strategies": []}, "at least one"),
    ],
)
def test_a_misspelt_word_is_told_not_left_out(given: dict[str, list[str]], said: str) -> None:
    with pytest.raises(Misuse, match=said):
        expand(**given)  # type: ignore[arg-type]


def test_keys_differ_where_results_may(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("1")
    cells = expand(["sync", "ssp:3", "ssp:4"], workers=[2, 4], seeds=[0, 1]).cells
    jobs = [Job(script), Job(script, ("--epochs", "2")), Job(script, flags=("--threads", "1"))]
    keys = [job.key(cell) for job in jobs for cell in cells]
    assert len(set(keys)) == len(keys)
    assert jobs[0].key(cells[0]) == Job(script).key(cells[0])
    script.write_text("2")
    assert Job(script).key(cells[0]) not in keys


def test_a_key_goes_by_the_meaning_not_the_spelling(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("1")
    (one,), (other,) = expand(["ssp:3"]).cells, expand(["ssp:slack=3"]).cells
    assert Job(script).key(one) == Job(script).key(other)
    named = expand(["async"], ["tether"]).cells[0]
    assert Job(script).key(named) != Job(script).key(expand(["async"]).cells[0])  # a script may have a wish of its own


def test_a_script_that_is_not_there() -> None:
    with pytest.raises(Misuse, match=r"nowhere\.py"):
        Job(Path("nowhere.py")).key(expand(["sync"]).cells[0])
