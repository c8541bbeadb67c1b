"""Real runs through the command line: what is said, exit codes, Ctrl-C, joining from elsewhere, the demo."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from forked_zygotes import taut_command

from taut.transport.keys import RunKeys

PATIENCE_S = 90

TRAIN = """
    import sys
    import torch
    import taut

    epochs = int(sys.argv[1])
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(256, 8)
    y = (x.sum(dim=1) > 0).long()
    with taut.join(model, optimizer) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=8, epochs=epochs):
            worker.step(torch.nn.functional.cross_entropy(model(inputs), targets))
            if "raise" in sys.argv: raise ValueError("boom at a step")
    print("rank", worker.rank, "trained", worker.samples)
"""
FOR_EVER = str(10**6)


@pytest.fixture
def train(tmp_path: Path) -> Path:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    return script


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | more


def command(*arguments: object) -> list[str]:
    return [*taut_command(), *map(str, arguments)]


def taut(folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@contextmanager
def started(folder: Path, *arguments: object, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on in the background; it and all its children are gone afterwards."""
    with subprocess.Popen(
        command(*arguments),
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def until(process: subprocess.Popen[str], word: str) -> str:
    """Read its standard error up to a line with ``word``; that line."""
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if word in line:
            return line
    raise AssertionError(f"{word!r} was never said, but: {''.join(seen)}")


def the_run(folder: Path) -> Path:
    (run,) = (folder / "taut-runs").iterdir()
    return run


def test_a_run_its_json_and_its_memory(tmp_path: Path, train: Path) -> None:
    done = taut(tmp_path, "run", "-n", 2, "--json", "--name", "first", train, 3, TAUT_SEED="5")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    record = json.loads(done.stdout)
    assert record["replicas_identical"] is True
    assert record["samples"] == 3 * 256
    assert record["settings"]["seed"] == 5
    assert (tmp_path / record["model"]).exists()
    assert len(record["workers"]) == 2
    logs = [(tmp_path / "taut-runs/first" / f"worker-{index}.log").read_text() for index in range(2)]
    assert sum(int(log.split()[-1]) for log in logs) == 3 * 256
    assert oct((tmp_path / "taut-runs/first/token").stat().st_mode & 0o777) == "0o600"

    listed: dict[str, Any] = json.loads(taut(tmp_path, "runs", "--json").stdout)
    assert [run["name"] for run in listed["runs"]] == ["first"]
    assert "first" in taut(tmp_path, "runs").stdout
    shown = json.loads(taut(tmp_path, "show", "latest", "--json").stdout)
    assert shown["run"] == "first"
    assert shown["samples"] == 3 * 256
    assert "identical" in taut(tmp_path, "show", "first").stdout
    missed = taut(tmp_path, "show", "frist")
    assert missed.returncode == 2
    assert "did you mean 'first'?" in missed.stderr


def test_a_summary_for_people_and_the_workers_output(tmp_path: Path, train: Path) -> None:
    done = taut(tmp_path, "run", "--workers", 1, "--verbose", train, 1)
    assert done.returncode == 0, done.stderr
    for word in ("samples/s", "compute talk wait data", "replicas: identical", "model.safetensors"):
        assert word in done.stdout
    assert "workers=1 (flag)" in done.stderr
    assert "[0] rank 0 trained 256" in done.stderr


def test_a_script_that_raises_is_told_once(tmp_path: Path, train: Path) -> None:
    done = taut(tmp_path, "run", "-n", 2, train, 1, "raise")
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert "    worker.step" not in done.stderr.splitlines()[-1]
    assert "ValueError: boom at a step" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")


def test_a_script_that_never_joins_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "idle.py").write_text("print('nothing to do')\n")
    done = taut(tmp_path, "run", "-n", 2, "--start", "spawn", "idle.py")
    assert done.returncode == 1
    assert "ended without joining the run" in done.stderr


def test_ctrl_c_drains_and_saves(tmp_path: Path, train: Path) -> None:
    with started(tmp_path, "run", "-n", 2, train, FOR_EVER) as process:
        until(process, "training starts")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "stopping: draining, Ctrl-C again to stop now" in err
    assert "replicas: identical" in out
    assert (the_run(tmp_path) / "model.safetensors").exists()


STUCK = """
    import os, signal
    import torch
    import taut

    model = torch.nn.Linear(2, 2)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        print("here", os.getppid(), os.getpid(), flush=True)
        while True: signal.pause()
"""


def test_a_second_ctrl_c_stops_at_once(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text(textwrap.dedent(STUCK))
    with started(tmp_path, "run", "-n", 1, "--verbose", "stuck.py") as process:
        zygote_and_worker = until(process, "[0] here").split()[2:]
        workers = [psutil.Process(int(pid)) for pid in zygote_and_worker]
        process.send_signal(signal.SIGINT)
        until(process, "stopping: draining")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert not psutil.wait_procs(workers, timeout=PATIENCE_S)[1]


def test_workers_join_a_supervisor_and_a_wrong_token_does_not(tmp_path: Path, train: Path) -> None:
    with started(tmp_path, "supervisor", "--bind", "127.0.0.1", "--json") as supervisor:
        address = until(supervisor, "supervisor: ").split()[-1]
        join = until(supervisor, "on every machine: ").split(": ", 1)[1].split()
        assert join[:4] == ["taut", "worker", "--join", address]
        stranger = taut(tmp_path, "worker", "--join", address, train, 1, TAUT_TOKEN=RunKeys.generate().token)
        assert stranger.returncode != 0
        assert "token" in stranger.stderr
        worker = taut(tmp_path, *join[1:-1], train, 2)
        assert worker.returncode == 0, worker.stderr
        assert "rank 0 trained 512" in worker.stdout
        out, err = supervisor.communicate(timeout=PATIENCE_S)
    assert supervisor.returncode == 0, err
    assert json.loads(out)["samples"] == 512


def test_the_demo_proves_its_model_file(tmp_path: Path) -> None:
    done = taut(tmp_path, "demo", "--epochs", 5, "--workers", 2, "--seed", 3, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    for figures in (record["accuracy"], record["samples_per_s"]):
        assert set(figures) == {"cluster", "single"}
    assert min(record["accuracy"].values()) > 0.7
    assert record["samples"]["cluster"] == record["samples"]["single"] == 5 * 1438
    assert record["replicas_identical"] is True
    assert record["compression"] == pytest.approx(record["bytes_dense"] / record["bytes_sent"])
    assert sum(record["time_split"].values()) == pytest.approx(1.0, abs=0.02)
    assert record["seed"] == 3
    assert (tmp_path / record["model"]).exists()
    assert (tmp_path / record["plot"]).read_bytes().startswith(b"\x89PNG")


def test_the_demo_compares_one_worker_sync_and_async(tmp_path: Path) -> None:
    done = taut(tmp_path, "demo", "--seconds", 2, "--workers", 2, "--json", "--no-plot")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    alone, sync, other = record["trainings"].values()
    assert [each["name"] for each in (alone, sync, other)] == ["one worker", "sync", "async"]
    assert alone["killed_s"] is None
    assert all(each["killed_s"] > 0.5 and each["pause_s"] > 0.0 for each in (sync, other))
    assert [each["identical"] for each in (sync, other)] == [True, True]
    assert sync["bytes_sent"] > 4 * other["bytes_sent"]
    assert len(record["words"]) == 2


LINKED = """
import json, sys, time, torch, taut
model = torch.nn.Linear(500, 500, bias=False)  # a megabyte
x, times = torch.ones(64, 500), []
with taut.join(model, torch.optim.SGD(model.parameters(), lr=1e-6)) as worker:
    for (batch,) in worker.batches((x,), batch_size=4):
        worker.step(model(batch).square().mean())
        times.append(time.time())
open(f"times-{worker.rank}.json", "w").write(json.dumps(times))
"""


def test_sync_is_as_fast_as_its_links_allow(tmp_path: Path) -> None:
    """Two workers send each other a megabyte a step, over links of 5 MB/s each way."""
    (tmp_path / "linked.py").write_text(LINKED)
    done = taut(tmp_path, "run", "-n", 2, "--strategy", "sync", "--link", "40mbit", "--json", "linked.py")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["settings"]["link"] == "40mbit"
    times = json.loads((tmp_path / "times-0.json").read_text())
    least_s = (len(times) - 1) * 1e6 / 5e6
    assert len(times) >= 6
    assert least_s <= times[-1] - times[0] + 0.05 < 3 * least_s + 1.0
