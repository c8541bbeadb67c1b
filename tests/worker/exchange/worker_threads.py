"""Workers of a test as threads of one process: real nodes over the in-memory transport, no supervisor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from taut.core.messages import Member, Roster
from taut.transport.memory import MemoryNetwork
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.data.batches import OwnLeases
from taut.worker.model.flat_params import FlatParams
from taut.worker.time_split import Stopwatch


class ThreadSeat:
    """A place in such a run; a subclass gives ``exchange`` and ``phases``."""

    seed, stopping, leaving, score, keeper, member = 0, False, False, None, None, None
    exchange: Any
    phases: Any
    settings: dict[str, Any] = {}  # noqa: RUF012
    rate = 1.0

    def __init__(self, node: CommThread, params: FlatParams) -> None:
        self.comm, self.params, self.watch, self.leases = node, params, Stopwatch(), OwnLeases()
        self.statistics: Any = None

    def __getattr__(self, name: str) -> Any:
        if name in ("before_step", "after_step"):
            return lambda *given: self.comm.run_turn(getattr(self.exchange, name)(*given), self.watch)
        if name == "attach":
            return self.exchange.attach
        raise AttributeError(name)

    def train(self) -> None:
        self.exchange.start()

    def stand_still(self) -> None:
        pass  # no owner pauses a worker here

    def enter(self) -> bool:
        return False

    def finish(self, begun: Any) -> None:
        self.exchange.finish()

    def add_statistics(self, mine: Any) -> Any:
        return mine


def in_threads(protocols: list[Callable[[], Any]], work: Callable[[int, CommThread], Callable[[], None]]) -> None:
    """``work(rank, node)`` trains in a thread of its own and answers what closes the worker; the first failure is raised.

    The run is drained, and so may end, when nobody has data left.
    """
    wire, ranks = MemoryNetwork(), range(len(protocols))
    transports = [wire.transport(rank) for rank in ranks]
    members = [Member(rank, transports[rank].address, "", ready=True) for rank in ranks]
    nodes = [CommThread(Dispatcher(transports[rank], lambda _, rank=rank: protocols[rank]())) for rank in ranks]
    failures: list[BaseException] = []
    for rank, node in enumerate(nodes):
        node.join_alone(rank, [member for member in members if member.rank != rank])
        node.status.roster = Roster(1, members, [])
        node.start()
    for node in nodes:  # what reaches a node that does not know its neighbours yet has to be sent again, much later
        node.wait(lambda _, node=node: not node._commands, lambda: None, needs_supervisor=False)
    done = threading.Barrier(len(nodes), action=lambda: [node.status.note(drain="over") for node in nodes])

    def one(rank: int) -> None:
        try:
            close = work(rank, nodes[rank])
            threading.Timer(0.0, done.wait).start()
            close()
        except BaseException as error:
            failures.append(error)
            for node in nodes:
                node.status.fail(error)
            done.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for node in nodes:
        node.close()
    if failures:
        raise failures[0]
