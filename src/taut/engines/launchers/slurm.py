"""``srun``: the tasks of a Slurm job step.

Rank 0 tells the others by a file in the folder of the runs. Where there are several hosts, it also serves a store at the
first of them, at a port that follows from the job's number, for hosts that do not see that folder. A job that Slurm has
requeued (``SLURM_RESTART_COUNT``) continues its run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from taut.engines.launchers.base import Launch, Launcher, checked, number
from taut.engines.launchers.rendezvous import FileRendezvous, Rendezvous, Several

FIRST_PORT, PORTS, TRIED = 20_000, 10_000, 3  # below the ports that systems give out by themselves


class Slurm(Launcher):
    """Processes with ``SLURM_PROCID``."""

    name: ClassVar[str] = "slurm"

    @classmethod
    def detect(cls, environ: Mapping[str, str]) -> Launch | None:
        """Return what Slurm's variables say. The script of a batch job has the number of tasks and is process 0, though
        srun did not start it.

        >>> step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"}
        >>> Slurm.detect(step).rank, Slurm.detect({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
        (1, None)
        """
        step, rank = number(environ, "SLURM_STEP_ID", "SLURM_STEPID"), number(environ, "SLURM_PROCID")
        size = number(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
        if size is None or rank is None or (step is None and not rank):
            return None
        tasks = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE") or str(size)
        hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or ""
        job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or "0"
        attempt = number(environ, "SLURM_RESTART_COUNT") or 0
        return checked(
            Launch(
                command="srun",
                rank=rank,
                size=size,
                local_rank=number(environ, "SLURM_LOCALID") or 0,
                local_size=tasks_on(tasks, number(environ, "SLURM_NODEID") or 0),
                key=f"{job}-{step or 0}-{attempt}",
                host=first_host(hosts),
                port=FIRST_PORT + TRIED * (int(job) * 31 + (step or 0) if job.isdecimal() else 0) % PORTS,
                survives=True,
                attempt=attempt,
                job=f"{job}-{step or 0}",
            )
        )

    @classmethod
    def rendezvous(cls, launch: Launch, folder: str) -> Rendezvous:
        file = FileRendezvous(folder, f"slurm-{launch.key}")
        if launch.one_host or not launch.host:
            return file
        from taut.engines.launchers.tcp_store import StoreRendezvous

        ports = [launch.port + offset for offset in range(TRIED)]
        return Several([file, StoreRendezvous(launch.host, ports, f"taut/{launch.key}", serves=launch.rank == 0)])


def first_host(hosts: str) -> str:
    """Return the first host of a list as Slurm writes it.

    >>> [first_host(text) for text in ("node[03-05,9],gpu1", "a,b", "rack[1-2]n[07-08]-ib", "")]
    ['node03', 'a', 'rack1n07-ib', '']
    """
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", hosts)
    return re.sub(r"\[([0-9]+)[^\]]*\]", r"\1", first[0]) if first else ""


def tasks_on(tasks: str, node: int) -> int:
    """Return how many tasks run on the host of number ``node``, of a list as Slurm writes it.

    >>> [tasks_on("2(x3),1", node) for node in range(4)]
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", tasks):
        counts += [int(count)] * int(times or 1)
    return counts[node] if node < len(counts) else 1
