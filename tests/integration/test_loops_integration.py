"""Examples of docs/loops.md in two processes, with evaluations in the course of the run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from forked_zygotes import script_command, taut_command

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "word_lstm": ("--epochs", "1", "--words", "6000"),
    "gan": ("--epochs", "2", "--samples", "1024"),
}
QUICK = {("word_lstm", "sync"), ("gan", "averaging")}
CASES = [
    pytest.param(name, strategy, marks=[] if (name, strategy) in QUICK else [pytest.mark.long])
    for name in SMALL
    for strategy in ("sync", "async", "averaging")
]


@pytest.mark.parametrize(("name", "strategy"), CASES)
def test_an_example_trains_in_two_processes_and_is_scored_meanwhile(name: str, strategy: str, tmp_path: Path) -> None:
    example = [str(EXAMPLES / f"{name}.py"), *SMALL[name]]
    words = ["run", "-n", "2", "--strategy", strategy, "--name", "a", "--validate-every", "2steps", *example]
    done = subprocess.run(
        [*taut_command(), *words], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "replicas: identical" in told or strategy == "averaging"
    shown = subprocess.run(
        [*taut_command(), "show", "a"], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    ).stdout
    assert "of worker 0, the best so far" in shown, shown


@pytest.mark.parametrize("name", SMALL)
def test_an_example_trains_alone(name: str, tmp_path: Path) -> None:
    command = [*script_command(str(EXAMPLES / f"{name}.py")), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(" after ")[0][:1].isalnum()


STREAMS = """
import torch, taut
class Own(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.randn(40, 4))
def read(first):
    return (torch.full((4,), float(number)) for number in range(first, first + 15))
model = torch.nn.Linear(4, 1)
seen = []
with taut.join(model, torch.optim.SGD(model.parameters(), lr=1e-4)) as worker:
    for batch in worker.batches(taut.data.Shards(range(0, 60, 15), read), 4, num_workers=1):
        seen += batch[:, 0].int().tolist()
        worker.step(model(batch).square().mean())
    for batch in worker.batches(torch.utils.data.DataLoader(Own(), 4, num_workers=1), own=True):
        worker.step(model(batch).square().mean())
print("seen", *seen, "steps", worker.steps, "samples", worker.samples)
"""


def test_streams_are_read_by_processes_of_two_workers(tmp_path: Path) -> None:
    (tmp_path / "streams.py").write_text(STREAMS)
    words = ["run", "-n", "2", "--strategy", "sync", "--name", "a", "streams.py"]
    done = subprocess.run(
        [*taut_command(), *words], cwd=tmp_path, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    logs = [(tmp_path / "taut-runs" / "a" / f"worker-{rank}.log").read_text().split() for rank in range(2)]
    seen = [int(word) for log in logs for word in log[log.index("seen") + 1 : log.index("steps")]]
    assert sorted(seen) == list(range(60))
    assert sum(int(log[log.index("samples") + 1]) for log in logs) == 60 + 2 * 40
