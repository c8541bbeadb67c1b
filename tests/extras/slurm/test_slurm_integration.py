"""``srun`` and ``sbatch`` of a real Slurm start a script with a plain ``taut.join``: ``make test-slurm``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

JOB = Path(__file__).parents[2] / "engines" / "launched_job.py"
PAGE = Path(__file__).parents[3] / "docs" / "launchers.md"
PATIENCE_S = 300

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


def run(folder: Path, slurm: dict[str, str], *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in slurm.items() if not name.startswith("TAUT_")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return subprocess.run(
        list(map(str, words)),
        cwd=folder,
        env={**kept, "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def ends(told: str, workers: int) -> list[tuple[str, ...]]:
    return sorted(re.findall(rf"rank (\d) worker (\d) of {workers} steps (\d+) (\d+) model (\S+)", told))


def until(folder: Path, slurm: dict[str, str], job: str, done: Callable[[], bool]) -> None:
    """Wait until the job has done something."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline_s, run(folder, slurm, "scontrol", "show", "job", job).stdout
        time.sleep(0.1)


def until_over(folder: Path, slurm: dict[str, str], job: str) -> str:
    """Wait for the job's end, and return its state."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        told = run(folder, slurm, "scontrol", "show", "job", job).stdout
        state = re.search(r"JobState=(\w+)", told)
        if state and state[1] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            return state[1]
        assert time.monotonic() < deadline_s, told
        time.sleep(0.2)


@pytest.mark.parametrize("where", [("-N", 1, "-n", 2), ("-N", 2, "-n", 2)], ids=["one host", "two hosts"])
def test_the_tasks_of_a_step_are_one_run(tmp_path: Path, slurm: dict[str, str], where: tuple[object, ...]) -> None:
    done = run(tmp_path, slurm, "srun", *where, sys.executable, JOB, 4)
    assert done.returncode == 0, done.stderr
    found = ends(done.stdout, 2)
    assert [end[:2] for end in found] == [("0", "0"), ("1", "1")], "rank 0 is worker 0"
    assert sum(int(end[3]) for end in found) == 4 * 256 // 8 and len({end[4] for end in found}) == 1
    assert "workers=2 (srun)" in done.stderr and done.stderr.count("training starts with 2 of 2 workers") == 1
    (run_folder,) = (tmp_path / "taut-runs").iterdir()
    assert (run_folder / "model.safetensors").exists()


def test_hosts_that_share_no_folder_meet_in_a_store(tmp_path: Path, slurm: dict[str, str]) -> None:
    """The second host sees an empty folder in place of the runs: it asks for the token, and gets it."""
    script = tmp_path / "train.sh"
    lines = (
        "export SLURM_STEP_NODELIST=localhost,second",
        "if [ $SLURM_NODEID = 1 ]; then mount -t tmpfs none taut-runs; fi",
        f"exec {sys.executable} {JOB} 4",
    )
    script.write_text("\n".join(lines) + "\n")
    (tmp_path / "taut-runs").mkdir()
    done = run(tmp_path, slurm, "srun", "-N", 2, "-n", 2, "unshare", "-m", "--propagation", "private", "sh", script)
    assert done.returncode == 0, done.stderr
    assert len(ends(done.stdout, 2)) == 2 and len({end[4] for end in ends(done.stdout, 2)}) == 1


def test_a_batch_job_of_taut_slurm(tmp_path: Path, slurm: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(JOB.read_text())
    flags = ("--nodes", 2, "--workers-per-node", 1, "--time", "10:00", "--strategy", "sync", "--name", "batch")
    done = run(tmp_path, slurm, "taut", "slurm", *flags, "train.py", 4)
    assert done.returncode == 0, done.stderr
    assert "to submit it: sbatch train.sbatch" in done.stderr
    said = run(tmp_path, slurm, "sbatch", "--parsable", "train.sbatch")
    assert said.returncode == 0, said.stderr
    assert until_over(tmp_path, slurm, said.stdout.strip()) == "COMPLETED"
    (told,) = (path.read_text() for path in tmp_path.glob("train-*.out"))
    assert len(ends(told, 2)) == 2 and len({end[4] for end in ends(told, 2)}) == 1, told
    assert "strategy=sync (TAUT_STRATEGY)" in told
    assert (tmp_path / "taut-runs" / "batch" / "model.safetensors").exists()


def test_scancel_saves_the_model(tmp_path: Path, slurm: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(JOB.read_text())
    assert run(tmp_path, slurm, "taut", "slurm", "--workers-per-node", 2, "train.py", 10**6).returncode == 0
    job = run(tmp_path, slurm, "sbatch", "--parsable", "train.sbatch").stdout.strip()
    for rank in (0, 1):
        until(tmp_path, slurm, job, (tmp_path / f"at-60-{rank}").exists)
    run(tmp_path, slurm, "scancel", "--signal=TERM", job)
    assert until_over(tmp_path, slurm, job) == "COMPLETED"
    (told,) = (path.read_text() for path in tmp_path.glob("train-*.out"))
    assert "srun was told to end" in told, told
    (run_folder,) = (tmp_path / "taut-runs").glob("[!.]*")
    assert (run_folder / "model.safetensors").exists()


def test_a_requeued_job_continues_its_run(tmp_path: Path, slurm: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(JOB.read_text())
    flags = ("--workers-per-node", 2, "--checkpoint-every", "20steps", "--strategy", "sync", "--name", "again")
    assert run(tmp_path, slurm, "taut", "slurm", *flags, "train.py", 10**6).returncode == 0
    job = run(tmp_path, slurm, "sbatch", "--parsable", "train.sbatch").stdout.strip()
    until(tmp_path, slurm, job, lambda: any(tmp_path.glob("taut-runs/again/checkpoints/*/manifest.json")))
    assert run(tmp_path, slurm, "scontrol", "requeue", job).returncode == 0
    out = tmp_path / f"train-{job}.out"

    def continues() -> bool:
        run(tmp_path, slurm, "scontrol", "update", f"JobId={job}", "StartTime=now")  # else, Slurm waits for two minutes
        return "attempt 1: continuing again from checkpoint" in out.read_text()

    until(tmp_path, slurm, job, continues)
    before = {path.name for path in tmp_path.glob("taut-runs/again/checkpoints/*")}
    until(
        tmp_path,
        slurm,
        job,
        lambda: bool({path.name for path in tmp_path.glob("taut-runs/again/checkpoints/*")} - before),
    )
    run(tmp_path, slurm, "scancel", "--signal=TERM", job)
    assert until_over(tmp_path, slurm, job) == "COMPLETED"
    assert (tmp_path / "taut-runs" / "again" / "model.safetensors").exists(), out.read_text()


def test_the_run_goes_on_without_a_task_that_died(tmp_path: Path, slurm: dict[str, str]) -> None:
    script = tmp_path / "train.py"
    kill = (
        "if worker.steps == 30 and rank == killed: os.kill(os.getpid(), signal.SIGKILL)\n        if worker.steps == 60:"
    )
    script.write_text(JOB.read_text().replace("if worker.steps == 60:", kill))
    for killed in (0, 1):
        words = ("srun", "--kill-on-bad-exit=0", "--wait=0", "-n", 2, sys.executable, script, 200, killed)
        done = run(tmp_path, slurm, *words, TAUT_NAME=f"killed-{killed}")
        assert len(ends(done.stdout, 1)) == 1 or f"rank {1 - killed} worker" in done.stdout, done.stdout + done.stderr
        deadline_s = time.monotonic() + 30
        model = tmp_path / "taut-runs" / f"killed-{killed}" / "model.safetensors"
        while not model.exists():
            assert time.monotonic() < deadline_s, done.stderr
            time.sleep(0.1)


def test_a_task_that_does_not_join_is_missed(tmp_path: Path, slurm: dict[str, str]) -> None:
    script = tmp_path / "one.sh"
    script.write_text(f"if [ $SLURM_PROCID = 0 ]; then exec {sys.executable} {JOB} 1; fi\nsleep 10\n")
    done = run(tmp_path, slurm, "srun", "-n", 2, "sh", script, TAUT_PATIENCE_S="2")
    assert done.returncode == 1
    assert "srun started 2 processes, and only 1 of them joined the run" in done.stderr


def commands() -> list[str]:
    """Return the lines for Slurm in the shell blocks of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.search(r"\b(srun|sbatch|taut slurm)\b", line) and "torchrun" not in line]


def test_commands_of_the_page_run(tmp_path: Path, slurm: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(JOB.read_text().replace("int(sys.argv[1])", "1"))
    assert commands()
    for line in commands():
        done = run(tmp_path, slurm, "bash", "-c", line.replace("sbatch train", "sbatch --wait train"))
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
    assert os.listdir(tmp_path / "taut-runs")
