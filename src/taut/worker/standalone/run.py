"""``taut.run``: all workers as threads of this process, or, where a launcher started several processes, one in each."""

from __future__ import annotations

from taut.errors import Misuse
from taut.topologies.user_topology import Topology
from taut.worker.joining.connection import launched_run
from taut.worker.joining.launched import AUTO, found_launch
from taut.worker.standalone.worker import Worker


def run(topology: Topology[Worker], iterations: int) -> None:
    """Run ``iterations`` of every worker, each at its own pace, then drain.

    What a worker publishes goes to its neighbours, and no further. ``python script.py`` gives each worker a thread; the
    first error of any worker is raised here. ``taut run --workers N script.py`` (or ``torchrun``, ``srun``, ``mpirun``)
    makes all N workers in each process, and trains one of them there: ``topology.here()`` says which.
    """
    if iterations < 1:
        raise Misuse(f"iterations={iterations}", "at least 1")
    topology.check()
    if launched_run() is None and found_launch(AUTO) is None:
        from taut.worker.standalone.threads import run_threads

        run_threads(topology, iterations)
    else:
        from taut.worker.standalone.channel_worker import run_one

        run_one(topology, iterations)
