"""Conducts a run in a process that may open few descriptors; for test_descriptors_integration.py.

python limited_supervisor.py FOLDER LIMIT: prints the address and the token, drains the run at a line on standard input,
prints how it ended.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def main(folder: str, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    from taut.supervisor.service import Supervisor

    supervisor = Supervisor({"tau": 0.5}, Path(folder), run="limited", workers=1, seed=0)
    supervisor.start()
    print(supervisor.address, supervisor.token, flush=True)
    sys.stdin.readline()
    supervisor.drain("enough")
    outcome = supervisor.wait(None)
    assert outcome is not None
    print(outcome.state, outcome.model, outcome.error, flush=True)
    sys.stdin.readline()
    supervisor.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
