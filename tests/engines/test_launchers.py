"""What launchers leave in the environment, read without starting anything; and which of them is asked."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from taut.cli.main import app
from taut.engines.launchers.base import Launch
from taut.engines.launchers.mpi import Mpi
from taut.engines.launchers.sbatch import BatchJob
from taut.engines.launchers.slurm import FIRST_PORT, PORTS, TRIED, Slurm, first_host, tasks_on
from taut.engines.launchers.torchrun import Torchrun, elastic_key
from taut.errors import Misuse
from taut.plugins import LAUNCHERS
from taut.worker.joining.launched import found_launch

TORCHRUN = {  # torch 2.13: torchrun --nnodes 2 --nproc-per-node 2, the second process of the second host
    "RANK": "3",
    "LOCAL_RANK": "1",
    "GROUP_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node07",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "job-5",
    "TORCHELASTIC_RESTART_COUNT": "1",
    "TORCHELASTIC_MAX_RESTARTS": "3",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SRUN = {  # Slurm 22.05: srun -N 2 -n 4, three tasks on one host and one on the other
    "SLURM_JOB_ID": "4",
    "SLURM_JOBID": "4",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_NODEID": "1",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "3,1",
}
MPIRUN = {  # Open MPI 4.1: mpirun -np 3 on one host
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "2",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "3",
    "OMPI_MCA_orte_precondition_transports": "f9450256c5f0b777-6cb1d8306d9c5e71",
    "PMIX_NAMESPACE": "504692737",
    "PMIX_RANK": "2",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PMI_JOBID": "kvs_1"}


def detected(environ: Mapping[str, str]) -> tuple[str, Launch] | None:
    """Return the first launcher that knows ``environ``, as ``taut.join`` asks them."""
    for name in LAUNCHERS.own:
        launch = LAUNCHERS[name].detect(environ)
        if launch is not None:
            return name, launch
    return None


@pytest.mark.parametrize(
    ("environ", "name", "rank", "size", "local"),
    [
        (TORCHRUN, "torchrun", 3, 4, (1, 2)),
        ({"RANK": "0", "WORLD_SIZE": "4"}, "torchrun", 0, 4, (0, 1)),
        (SRUN, "slurm", 3, 4, (0, 1)),
        ({**SRUN, "SLURM_PROCID": "2", "SLURM_NODEID": "0", "SLURM_LOCALID": "2"}, "slurm", 2, 4, (2, 3)),
        ({"SLURM_NTASKS": "8", "SLURM_PROCID": "3"}, "slurm", 3, 8, (0, 8)),  # older than SLURM_STEP_ID
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "4"}, "slurm", 3, 4, (0, 1)),  # srun --mpi=pmi2
        (MPIRUN, "mpi", 2, 3, (2, 3)),
        ({**MPIRUN, "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "mpi", 2, 3, (0, 1)),
        (HYDRA, "mpi", 1, 2, (0, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, "mpi", 2, 3, (0, 1)),
        ({**SRUN, **MPIRUN}, "mpi", 2, 3, (2, 3)),  # mpirun in a Slurm job starts its own processes by srun
        ({**SRUN, **HYDRA}, "mpi", 1, 2, (0, 1)),
        ({**SRUN, **TORCHRUN}, "torchrun", 3, 4, (1, 2)),  # srun torchrun
    ],
)
def test_ranks_are_read(environ: dict[str, str], name: str, rank: int, size: int, local: tuple[int, int]) -> None:
    found = detected(environ)
    assert found is not None
    launch = found[1]
    assert (found[0], launch.rank, launch.size) == (name, rank, size)
    assert (launch.local_rank, launch.local_size) == local
    assert launch.one_host == (launch.local_size == size)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"WORLD_SIZE": "4"},
        {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"},  # the script of a batch job, which srun did not start
        {"SLURM_JOB_ID": "3", "SLURM_NTASKS": "8"},  # the shell of salloc
        {"PMIX_RANK": "0"},
        {"JOB_COMPLETION_INDEX": "0", "TAUT_WORKERS": "1"},  # a Job of one pod
    ],
)
def test_a_process_by_itself_is_known(environ: dict[str, str]) -> None:
    assert detected(environ) is None


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "-1", "WORLD_SIZE": "2"},
        {"PMIX_RANK": "1"},
        {"JOB_COMPLETION_INDEX": "0"},
        {"JOB_COMPLETION_INDEX": "0", "TAUT_WORKERS": "2"},
        {"JOB_COMPLETION_INDEX": "1", "TAUT_WORKERS": "1"},
    ],
)
def test_what_cannot_be_true_is_told(environ: dict[str, str]) -> None:
    with pytest.raises(Misuse, match="TAUT_LAUNCHER=none"):
        detected(environ)


def test_torchrun_says_where_its_store_is_and_whether_it_restarts() -> None:
    launch = Torchrun.detect(TORCHRUN)
    assert launch is not None
    assert (launch.host, launch.port, launch.agent_store, launch.restarts) == ("node07", 29500, True, True)
    last = Torchrun.detect({**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "3"})
    assert last is not None and not last.restarts
    assert elastic_key(launch) == elastic_key(last) == "job-5"


def test_a_pod_of_an_indexed_job_is_told_what_to_set() -> None:
    with pytest.raises(Misuse, match=r"pod 3 of an indexed Job.*start\.sh SCRIPT as its command, with TAUT_SUPERVISOR"):
        detected({"JOB_COMPLETION_INDEX": "3", "TAUT_WORKERS": "4"})
    found = detected({**TORCHRUN, "JOB_COMPLETION_INDEX": "3"})
    assert found is not None and found[0] == "torchrun", "PyTorch's variables say all"


def test_a_requeued_slurm_job_is_the_same_job() -> None:
    first, again = Slurm.detect(SRUN), Slurm.detect({**SRUN, "SLURM_RESTART_COUNT": "2"})
    assert first is not None and again is not None
    assert (first.attempt, again.attempt) == (0, 2) and not again.restarts
    assert elastic_key(first) == elastic_key(again) == "4-0" and first.key != again.key


def test_the_processes_of_a_launch_have_one_key_and_other_launches_others() -> None:
    def keys(launcher: Any, environ: dict[str, str], **other: str) -> tuple[str, str]:
        return launcher.detect(environ).key, launcher.detect({**environ, **other}).key

    for same in (
        keys(Slurm, SRUN, SLURM_PROCID="0", SLURM_NODEID="0"),
        keys(Mpi, MPIRUN, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_LOCAL_RANK="0"),
        keys(Mpi, HYDRA, PMI_RANK="0"),
    ):
        assert same[0] == same[1]
    for different in (
        keys(Slurm, SRUN, SLURM_JOB_ID="5"),
        keys(Slurm, SRUN, SLURM_STEP_ID="1"),
        keys(Slurm, SRUN, SLURM_RESTART_COUNT="1"),
        keys(Mpi, MPIRUN, PMIX_NAMESPACE="1"),
        keys(Mpi, MPIRUN, OMPI_MCA_orte_precondition_transports="other"),  # numbers of jobs come again
    ):
        assert different[0] != different[1]


def test_a_slurm_job_s_port_is_one_that_systems_do_not_give_out() -> None:
    ports = set()
    for job in range(0, 5000, 7):
        launch = Slurm.detect({**SRUN, "SLURM_JOB_ID": str(job)})
        assert launch is not None and FIRST_PORT <= launch.port < launch.port + TRIED <= FIRST_PORT + PORTS + TRIED
        ports.add(launch.port)
    assert len(ports) > 300, "jobs on one host rarely have the same"


def test_lists_of_hosts() -> None:
    assert first_host("n[1-2]") == "n1"
    assert first_host("n[001,003-004],m2") == "n001"
    assert first_host("login") == "login"
    assert tasks_on("2(x2),1", 2) == 1
    assert tasks_on("2", 5) == 1


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any launcher's variables."""
    for name in {*TORCHRUN, *SRUN, *MPIRUN, *HYDRA, "JOB_COMPLETION_INDEX", "TAUT_LAUNCHER", "TAUT_SUPERVISOR"}:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_one_process_is_a_run_of_one(alone: pytest.MonkeyPatch) -> None:
    assert found_launch("auto") is None
    alone.setenv("RANK", "0")
    alone.setenv("WORLD_SIZE", "1")
    assert found_launch("auto") is None


def test_the_launcher_can_be_chosen_and_left_out(alone: pytest.MonkeyPatch) -> None:
    for name, value in {**TORCHRUN, **SRUN}.items():
        alone.setenv(name, value)

    def command(launcher: str | None) -> str | None:
        found = found_launch(launcher)
        return None if found is None else found.launch.command

    assert command("auto") == "torchrun"
    assert command("slurm") == "srun"
    assert command(None) is None
    alone.setenv("TAUT_LAUNCHER", "none")
    assert command("auto") is None
    alone.setenv("TAUT_LAUNCHER", "slurm")
    assert command("auto") == "srun", "the variable goes before the script"
    alone.setenv("TAUT_LAUNCHER", "slrum")
    with pytest.raises(Misuse, match="one of torchrun, mpi, slurm, kubernetes; did you mean 'slurm'"):
        command("auto")


def test_a_worker_of_taut_s_own_asks_no_launcher(alone: pytest.MonkeyPatch) -> None:
    for name, value in {**TORCHRUN, "TAUT_SUPERVISOR": "tcp://10.0.0.1:4000", "TAUT_TOKEN": "x"}.items():
        alone.setenv(name, value)
    assert found_launch("auto") is None


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        (SRUN, "`taut run` as one of 4 processes of srun"),
        ({"JOB_COMPLETION_INDEX": "1"}, "in pod 1 of an indexed Job"),
    ],
)
def test_taut_run_refuses_to_be_one_of_several(
    alone: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], told: str
) -> None:
    (script := tmp_path / "train.py").write_text("")
    for name, value in environ.items():
        alone.setenv(name, value)
    with pytest.raises(Misuse, match=told):
        CliRunner().invoke(app, ["run", str(script)], catch_exceptions=False)


PACKAGE = """
from taut.engines.launchers.base import Launch, Launcher
from taut.engines.launchers.rendezvous import FileRendezvous

class Lsf(Launcher):
    name = "lsf"

    @classmethod
    def detect(cls, environ):
        return Launch("jsrun", 0, int(environ["JSM_SIZE"]), 0, 1, "1") if "JSM_SIZE" in environ else None

    @classmethod
    def rendezvous(cls, launch, folder):
        return FileRendezvous(folder, launch.key)
"""


def test_a_package_adds_a_launcher(alone: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info = tmp_path / "lsf_package-1.0.dist-info"
    info.mkdir()
    (tmp_path / "lsf_package.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lsf-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[taut.launchers]\nlsf = lsf_package:Lsf\n")
    alone.syspath_prepend(str(tmp_path))
    alone.delitem(LAUNCHERS.__dict__, "_plugins", raising=False)
    try:
        assert found_launch("auto") is None
        alone.setenv("JSM_SIZE", "6")
        found = found_launch("auto")
        assert found is not None and (found.launch.command, found.launch.size) == ("jsrun", 6)
    finally:
        LAUNCHERS.__dict__.pop("_plugins", None)
        if "lsf" in LAUNCHERS.own:
            del LAUNCHERS["lsf"]
        sys.modules.pop("lsf_package", None)


def test_a_batch_file_has_all_that_was_asked_for() -> None:
    job = BatchJob(
        name="train",
        command=["/usr/bin/python3", "train.py", "--text", "two words"],
        nodes=4,
        workers_per_node=2,
        time="2:00:00",
        partition="gpu",
        threads=8,
        options=["account=me", "--exclusive"],
        settings={"TAUT_STRATEGY": "sync for 4 steps, then async"},
    )
    assert job.text().splitlines() == [
        "#!/bin/bash",
        "#SBATCH --job-name=train",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=2",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --time=2:00:00",
        "#SBATCH --signal=TERM@60",
        "#SBATCH --partition=gpu",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --output=%x-%j.out",
        "#SBATCH --account=me",
        "#SBATCH --exclusive",
        "",
        "export TAUT_CHECKPOINT_EVERY=5m",
        "export TAUT_STRATEGY='sync for 4 steps, then async'",
        "srun --kill-on-bad-exit=0 --wait=0 /usr/bin/python3 train.py --text 'two words'",
    ]


def test_a_job_that_is_not_requeued_writes_no_checkpoints_by_itself() -> None:
    text = BatchJob(name="train", command=["python"], options=["no-requeue"]).text()
    assert "#SBATCH --no-requeue" in text and "#SBATCH --requeue" not in text and "CHECKPOINT" not in text
    text = BatchJob(name="train", command=["python"], settings={"TAUT_CHECKPOINT_EVERY": "1h"}).text()
    assert "export TAUT_CHECKPOINT_EVERY=1h" in text and "5m" not in text


@pytest.mark.parametrize(
    "wrong", [{"time": "soon"}, {"partition": "a b"}, {"options": ["account=me\n#SBATCH --x"]}, {"options": ["a # b"]}]
)
def test_a_batch_file_has_no_line_that_slurm_would_misread(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        BatchJob(name="train", command=["python"], **wrong).text()
