"""``mpirun`` and ``mpiexec``: Open MPI, and MPICH, Intel MPI and others that start processes by PMI.

On one host, and where all hosts see the folder of the runs, rank 0 tells the others by a file there. Where mpi4py is
installed and there are several hosts, it tells them by an MPI broadcast.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import blake2b
from importlib.util import find_spec
from typing import ClassVar

from taut.engines.launchers.base import Launch, Launcher, checked, number
from taut.engines.launchers.rendezvous import FileRendezvous, Rendezvous
from taut.errors import Misuse


class Mpi(Launcher):
    """Processes with ``OMPI_COMM_WORLD_RANK``, or with ``PMI_RANK`` where Slurm did not set that."""

    name: ClassVar[str] = "mpi"

    @classmethod
    def detect(cls, environ: Mapping[str, str]) -> Launch | None:
        """Return what the variables of MPI's launchers say.

        >>> launch = Mpi.detect({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"})
        >>> launch.rank, launch.size, launch.one_host
        (1, 2, True)
        """
        if environ.get("OMPI_COMM_WORLD_SIZE"):
            return _launch(environ, "OMPI_COMM_WORLD_", ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
        hydra = bool(environ.get("MPI_LOCALNRANKS"))
        if environ.get("SLURM_STEP_ID") and not hydra:
            return None  # srun --mpi=pmi2 sets PMI_RANK too, and Slurm's own variables say more
        if environ.get("PMI_SIZE"):
            return _launch(environ, "", ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"))
        if number(environ, "PMIX_RANK"):
            given = f"PMIX_RANK = {environ['PMIX_RANK']} without the number of processes"
            remedy = "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, or TAUT_LAUNCHER=none for separate runs"
            raise Misuse(given, "OMPI_COMM_WORLD_SIZE or PMI_SIZE beside it", remedy)
        return None

    @classmethod
    def rendezvous(cls, launch: Launch, folder: str) -> Rendezvous:
        if not launch.one_host and find_spec("mpi4py") is not None:
            from taut.engines.launchers.mpi_broadcast import BroadcastRendezvous

            return BroadcastRendezvous()
        return FileRendezvous(folder, f"mpi-{launch.key}")


def _launch(environ: Mapping[str, str], prefix: str, names: tuple[str, str, str, str]) -> Launch:
    rank, size, local_rank, local_size = (number(environ, prefix + name) for name in names)
    return checked(Launch("mpirun", rank or 0, size or 0, local_rank or 0, local_size or 1, _key(environ)))


def _key(environ: Mapping[str, str]) -> str:
    """Return what all processes of the job know and other jobs do not: its number, which comes again after a while, and
    Open MPI's random key for transports, as a hash; else the process that started the others."""
    job = next((environ[name] for name in _JOBS if environ.get(name)), "") or str(os.getppid())
    secret = environ.get("OMPI_MCA_orte_precondition_transports", "")
    return job + ("-" + blake2b(secret.encode(), digest_size=8).hexdigest() if secret else "")


_JOBS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")  # each names the job, where it is set
