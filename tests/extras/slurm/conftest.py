"""A Slurm of two hosts on this machine, for one session of tests: munged, slurmctld, and a slurmd for each host."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel", "sinfo")
PATIENCE_S = 60

CONFIG = """
ClusterName=taut
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
ReturnToService=2
KillWait=60
InactiveLimit=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=first NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 State=UNKNOWN
NodeName=second NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 State=UNKNOWN
PartitionName=main Nodes=first,second Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment in which Slurm's commands reach the cluster."""
    path = os.environ["PATH"] + ":/usr/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root, and Debian's slurmctld, slurmd, slurm-client and munge (missing: {missing})")
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("munge", "state", "spool-first", "spool-second"):
        (folder / name).mkdir(mode=0o700)
    environment = {**os.environ, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")}
    host = socket.gethostname().partition(".")[0]
    (folder / "slurm.conf").write_text(CONFIG.format(host=host, ports=free_ports(3), folder=folder))
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munged = ["munged", "--force", *(f"--{flag}={folder / 'munge' / name}" for flag, name in files.items())]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for command in ([*munged, "--foreground"], ["slurmctld", "-D", "-i"]):
            processes.append(_started(command, environment, folder))
        for node in ("first", "second"):
            processes.append(_started(["slurmd", "-D", "-N", node], environment, folder))
        _until_idle(environment, folder)
        yield environment
    finally:
        for process in reversed(processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _started(command: list[str], environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / f"{command[0]}.out", "ab") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL)


def _until_idle(environment: dict[str, str], folder: Path) -> None:
    """Wait until both hosts take jobs."""
    deadline_s = time.monotonic() + PATIENCE_S
    said = ""
    while time.monotonic() < deadline_s:
        done = subprocess.run(
            ["sinfo", "--noheader", "--Node", "-o", "%T"], env=environment, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if said.split() == ["idle", "idle"]:
            return
        time.sleep(0.2)
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))
    pytest.fail(f"Slurm did not come up: {said}\n{logs}")
