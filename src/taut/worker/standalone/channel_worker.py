"""One worker of a wired topology in a process of its own, in the run that a launcher started.

The process joins as ``taut.join_vector`` does. The array that it joins with is the wiring: a matrix with a 1 for each
channel. It is never changed, and shows that all processes wired the same topology. What the workers train is their own
affair: their updates go beside it (``neighbour_exchange.py``).
"""

from __future__ import annotations

import numpy as np
import torch

from taut.errors import Expelled, Misuse, Stopping
from taut.strategies.broadcast.broadcast import Broadcast
from taut.topologies.user_topology import Topology
from taut.worker.exchange.stream import StreamExchange
from taut.worker.joining.connection import Connector
from taut.worker.joining.enter_run import enter_run
from taut.worker.joining.launched import AUTO
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.model_checks import check_model
from taut.worker.session import WorkerSession
from taut.worker.session_worker import SessionWorker
from taut.worker.standalone.neighbour_exchange import NeighbourExchange
from taut.worker.standalone.worker import Worker
from taut.worker.vector.update_function import UpdateFunction, move_nothing
from taut.worker.vector.vector_model import VectorModel
from taut.worker.vector.vector_worker import VectorWorker

CHANNELS = "channels"  # the name of the matrix, in the model file


class ChannelWorker(VectorWorker):
    """The session of the worker whose rank is its place in ``topology``."""

    def __init__(self, topology: Topology[Worker], link: Connector) -> None:
        self.topology, size = topology, len(topology.workers)
        model = VectorModel(_matrix(topology), {CHANNELS: (size, size)})
        self._wired = model.tensor.clone()
        optimizer = UpdateFunction(list(model.parameters()), move_nothing, 0.0, {})
        params = FlatParams(model, check_model(model, optimizer), room=model.tensor)
        super().__init__(params, optimizer, WorkerSession(link, params), 0, updates=False)

    def _check_strategies(self, session: WorkerSession) -> None:
        """Refuse a run in which the script's topology has no place."""
        size, started = len(self.topology.workers), session.workers
        if started != size:
            given = f"--workers {started} for a script that wires {size} workers"
            raise Misuse(given, "as many processes as workers", f"type --workers {size}")
        if session.comm.rank >= size:
            raise Misuse(f"worker {session.comm.rank} of a script that wires {size}", "no worker that joins in mid-run")
        schedule, shape = session.phases.schedule, session.settings.get("topology", "complete")
        choice = schedule.phases[0].choice
        if shape != "complete":
            raise Misuse(f"--topology {shape} for a script that wires its own", "no --topology")
        if (
            len(schedule.phases) > 1
            or choice.is_method
            or not choice.kind.complete
            or not issubclass(choice.kind, Broadcast)
        ):
            given = f"--strategy {session.settings.get('strategy')} for a script that connects workers by channels"
            raise Misuse(given, "async or ssp", "leave --strategy away; other strategies: taut.join_vector")
        if session.settings.get("checkpoints") or session.settings.get("resume"):
            given = "checkpoints of a script that connects workers by channels"
            raise Misuse(given, "none: only the script knows what its workers hold", "leave --checkpoint-every away")
        if "codec" in session.settings.get("explicit", ()):
            given = f"--codec {session.settings['codec']} for a script that connects workers by channels"
            raise Misuse(given, "no --codec: updates go as `emit` writes them")
        if not torch.equal(self._wired, self.model.tensor):
            remedy = "seed what the script draws at random: every process makes all workers and channels"
            raise Misuse("a topology that this process has wired in another way", "the same in all processes", remedy)
        self._connect(session)

    def _connect(self, session: WorkerSession) -> None:
        """Prepare for the neighbours' updates: the first may come before this worker has started."""
        rank, exchange = session.comm.rank, session.exchange
        assert isinstance(exchange, StreamExchange)
        exchange.counts_bytes = False  # an all-reduce of the matrix is nothing to compare with
        mine, around = self.topology.workers[rank], self.topology.neighbours(rank)
        self._neighbours = NeighbourExchange(mine, around, session.comm, exchange.io)

    def train(self, iterations: int) -> None:
        """Make the worker's iterations, then wait until all neighbours have ended theirs."""
        session, rank, neighbours = self._session, self.rank, self._neighbours
        assert session is not None
        try:
            for _ in range(iterations):
                neighbours.turn()
                SessionWorker.exchange(self)  # not VectorWorker's, which warns where the array does not change
                if self.rank != rank:
                    raise Expelled(f"worker {rank} was given up, and has no place in the topology under another rank")
        except Stopping:
            pass
        neighbours.end()
        if not session.leaving:
            over = lambda _: neighbours.drained() or session.leaving  # noqa: E731
            session.comm.wait(over, session.exchange.idle, needs_supervisor=False)


def run_one(topology: Topology[Worker], iterations: int) -> None:
    """Run the worker of ``topology`` that is this process's, in the run that it was started for."""

    def made(link: Connector | None) -> ChannelWorker:
        assert link is not None, "the caller has seen that this process was launched"
        return ChannelWorker(topology, link)

    with enter_run(made, AUTO) as worker:
        topology.alone = worker.rank
        worker.train(iterations)


def _matrix(topology: Topology[Worker]) -> np.ndarray:
    matrix = np.zeros((len(topology.workers),) * 2, np.float32)
    for a, b in topology.channels:
        matrix[a, b] = matrix[b, a] = 1.0
    return matrix.ravel()
