"""A real run whose script logs: what comes out of its store by every way is the same, and is what was put in."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from forked_zygotes import taut_command

import taut
from taut.analysis.tables import STORED, read_table
from taut.errors import Misuse
from taut.supervisor.storage import schema
from taut.testing.terminal import CTRL_C, Terminal

DOCS = Path(__file__).parents[2] / "docs"
JOB = Path(__file__).parents[1] / "integration" / "job.py"
LOGGING = """
import torch, taut
from torch.nn import functional as F
x = torch.randn(400, 8)
y = x[:, :3].argmax(dim=1)
model = torch.nn.Linear(8, 3)
with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
    for a, b in worker.batches((x, y), batch_size=10, epochs=2):
        worker.step(F.cross_entropy(model(a), b))
        worker.log({"square": worker.steps ** 2}, rank=worker.rank)
    worker.log(weights=torch.full((2, 3), 0.5))
"""


def run(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*taut_command(), *map(str, words)], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a run with the name ``logged`` was made."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "train.py").write_text(LOGGING)
    done = run(folder, "run", "-n", 2, "--name", "logged", "train.py")
    assert done.returncode == 0, done.stderr
    return folder


def rows(folder: Path, name: str) -> list[dict[str, object]]:
    return read_table(folder / "taut-runs" / "logged", name).rows()


def test_every_value_that_was_logged_is_there_once_under_its_worker_and_step(trained: Path) -> None:
    steps = {row["rank"]: row["steps"] for row in rows(trained, "statistics")}  # the last of each
    logged = {(row["rank"], row["step"]): row["value"] for row in rows(trained, "metrics") if row["name"] == "square"}
    assert logged == {(rank, step): step**2 for rank, last in steps.items() for step in range(1, int(str(last)) + 1)}
    assert all(row["rank"] == row["value"] for row in rows(trained, "metrics") if row["name"] == "rank")
    with closing(sqlite3.connect(trained / "taut-runs" / "logged" / "run.sqlite")) as database:
        images = database.execute("select rank, name, png from image").fetchall()
    assert {(rank, name) for rank, name, _ in images} == {(0, "weights"), (1, "weights")}
    assert all(png.startswith(b"\x89PNG") for _, _, png in images)


def test_progress_reaches_the_end(trained: Path) -> None:
    progress = rows(trained, "progress")
    assert progress[-1]["samples_trained"] == 800 and progress[-1]["samples_left"] == 0
    assert progress[-1]["state"] == "finished" and progress[0]["state"] == "waiting"
    trained_samples = [int(str(row["samples_trained"])) for row in progress]
    assert trained_samples == sorted(trained_samples)


def test_csv_and_json_lines_have_what_the_store_has(trained: Path) -> None:
    assert run(trained, "export", "logged", "-o", "csv").returncode == 0
    assert run(trained, "export", "logged", "-f", "jsonl", "-o", "jsonl").returncode == 0
    for name in STORED:
        table = rows(trained, name)
        assert [json.loads(line) for line in (trained / "jsonl" / f"{name}.jsonl").read_text().splitlines()] == table
        written = list(csv.DictReader(io.StringIO((trained / "csv" / f"{name}.csv").read_text())))
        assert written == [{key: "" if value is None else str(value) for key, value in row.items()} for row in table]
    here = run(trained, "export", "logged", "--table", "events", "-o", "-")
    assert here.stdout.replace("\r\n", "\n") == (trained / "csv" / "events.csv").read_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["export", "logged", "-f", "xls"], "one of csv, jsonl, parquet"),
        (["export", "logged", "--table", "metric"], "did you mean 'metrics'?"),
        (["export", "logged", "-o", "-"], "--table workers --output -"),
        (["export", "nothing"], "run 'nothing'"),
        (["plot", "logged", "-o", "a.bmp"], "ends in .png"),
        (["top", "logged"], "which is finished"),
        (["runs", "--state", "finnished"], "did you mean 'finished'?"),
        (["runs", "--since", "2"], "--since 2 has no unit"),
    ],
)
def test_misuse_is_told_and_nothing_is_written(trained: Path, words: Sequence[str], told: str) -> None:
    before = sorted(path.name for path in trained.iterdir())
    done = run(trained, *words)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert sorted(path.name for path in trained.iterdir()) == before


def test_figures_are_written_in_each_kind(trained: Path) -> None:
    for kind, begins in {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}.items():
        assert run(trained, "plot", "logged", "-o", f"figure.{kind}").returncode == 0
        assert (trained / f"figure.{kind}").read_bytes().startswith(begins)
    svg = (trained / "figure.svg").read_text()
    assert all(f">{word}<" in svg for word in ("loss", "square", "compute", "worker 0", "worker 1"))
    shown = run(trained, "show", "logged", "--plot")
    assert shown.returncode == 0 and (trained / "logged.png").exists() and "logged.png" in shown.stdout


def test_runs_are_filtered(trained: Path) -> None:
    def names(*words: str) -> list[str]:
        return [row["name"] for row in json.loads(run(trained, "runs", "--json", *words).stdout)["runs"]]

    assert names("--state", "finished", "--since", "1h", "--strategy", "async", "--last", "1") == ["logged"]
    assert names("--state", "failed,running") == names("--strategy", "sync") == names("--since", "0s") == []


def test_the_run_of_python_is_the_run_of_the_store(trained: Path) -> None:
    for found in (taut.Run("logged", trained / "taut-runs"), taut.Run(trained / "taut-runs" / "logged")):
        assert (found.name, found.state, found.settings["strategy"]) == ("logged", "finished", "async")
        assert found.outcome is not None and found.outcome["identical"] is True
        assert set(found.model()) == {"weight", "bias"}
        assert len(found.figure().axes) == 5
    with pytest.raises(AttributeError, match="metric"):
        _ = found.metric
    with pytest.raises(Misuse, match="did you mean 'logged'"):
        taut.Run("loged", trained / "taut-runs")


def test_top_shows_a_run_that_goes_until_its_end_and_ctrl_c_leaves_it_alone(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with Terminal(
        [*taut_command(), "run", "-n", "2", "--name", "watched", str(JOB), "--gate", str(gate)], cwd=tmp_path
    ) as one:
        one.wait_for("epoch")
        for end in ("Ctrl-C", "the run's"):
            with Terminal([*taut_command(), "top", "watched"], columns=80, cwd=tmp_path) as two:
                two.wait_for("training")
                two.wait_for("2 of 2 here")
                if end == "Ctrl-C":
                    two.press(CTRL_C)
                else:
                    gate.touch()
                assert two.exit_code() == 0, two.text
                assert ("watched has finished" in two.text) == (end != "Ctrl-C")
        assert one.exit_code() == 0, one.text


def test_the_page_of_the_store_has_every_table_and_column() -> None:
    page = (DOCS / "store.md").read_text()
    for table, columns in schema.TABLES.items():
        rows_of = [line for line in page.splitlines() if line.startswith("|") and f"`{table}`" in line.split("|")[1]]
        assert len(rows_of) == 1, table
        assert not [name for name in columns if f"`{name}`" not in rows_of[0]], table
    assert f"now {schema.VERSION}." in page
