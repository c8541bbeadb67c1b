"""Devices of one machine's workers: which GPU each worker gets, and how its process is told.

A worker sees its own GPU only (``CUDA_VISIBLE_DEVICES``), as ``cuda:0``; a worker on the CPU sees none. So a script that
asks ``torch.cuda.is_available()`` finds its device without knowing taut, and ``taut.device()`` says the same. Without
``--devices`` nothing is hidden, and ``taut.device()`` deals the GPUs out by the worker's number on its machine.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from taut.errors import Misuse

if TYPE_CHECKING:
    import torch

CPU = "cpu"
LOCAL_RANK, DEVICE, VISIBLE = "TAUT_LOCAL_RANK", "TAUT_DEVICE", "CUDA_VISIBLE_DEVICES"


def visible_gpus(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names by which ``CUDA_VISIBLE_DEVICES`` knows this machine's GPUs, without loading CUDA.

    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}), visible_gpus({"CUDA_VISIBLE_DEVICES": ""})
    (['2', '3'], [])
    """
    environ = os.environ if environ is None else environ
    if VISIBLE in environ:
        return [name.strip() for name in environ[VISIBLE].split(",") if name.strip() not in ("", "-1")]
    return [str(index) for index in range(_gpu_count())]


def _gpu_count() -> int:
    """Ask NVIDIA's management library how many GPUs there are."""
    try:
        library = ctypes.CDLL("nvml.dll" if os.name == "nt" else "libnvidia-ml.so.1")
    except OSError:
        return 0  # no driver
    count = ctypes.c_uint(0)
    if library.nvmlInit_v2() != 0:
        return 0
    found = library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    library.nvmlShutdown()
    return count.value if found else 0


def assign(devices: str, workers: int, gpus: Sequence[str]) -> list[str]:
    """Return a device for each worker: ``cpu``, or the name of one of ``gpus``.

    ``auto`` gives each worker a GPU of its own, or all of them the CPU where there is none. A list is dealt out in its
    order, and again from its beginning where there are more workers: so ``0`` puts all on the first GPU.

    >>> assign("0,1", 3, ["4", "5"]), assign("auto", 2, []), assign("0,cpu", 2, ["GPU-ab"])
    (['4', '5', '4'], ['cpu', 'cpu'], ['GPU-ab', 'cpu'])
    """
    if devices == "auto":
        if 0 < len(gpus) < workers:
            shared = ",".join(str(index) for index in range(len(gpus)))
            raise Misuse(
                f"--devices auto with {workers} workers",
                f"at most one worker for each GPU, of which there {_are(len(gpus))}",
                f"--devices {shared} lets workers share a GPU; --devices {shared},cpu puts some on the CPU",
            )
        return list(gpus[:workers]) or [CPU] * workers
    named = devices.split(",")
    for name in named:
        if name != CPU and int(name) >= len(gpus):
            raise Misuse(
                f"--devices {devices}",
                f"GPUs that this machine has, of which there {_are(len(gpus))}",
                "--devices cpu trains on the processor" if not gpus else f"the last one is {len(gpus) - 1}",
            )
    chosen = [CPU if name == CPU else gpus[int(name)] for name in named]
    return [chosen[index % len(chosen)] for index in range(workers)]


def _are(count: int) -> str:
    return {0: "is none", 1: "is 1"}.get(count, f"are {count}")


def device_variables(index: int, device: str | None) -> dict[str, str]:
    """Return the variables that tell this machine's worker ``index`` its device; None: it chooses for itself.

    >>> device_variables(1, "3")["CUDA_VISIBLE_DEVICES"], device_variables(1, None)
    ('3', {'TAUT_LOCAL_RANK': '1'})
    """
    told = {LOCAL_RANK: str(index)}
    if device is None:
        return told
    return told | {DEVICE: CPU, VISIBLE: ""} if device == CPU else told | {DEVICE: "cuda:0", VISIBLE: device}


def device() -> torch.device:
    """Return the device that this worker is to train on, also before ``taut.join``.

    It is the one that ``--devices`` gave to this worker. Without ``--devices``, it is a GPU by the worker's number on its
    machine where there are GPUs, else the processor.
    """
    import torch

    told = os.environ.get(DEVICE)
    if told:
        return torch.device(told)
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank() % torch.cuda.device_count())
    return torch.device("mps" if torch.backends.mps.is_available() else CPU)


def local_rank(environ: Mapping[str, str] | None = None) -> int:
    """Return this worker's number among the workers of its machine, as its launcher tells it; else 0.

    >>> local_rank({"LOCAL_RANK": "3"}), local_rank({})
    (3, 0)
    """
    environ = os.environ if environ is None else environ
    for name in (LOCAL_RANK, "LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"):
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return 0
