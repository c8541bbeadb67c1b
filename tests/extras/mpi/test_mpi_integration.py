"""``mpirun`` of Open MPI starts a script with a plain ``taut.join``: ``make test-mpi``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

JOB = Path(__file__).parents[2] / "engines" / "launched_job.py"
PAGE = Path(__file__).parents[3] / "docs" / "launchers.md"
PATIENCE_S = 300

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which mpirun runs as root and on more processes than cores, as containers need it."""
    allowed = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    path = f"{Path(sys.executable).parent}:{kept['PATH']}"
    return kept | allowed | {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PATH": path, **more}


def mpirun(folder: Path, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = ["mpirun", *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def ends(told: str, workers: int) -> list[tuple[str, ...]]:
    return sorted(re.findall(rf"rank (\d) worker (\d) of {workers} steps (\d+) (\d+) model (\S+)", told))


def test_the_processes_are_one_run(tmp_path: Path) -> None:
    done = mpirun(tmp_path, "-np", 3, sys.executable, JOB, 4)
    assert done.returncode == 0, done.stderr
    found = ends(done.stdout, 3)
    assert found[0][:2] == ("0", "0") and [end[0] for end in found] == ["0", "1", "2"], "rank 0 is worker 0"
    assert sum(int(end[3]) for end in found) == 4 * 256 // 8 and len({end[4] for end in found}) == 1
    assert "workers=3 (mpirun)" in done.stderr and done.stderr.count("training starts with 3 of 3 workers") == 1
    (run,) = (tmp_path / "taut-runs").iterdir()
    assert (run / "model.safetensors").exists()


def test_separate_runs_are_to_be_asked_for(tmp_path: Path) -> None:
    done = mpirun(tmp_path, "-np", 2, sys.executable, JOB, 1, TAUT_LAUNCHER="none")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("worker 0 of 1") == 2


def test_a_process_that_does_not_join_is_missed(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import sys; sys.stdin.read(); import time; time.sleep(60)\n")
    words = ("-np", 1, sys.executable, JOB, 1, ":", "-np", 1, sys.executable, tmp_path / "sleeps.py")
    done = mpirun(tmp_path, *words, TAUT_PATIENCE_S="2")
    assert done.returncode == 1
    assert "error: " in done.stderr and "mpirun started 2 processes, and only 1 of them joined the run" in done.stderr


def test_a_broadcast_of_mpi4py_tells_hosts_that_share_no_folder(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "several.py"
    script.write_text(
        "import os, sys, runpy\n"
        "os.environ['OMPI_COMM_WORLD_LOCAL_SIZE'] = '1'\n"
        "os.environ['OMPI_COMM_WORLD_LOCAL_RANK'] = '0'\n"
        "if os.environ['OMPI_COMM_WORLD_RANK'] == '1':\n"
        "    os.environ['TAUT_RUNS_DIR'] = 'elsewhere'\n"
        f"sys.argv = ['job', '2']; runpy.run_path({str(JOB)!r}, run_name='__main__')\n"
    )
    done = mpirun(tmp_path, "-np", 2, sys.executable, script)
    assert done.returncode == 0, done.stderr
    assert len({end[4] for end in ends(done.stdout, 2)}) == 1 and len(ends(done.stdout, 2)) == 2


def test_sigterm_saves_the_model(tmp_path: Path) -> None:
    words = ["mpirun", "--mca", "odls_base_sigkill_timeout", "60", "-np", "2", sys.executable, str(JOB), str(10**6)]
    with subprocess.Popen(
        words, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        family = psutil.Process(process.pid)
        try:
            assert process.stdout is not None
            told = ""
            while not (tmp_path / "at-60-0").exists() or not (tmp_path / "at-60-1").exists():
                told += process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            told += process.communicate(timeout=PATIENCE_S)[0]
        finally:
            for each in [*family.children(recursive=True), family] if process.poll() is None else []:
                each.kill()
    assert "mpirun was told to end" in told, told
    (run,) = (tmp_path / "taut-runs").iterdir()
    assert (run / "model.safetensors").exists()


def commands() -> list[str]:
    """Return the lines with ``mpirun`` in the shell blocks of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line.partition("  #")[0] for block in blocks for line in block.splitlines() if "mpirun" in line]


@pytest.mark.parametrize("line", commands())
def test_commands_of_the_page_run(tmp_path: Path, line: str) -> None:
    (tmp_path / "train.py").write_text(JOB.read_text().replace("int(sys.argv[1])", "1"))
    (tmp_path / "hosts").write_text("localhost slots=8\n")
    words = ["bash", "-c", line]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "model: " in done.stdout or "worker 0 of 1" in done.stdout
