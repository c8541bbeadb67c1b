"""Scripts with a plain ``taut.join`` that other launchers start: one run, rank 0 is worker 0, and nobody trains alone."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from forked_zygotes import ForkedEngine

JOB = Path(__file__).with_name("launched_job.py")
PAGE = Path(__file__).parents[2] / "docs" / "launchers.md"
PATIENCE_S = 300


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(size: int, **more: str) -> list[dict[str, str]]:
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)} for rank in range(size)]
    return [common | rank for rank in ranks]


def mpirun(size: int) -> list[dict[str, str]]:
    common = {"OMPI_COMM_WORLD_SIZE": str(size), "OMPI_COMM_WORLD_LOCAL_SIZE": str(size), "PMIX_NAMESPACE": "77"}
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return [common | dict.fromkeys(names, str(rank)) for rank in range(size)]


def srun(nodes: str, size: int, **more: str) -> list[dict[str, str]]:
    """One task on each host of ``nodes``; a job's number that no other test has at this time."""
    common = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": str(size)}
    common |= {"SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": f"1(x{size})", **more}
    return [common | {"SLURM_PROCID": str(rank), "SLURM_NODEID": str(rank)} for rank in range(size)]


@contextmanager
def engines_of(folder: Path, processes: list[dict[str, str]], *args: object, **more: str) -> Iterator[list[ForkedEngine]]:
    """Start the job in these environments at the same time."""
    runs = {"TAUT_RUNS_DIR": str(folder / "runs"), **more}
    engines = []
    try:
        for number, environment in enumerate(processes):
            (log := folder / str(number)).mkdir(exist_ok=True)
            engine = ForkedEngine(JOB, list(map(str, args)), 1, {**runs, **environment}, log_dir=log)
            engines.append(engine)
            engine.start()
        yield engines
    finally:
        for engine in engines:
            engine.close()


def ended(engines: list[ForkedEngine]) -> list[int]:
    """Wait for the end of all, and return their exit codes."""
    codes = []
    for engine in engines:
        while engine.running:
            codes += [each.code for each in engine.poll(PATIENCE_S)]
    return codes


def launched(folder: Path, processes: list[dict[str, str]], *args: object, **more: str) -> list[tuple[int, str]]:
    """Run the job in these environments at the same time; return each one's exit code and output."""
    with engines_of(folder, processes, *args, **more) as engines:
        codes = ended(engines)
    return [(code, engine.logs[0].read_text()) for code, engine in zip(codes, engines, strict=True)]


@pytest.mark.parametrize(
    "processes",
    [torchrun(2), srun("localhost,other", 2), pytest.param(mpirun(2), marks=pytest.mark.long)],
    ids=["torchrun", "srun on two hosts", "mpirun"],
)
def test_the_processes_of_a_launch_are_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: list[dict[str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = launched(tmp_path, processes, 2)
    assert [code for code, _ in done] == [0, 0], done
    ends = [re.search(r"rank (\d) worker (\d) of 2 steps 0 (\d+) model (\S+)", told) for _, told in done]
    assert all(ends), done
    assert [(end[1], end[2]) for end in ends if end] == [("0", "0"), ("1", "1")], "rank 0 is worker 0"
    assert sum(int(end[3]) for end in ends if end) == 2 * 256 // 8, "they share the data"
    assert len({end[4] for end in ends if end}) == 1, "they have one model"
    (run,) = [path for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")]
    assert (run / "model.safetensors").exists()
    told = done[0][1]
    assert "start: training starts with 2 of 2 workers" in told and f"model: {run / 'model.safetensors'}" in told
    assert len(done[1][1].splitlines()) == 1, "the others are quiet"
    assert not list((tmp_path / "runs").glob(".launch*")), "nothing is left behind"


def test_who_is_alone_although_there_are_others_fails(tmp_path: Path) -> None:
    first, second = torchrun(2)
    ((code, told),) = launched(tmp_path, [first], 2, TAUT_PATIENCE_S="1")
    assert code == 1 and "torchrun started 2 processes, and only 1 of them joined the run at tcp://127.0.0.1" in told
    assert "Traceback" not in told
    (tmp_path / "second").mkdir()
    ((code, told),) = launched(tmp_path / "second", [second], 2, TAUT_PATIENCE_S="1")
    assert code == 1 and re.search(r"error: torchrun started 2 processes, and this one \(rank 1\) has not found", told)
    assert f"tried: the store at 127.0.0.1:{second['MASTER_PORT']}" in told and "Traceback" not in told
    assert not (tmp_path / "second" / "runs").exists()


def test_the_launcher_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = launched(tmp_path, torchrun(2), 1, TAUT_LAUNCHER="none")
    assert [code for code, _ in done] == [0, 0]
    assert all("worker 0 of 1 steps 0 32" in told for _, told in done), done


def test_a_mistake_is_told_by_all_at_once(tmp_path: Path) -> None:
    done = launched(tmp_path, srun("localhost,other", 2), 1, TAUT_STRATEGY="snyc")
    for code, told in done:
        assert code == 2 and told.startswith("error: TAUT_STRATEGY = 'snyc'") and "did you mean" in told


def test_a_mistake_that_rank_0_finds_is_told_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "runs" / "taken").mkdir(parents=True)
    (zero, zero_told), (one, one_told) = launched(tmp_path, srun("localhost,other", 2), 1, TAUT_NAME="taken")
    assert zero == 2 and zero_told.startswith("error: --name taken: expected a name that no run in")
    assert one == 1 and one_told.startswith("error: rank 0 of srun could not start the run: --name taken")


def until(condition: Callable[[], bool], engines: list[ForkedEngine]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s and not any(engine.poll(0.02) for engine in engines), [
            engine.logs[0].read_text() for engine in engines
        ]


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
def test_a_requeued_slurm_job_continues_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"TAUT_CHECKPOINT_EVERY": "20steps", "TAUT_NAME": "job", "TAUT_STRATEGY": "sync"}

    def checkpoints() -> set[str]:
        return {path.parent.name for path in (tmp_path / "runs" / "job" / "checkpoints").glob("*/manifest.json")}

    with engines_of(tmp_path, srun("localhost", 2), 10**6, **settings) as engines:
        until(lambda: bool(checkpoints()), engines)
        for engine in engines:  # as when Slurm takes the hosts away: nobody is left, nor the supervisor
            for each in psutil.Process(next(iter(engine.pids))).children(recursive=True):
                each.kill()
            engine.kill()
        assert ended(engines) == [-9, -9]
    again = srun("localhost", 2, SLURM_RESTART_COUNT="1")
    with engines_of(tmp_path, again, 10**6, **settings) as engines:
        log, before = engines[0].logs[0], checkpoints()
        until(lambda: bool(checkpoints() - before), engines)  # so that all train
        for engine in engines:
            engine.terminate()  # as scancel does
        assert ended(engines) == [0, 0], log.read_text()
    told = log.read_text()
    assert re.search(r"attempt 1: continuing job from checkpoint \d+, step \d+", told), told
    assert min(int(end[2]) for end in ends(told)) > 0, told
    assert [path.name for path in (tmp_path / "runs").iterdir() if not path.name.startswith(".")] == ["job"]
    assert list((tmp_path / "runs").glob(".srun-*")), "another attempt would go on from here"


# ------------------------------------------------------------------------------------------------ torchrun itself


def torchrun_command(*words: object) -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *map(str, words)]


@contextmanager
def started(folder: Path, *words: object, **more: str) -> Iterator[subprocess.Popen[str]]:
    """torchrun in a session of its own; it and all its children are gone afterwards."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | more
    with subprocess.Popen(
        torchrun_command(*words),
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        family = psutil.Process(process.pid)
        try:
            yield process
        finally:
            for each in [*family.children(recursive=True), family] if process.poll() is None else []:
                each.kill()


def ends(told: str) -> list[tuple[str, ...]]:
    """Return rank, worker, steps before and after, and model, of each end that ``told`` has."""
    return sorted(re.findall(r"rank (\d) worker (\d) of 2 steps (\d+) (\d+) model (\S+)", told))


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
def test_torchrun(tmp_path: Path) -> None:
    with started(tmp_path, JOB, 2) as process:
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    assert [end[:2] for end in ends(told)] == [("0", "0"), ("1", "1")], told
    assert len({end[4] for end in ends(told)}) == 1
    assert "workers=2 (torchrun)" in told
    assert told.count("training starts with 2 of 2 workers") == 1


def documented() -> list[str]:
    """Return the commands of the page that start torchrun."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if "torchrun" in line]


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("line", documented())
def test_commands_of_the_page_run(tmp_path: Path, line: str) -> None:
    """A command for several machines is typed on each of them."""
    (tmp_path / "train.py").write_text(JOB.read_text().replace("int(sys.argv[1])", "1"))
    words = line.replace("torchrun", f"{sys.executable} -m torch.distributed.run").replace(
        "node1:29500", f"127.0.0.1:{free_port()}"
    )
    processes = []
    for _ in range(2 if "--nnodes 2" in line else 1):
        processes.append(
            subprocess.Popen(
                ["bash", "-c", words], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    told = "".join(process.communicate(timeout=PATIENCE_S)[0] for process in processes)
    assert [process.returncode for process in processes] == [0] * len(processes), told
    assert len(ends(told)) == 2 and len({end[4] for end in ends(told)}) == 1, told


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_torchrun_restarts_joins_the_run_that_goes_on(tmp_path: Path, killed: int) -> None:
    with started(tmp_path, "--max-restarts", 1, JOB, 60, killed) as process:
        told, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    assert "torchrun restarts the workers" in told and "continuing" in told, told
    (run,) = (tmp_path / "taut-runs").iterdir()
    assert (run / "model.safetensors").exists()
    assert max(int(end[2]) for end in ends(told)) > 0, "it goes on from a checkpoint"
    assert len({end[4] for end in ends(told)}) == 1
    assert "Traceback" not in told


@pytest.mark.long
@pytest.mark.timeout(2 * PATIENCE_S)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_the_model(tmp_path: Path, number: int) -> None:
    with started(tmp_path, JOB, 10**6) as process:
        assert process.stdout is not None
        told = ""
        while not (tmp_path / "at-60-0").exists() or not (tmp_path / "at-60-1").exists():
            told += process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.terminate()  # as a scheduler does
        rest, _ = process.communicate(timeout=PATIENCE_S)
    told += rest
    assert "torchrun was told to end" in told, told
    (run,) = (tmp_path / "taut-runs").iterdir()
    assert (run / "model.safetensors").exists()
    assert len({end[4] for end in ends(told)}) == 1 and len(ends(told)) == 2
    assert not [each for each in psutil.process_iter() if each.pid == process.pid]
