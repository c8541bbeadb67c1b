"""Framework-free workers in one process: a thread each, over the in-memory transport."""

from __future__ import annotations

import threading

from taut.codecs.wire.merge import merge
from taut.core.messages import Member
from taut.strategies.broadcast.asynchronous import Asynchronous
from taut.topologies.user_topology import Topology
from taut.transport.memory import MemoryNetwork
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.exchange.stream import CommStream
from taut.worker.exchange.stream_driver import StreamDriver
from taut.worker.standalone.worker import Worker


def run_threads(topology: Topology[Worker], iterations: int) -> None:
    """Run ``iterations`` of every worker, then drain. Raise the first error of any worker."""
    network = MemoryNetwork()
    ranks = range(len(topology.workers))
    transports = [network.transport(rank) for rank in ranks]
    members = [Member(rank, transports[rank].address, "") for rank in ranks]
    streams: list[CommStream] = []
    errors: list[BaseException] = []
    for rank in ranks:
        comm = CommThread(Dispatcher(transports[rank], lambda _: Asynchronous(merge)))
        comm.join_alone(rank, [members[other] for other in topology.neighbours(rank)])
        streams.append(CommStream(topology.workers[rank], comm))

    def work(stream: CommStream) -> None:
        driver = StreamDriver(stream)
        try:
            for _ in range(iterations):
                stream.comm.run_turn(driver.turn(), stream.watch)
            stream.comm.run_turn(driver.drain(), stream.watch)
        except BaseException as error:
            errors.append(error)
            for other in streams:  # no worker waits for the one that failed
                other.comm.status.fail(error)

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for stream in streams:
        stream.comm.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for stream in streams:
        stream.comm.close()
    if errors:
        raise errors[0]
