"""How many workers can one supervisor serve? Light ones, on one machine, over real sockets: heartbeats and leases.

The supervisor runs in a process of its own; a second process plays all workers: each has its own encrypted connection,
joins, sends a heartbeat twice a second, and asks for a lease whenever it has none (a lease lasts ``LEASE_S`` here). The
time from a heartbeat to its pulse and from a request to its lease is measured at the workers' end. Joining is measured
from the first Hello to the start of training.
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import resource
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from report import arguments, report, row
from taut.core.messages import (
    PROTOCOL_VERSION,
    Donor,
    Heartbeat,
    Hello,
    Lease,
    LeaseDone,
    LeaseRequest,
    Message,
    Pulse,
    Ready,
    Roster,
    Start,
    Statistics,
    SupervisorMessage,
    TensorSpec,
    Welcome,
)
from taut.transport.frame_packing import bundle, opened
from taut.transport.framing import LIMIT_NBYTES, decode, encode
from taut.transport.keys import Token, WorkerKeys
from taut.transport.zmq.supervisor_client import ZmqSupervisorClient

MODEL = [TensorSpec("weight", [10, 10], "float32", "trained")]
HEARTBEAT_S = 0.5
LEASE_S = 1.0
LENGTH, BATCH = 1 << 40, 64  # samples of the pass: it does not end while we look
SKETCH = [0.5] * 256


def serve(folder: str, workers: int, pipe: Any) -> None:
    """The supervisor's process: its address and token, and at the end what it used."""
    from taut.supervisor.service import Supervisor

    settings = {"strategy": "async", "topology": "complete", "codec": "tether", "workers": workers, "seed": 0}
    supervisor = Supervisor(settings, Path(folder), run="load", workers=workers, seed=0)
    supervisor.start()
    pipe.send((supervisor.address, supervisor.token))
    while pipe.recv() == "look":
        used = resource.getrusage(resource.RUSAGE_SELF)
        view = supervisor.view()
        states = [worker.state for worker in view.workers]
        pipe.send((used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, view.state, len(states), states.count("gone")))
    supervisor.stop()


@dataclass
class Light:
    """A worker that trains nothing. ``asked_s``, ``beat_s``: when it last asked for a lease, or sent a heartbeat, that
    was not answered yet."""

    link: ZmqSupervisorClient
    keys: WorkerKeys
    number: int
    asked_s: float | None = None
    beat_s: float | None = None

    def say(self, message: Message) -> None:
        self.link.socket.send_multipart(bundle(encode(message, ()), LIMIT_NBYTES), zmq.NOBLOCK)


@dataclass
class Crowd:
    """All of them, in one thread."""

    workers: list[Light]
    pulses: list[float] = field(default_factory=list)
    leases: list[float] = field(default_factory=list)
    started: int = 0
    rosters: int = 0
    sent: int = 0
    due: list[tuple[float, int, str]] = field(default_factory=list)

    def join(self) -> None:
        for one in self.workers:
            address = f"tcp://127.0.0.1:{20_000 + one.number}"
            one.say(Hello(PROTOCOL_VERSION, MODEL, address, one.keys.public_key, "host", one.number + 1))

    def run(self, poller: zmq.Poller, by_socket: dict[Any, Light], until: Any) -> None:
        while not until():
            now = time.monotonic()
            while self.due and self.due[0][0] <= now:
                _, number, what = heapq.heappop(self.due)
                self._act(self.workers[number], what, now)
            wait_ms = 20 if not self.due else max(0, min(20, int((self.due[0][0] - now) * 1e3)))
            for socket, _ in poller.poll(wait_ms):
                self._drain(by_socket[socket])

    def _act(self, one: Light, what: str, now: float) -> None:
        self.sent += 1
        if what == "beat":
            one.beat_s = now
            one.say(Heartbeat(Statistics(steps=1, samples=1), SKETCH))
            heapq.heappush(self.due, (now + HEARTBEAT_S, one.number, "beat"))
        else:
            one.asked_s = now
            one.say(LeaseRequest(0, LENGTH, BATCH, False, 1))

    def _drain(self, one: Light) -> None:
        while True:
            try:
                frames = opened(one.link.socket.recv_multipart(zmq.NOBLOCK))
            except zmq.Again:
                return
            message, _ = decode(frames, SupervisorMessage)
            self._heard(one, message, time.monotonic())

    def _heard(self, one: Light, message: Any, now: float) -> None:
        match message:
            case Welcome():
                heapq.heappush(self.due, (now, one.number, "beat"))
            case Donor():
                one.say(Ready())
            case Start():
                self.started += 1
                heapq.heappush(self.due, (now, one.number, "lease"))
            case Pulse():
                if one.beat_s is not None:
                    self.pulses.append(now - one.beat_s)
                    one.beat_s = None
            case Lease(lease):
                if one.asked_s is not None:
                    self.leases.append(now - one.asked_s)
                one.say(LeaseDone([lease]))
                heapq.heappush(self.due, (now + LEASE_S, one.number, "lease"))
            case Roster():
                self.rosters += 1


def measure(workers: int, seconds: float) -> dict[str, float]:
    ours, theirs = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        process = spawn.Process(target=serve, args=(folder, workers, theirs))
        process.start()
        address, token = ours.recv()
        context: zmq.Context[Any] = zmq.Context(io_threads=1)
        context.max_sockets = 4 * workers + 64
        parsed, keys = Token.parse(token), WorkerKeys.generate()
        crowd = Crowd(
            [Light(ZmqSupervisorClient(context, address, parsed, keys, LIMIT_NBYTES), keys, n) for n in range(workers)]
        )
        poller, by_socket = zmq.Poller(), {}
        for one in crowd.workers:
            poller.register(one.link.socket, zmq.POLLIN)
            by_socket[one.link.socket] = one
        begun_s = time.monotonic()
        crowd.join()
        limit_s = begun_s + 240.0
        crowd.run(poller, by_socket, lambda: crowd.started >= workers or time.monotonic() > limit_s)
        joined_s = time.monotonic() - begun_s
        crowd.pulses.clear()
        crowd.leases.clear()
        sent, rosters = crowd.sent, crowd.rosters
        ours.send("look")
        before = ours.recv()
        ended_s = time.monotonic() + seconds
        crowd.run(poller, by_socket, lambda: time.monotonic() > ended_s)
        ours.send("look")
        after = ours.recv()
        ours.send("end")
        process.join(10)
        process.terminate()
        for one in crowd.workers:
            one.link.close(0.0)
        context.term()
    return {
        "joined_s": joined_s,
        "started": crowd.started,
        "messages_per_s": (crowd.sent - sent) / seconds,
        "pulse_p50_ms": 1e3 * statistics.median(crowd.pulses),
        "pulse_p99_ms": 1e3 * statistics.quantiles(crowd.pulses, n=100)[-1],
        "lease_p50_ms": 1e3 * statistics.median(crowd.leases),
        "lease_p99_ms": 1e3 * statistics.quantiles(crowd.leases, n=100)[-1],
        "cpu_share": (after[0] - before[0]) / seconds,
        "memory_mb": after[1] / 1e6,
        "gone": after[4],
        "rosters": rosters,
    }


def main(args: argparse.Namespace) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    workers = args.workers or (200 if args.quick else 1000)
    found = measure(workers, 5.0 if args.quick else 30.0)
    print(json.dumps(found), file=sys.stderr)
    rows = [
        row("workers that started", found["started"], "", at_least=workers),
        row("workers given up", found["gone"], "", at_most=0),
        row("until all had joined and the start was told", found["joined_s"], "s"),
        row("messages served (heartbeats and requests)", found["messages_per_s"], "/s"),
        row("heartbeat to pulse, median", found["pulse_p50_ms"], "ms"),
        row("heartbeat to pulse, 99%", found["pulse_p99_ms"], "ms"),
        row("request to lease, median", found["lease_p50_ms"], "ms"),
        row("request to lease, 99%", found["lease_p99_ms"], "ms"),
        row("supervisor's CPU", found["cpu_share"], "cores"),
        row("supervisor's memory, at most", found["memory_mb"], "MB"),
    ]
    report("supervisor", rows, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--workers", type=int, default=0, help="default: 1000, or 200 with --quick")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main(parser.parse_args())
