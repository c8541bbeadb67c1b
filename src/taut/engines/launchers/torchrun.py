"""``torchrun`` (``python -m torch.distributed.run``), and whatever else sets the variables of PyTorch's ``env://``.

Rank 0 tells the others through the store that torchrun's own process serves at ``MASTER_ADDR:MASTER_PORT``
(``TORCHELASTIC_USE_AGENT_STORE``); without one, rank 0 serves it there itself, as ``init_process_group`` does. torchrun
makes a new store for every restart, and versions of it before did not: on one host, where all processes know the same
``TORCHELASTIC_RESTART_COUNT``, it is part of the key.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from taut.engines.launchers.base import Launch, Launcher, checked, number
from taut.engines.launchers.rendezvous import Rendezvous


class Torchrun(Launcher):
    """Processes with ``RANK`` and ``WORLD_SIZE``."""

    name: ClassVar[str] = "torchrun"

    @classmethod
    def detect(cls, environ: Mapping[str, str]) -> Launch | None:
        """Return what PyTorch's variables say.

        >>> launch = Torchrun.detect({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500"})
        >>> launch.rank, launch.size, launch.host, launch.port, launch.one_host
        (1, 2, 'a', 29500, False)
        """
        rank, size = number(environ, "RANK"), number(environ, "WORLD_SIZE")
        if size is None or (rank is None and not environ.get("TORCHELASTIC_RUN_ID")):
            return None
        return checked(
            Launch(
                command="torchrun",
                rank=rank or 0,
                size=size,
                local_rank=number(environ, "LOCAL_RANK") or 0,
                local_size=number(environ, "LOCAL_WORLD_SIZE") or 1,
                key=environ.get("TORCHELASTIC_RUN_ID") or "none",
                host=environ.get("MASTER_ADDR", ""),
                port=number(environ, "MASTER_PORT") or 0,
                agent_store=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
                attempt=number(environ, "TORCHELASTIC_RESTART_COUNT") or 0,
                attempts=number(environ, "TORCHELASTIC_MAX_RESTARTS") or 0,
            )
        )

    @classmethod
    def rendezvous(cls, launch: Launch, folder: str) -> Rendezvous:
        from taut.engines.launchers.tcp_store import StoreRendezvous

        attempt = f"/{launch.attempt}" if launch.one_host else ""
        serves = launch.rank == 0 and not launch.agent_store
        return StoreRendezvous(launch.host, [launch.port], f"taut/{launch.key}{attempt}", serves=serves)


def elastic_key(launch: Launch, parent: str | None = None) -> str:
    """Return what stays the same when the launcher starts the processes again: the job; torchrun's ``--rdzv-id``, or
    without one its own process (``parent``).

    >>> elastic_key(Torchrun.detect({"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"}), "7")
    'none-7'
    """
    return launch.job or launch.key if launch.key not in ("none", "") else f"none-{parent or _parent()}"


def _parent() -> str:
    """Return the number of the parent process and, where the system tells it, when that was started: numbers come
    again."""
    parent = os.getppid()
    with contextlib.suppress(OSError, IndexError):
        about = Path(f"/proc/{parent}/stat").read_text(encoding="ascii", errors="replace")
        return f"{parent}-{about.rpartition(')')[2].split()[19]}"
    return str(parent)
