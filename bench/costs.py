"""What does exchanging cost a worker's training thread? The figures that ``taut simulate`` starts from, where there is
no probe of the user's own machines.

CPU seconds of one thread (``time.thread_time``), medians. Codecs: every one of the registry, ``emit`` and ``absorb`` of
made-up updates of 4 million float32, the fixed part from 1024 (``taut.simulator.models.cost_file``, as ``taut codecs
--measure`` does it, which takes the wall time). Messages: dispatchers over the ZeroMQ transport with its encryption, all
in this thread, one worker telling three others of updates of 1 KB and of 8 MB: sending is publishing one, receiving is
the pump of the other end that brings it. ``--write FILE`` writes them as JSON, which ``Costs.read`` takes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from report import Row, arguments, report, row
from taut.codecs import REGISTRY, merge
from taut.core.events import Published, Synced, Taken
from taut.core.messages import Member, Roster, Welcome
from taut.simulator.models.cost_file import measured_costs, origin
from taut.simulator.models.costs import Costs
from taut.strategies.broadcast.asynchronous import Asynchronous
from taut.transport.keys import WorkerKeys
from taut.transport.zmq.transport import ZmqTransport
from taut.worker.comm.dispatcher import Dispatcher

SIZE = 10_000_000  # elements that are copied
SHORT_NBYTES, LONG_NBYTES = 1_000, 8_000_000
ROOM_NBYTES = 1 << 19  # in a link's window of a megabyte, for updates that are not long


class ThreadClock:
    """The time that this thread itself has worked."""

    def now(self) -> float:
        return time.thread_time()


def cpu(function: Callable[[], object]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start


class Some:
    """One dispatcher that sends, and some that receive, as if admitted to one run."""

    def __init__(self, receivers: int) -> None:
        keys = [WorkerKeys.generate() for _ in range(receivers + 1)]
        transports = [ZmqTransport(each) for each in keys]
        members = [
            Member(i, t.address, k.public_key, True) for i, (t, k) in enumerate(zip(transports, keys, strict=True))
        ]
        self.dispatchers = [Dispatcher(transport, lambda _: Asynchronous(merge=merge)) for transport in transports]
        for rank, dispatcher in enumerate(self.dispatchers):
            dispatcher.status.roster = roster = Roster(1, members, [])
            dispatcher._on_supervisor(Welcome(rank, "costs", 0, len(keys), "{}"), [])
            dispatcher._on_roster(roster)
            dispatcher.protocols.tell(Synced({}, []))
        self.until(
            lambda: not any(link.pending for link in self.dispatchers[0].protocols.phase_protocol.state.links.values())
        )

    def until(self, done: Callable[[], bool]) -> None:
        while not done():
            for dispatcher in self.dispatchers:
                dispatcher.work(0.001)

    def one(self, payload: bytes) -> tuple[float, float]:
        """Send one update to everybody: CPU seconds of the sender, and of one receiver, per message."""
        sender, *receivers = self.dispatchers
        room = ROOM_NBYTES if len(payload) < ROOM_NBYTES else 0
        self.until(
            lambda: all(link.flight_nbytes <= room for link in sender.protocols.phase_protocol.state.links.values())
        )
        sender.commands.append(partial(sender.protocols.tell, Published(payload)))
        send_s = cpu(lambda: sender.work(None)) / len(receivers)
        receive_s = 0.0
        for receiver in receivers:
            while not receiver.protocols.arrivals:
                begun = time.thread_time()
                receiver.work(0.001)
                last_s = time.thread_time() - begun
            receive_s += last_s  # of the call that brought it: waiting is not counted
            begun = time.thread_time()
            items = list(receiver.protocols.arrivals)
            receiver.protocols.arrivals.clear()
            receiver.commands.append(partial(receiver.protocols.tell, Taken({item.origin: item.hi for item in items})))
            receive_s += time.thread_time() - begun
        return send_s, receive_s / len(receivers)

    def close(self) -> None:
        for dispatcher in self.dispatchers:
            dispatcher.transport.close()


def copy_s_per_byte(repetitions: int) -> float:
    source, target = np.ones(SIZE, np.float32), np.zeros(SIZE, np.float32)
    return statistics.median(cpu(lambda: np.copyto(target, source)) for _ in range(repetitions)) / source.nbytes


def messages(payload_nbytes: int, repetitions: int) -> tuple[float, float]:
    """CPU seconds of one message's sender and of its receiver."""
    some = Some(receivers=3)
    try:
        times = [some.one(b"x" * payload_nbytes) for _ in range(repetitions + 1)][1:]
    finally:
        some.close()
    return statistics.median(each[0] for each in times), statistics.median(each[1] for each in times)


def measure(repetitions: int) -> Costs:
    measured, _ = measured_costs(list(REGISTRY), clock=ThreadClock())
    send_s, receive_s = messages(SHORT_NBYTES, 20 * repetitions)
    long_send_s, long_receive_s = messages(LONG_NBYTES, repetitions)
    return Costs(
        measured.codecs,
        message_s=(send_s + receive_s) / 2,
        send_s_per_byte=(long_send_s - send_s) / (LONG_NBYTES - SHORT_NBYTES),
        receive_s_per_byte=(long_receive_s - receive_s) / (LONG_NBYTES - SHORT_NBYTES),
        copy_s_per_byte=copy_s_per_byte(repetitions),
    )


def rows(costs: Costs) -> list[Row]:
    found = []
    for name, cost in costs.codecs.items():
        found.append(row(f"{name} encode", cost.encode_s_per_element * 1e9, "ns per element"))
        found.append(row(f"{name} absorb", cost.absorb_s_per_byte * 1e9, "ns per byte"))
        found.append(row(f"{name} bits", cost.bits_per_element, "per element"))
        found.append(row(f"{name} fixed", cost.fixed_s * 1e6, "us"))
    found.append(row("message, at each end", costs.message_s * 1e6, "us"))
    found.append(row("send", costs.send_s_per_byte * 1e9, "ns per byte"))
    found.append(row("receive", costs.receive_s_per_byte * 1e9, "ns per byte"))
    found.append(row("copy", costs.copy_s_per_byte * 1e9, "ns per byte"))
    return found


def main(args: argparse.Namespace) -> None:
    costs = measure(3 if args.quick else 15)
    if args.write:
        costs.write(args.write, origin())
    report("costs", rows(costs), args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--write", type=Path, help="write the costs as JSON")
    main(parser.parse_args())
