"""Workers and channels in real processes: one for each worker, with the topology that the script wired."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command

JOB = str(Path(__file__).with_name("channels_job.py"))
EXAMPLES = Path(__file__).parents[3] / "examples"


def test_each_worker_has_a_process(tmp_path: Path) -> None:
    edges = ("--workers", "3", "--edges", "0-1,1-2", "--iterations", "50", "--told", str(tmp_path))
    with Command(tmp_path, "run", "--workers", "3", JOB, *edges, program="forked") as command:
        assert command.end() == 0, command.text
        assert "refused" not in command.text and "identical" in command.text
    ended = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert [worker["sums"] for worker in ended] == [[1275, 1275, 0], [1275, 1275, 1275], [0, 1275, 1275]]


@pytest.mark.long
def test_another_number_of_workers_is_one_line(tmp_path: Path) -> None:
    with Command(tmp_path, "run", "--workers", "2", str(EXAMPLES / "logistic_numpy.py"), program="forked") as command:
        assert command.end() == 2
        assert "--workers 2 for a script that wires 4 workers: expected as many" in command.text
        assert "Traceback" not in command.text


@pytest.mark.long
def test_checkpoints_are_refused(tmp_path: Path) -> None:
    words = ("run", "-n", "4", "--checkpoint-every", "9steps", str(EXAMPLES / "logistic_numpy.py"))
    with Command(tmp_path, *words, program="forked") as run:
        assert run.end() == 2
        assert "only the script knows what its workers hold" in run.text
