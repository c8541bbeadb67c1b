"""An indexed Job of Kubernetes. Its pods have a number, and nothing says how many there are or where pod 0 is.

``deploy/kubernetes/start.sh`` starts a supervisor in pod 0 and a worker in each. A script that a pod starts by itself is
refused: it would be one of several runs of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from taut.engines.launchers.base import Launch, Launcher, number
from taut.engines.launchers.rendezvous import Rendezvous
from taut.errors import Misuse


class Kubernetes(Launcher):
    """Pods with ``JOB_COMPLETION_INDEX``."""

    name: ClassVar[str] = "kubernetes"

    @classmethod
    def detect(cls, environ: Mapping[str, str]) -> Launch | None:
        """Return None in a Job of one pod (``TAUT_WORKERS=1``), and outside of one. Raise ``Misuse`` in another.

        >>> Kubernetes.detect({}), Kubernetes.detect({"JOB_COMPLETION_INDEX": "0", "TAUT_WORKERS": "1"})
        (None, None)
        """
        index = number(environ, "JOB_COMPLETION_INDEX")
        if index is None or (index == 0 and number(environ, "TAUT_WORKERS") == 1):
            return None
        raise Misuse(
            f"a script by itself in pod {index} of an indexed Job",
            "deploy/kubernetes/start.sh SCRIPT as its command, with TAUT_SUPERVISOR and TAUT_TOKEN_FILE as in job.yaml",
            "or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; in a Job of one pod TAUT_WORKERS=1; for separate runs "
            "TAUT_LAUNCHER=none",
        )

    @classmethod
    def rendezvous(cls, launch: Launch, folder: str) -> Rendezvous:
        raise NotImplementedError  # no launch is ever found
