"""One host's part in ``bench/collectives.py``: all-reduces by gloo and by taut's schedules, in turn.

gloo is measured bare, and as a training step would use it: the weighted gradients are written to its buffer first, which
is part of what ours does.

Started on every host of the lab by ``netlab.sh run`` (RANK, WORLD_SIZE, HOST_IP, MASTER_ADDR). Ours runs as in a worker:
encrypted sockets, channels, and a ``Group`` that the communication thread drives.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from taut.core.events import Heard
from taut.core.messages import Member
from taut.strategies.allreduce.group import Group
from taut.strategies.api import Membership, Tell
from taut.strategies.delivery.channels import Channels
from taut.topologies.registry import parse
from taut.transport.keys import WorkerKeys
from taut.transport.zmq.transport import ZmqTransport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher

WEIGHTED = "gloo with weighting"
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Ours:
    """All schedules over one node; ``part`` tells them apart."""

    def __init__(self, store: Any, elements: int, schedules: list[str]) -> None:
        keys = WorkerKeys.generate()
        transport = ZmqTransport(keys, bind=os.environ["HOST_IP"])
        store.set(f"worker-{RANK}", f"{transport.address} {keys.public_key}")
        members = []
        for rank in range(SIZE):
            address, _, key = store.get(f"worker-{rank}").decode().partition(" ")
            members.append(Member(rank, address, key, True))
        self.comm = CommThread(Dispatcher(transport, lambda _: Channels(window_nbytes=max(8 << 20, elements // 2))))
        self.comm.join_alone(RANK, [member for member in members if member.rank != RANK])
        self.comm.phase_protocol.on_deliver = self._deliver
        membership = Membership(RANK, tuple(range(SIZE)), parse("complete"), 1)
        self.groups = [Group(membership, elements, schedule, part) for part, schedule in enumerate(schedules)]
        self.lock, self.over = threading.Lock(), threading.Event()
        self.comm.start()

    def _deliver(self, item: Heard) -> None:
        with self.lock:
            self._post(
                self.groups[item.note.part], self.groups[item.note.part].heard(item.sender, item.note, item.payload)
            )

    def _post(self, group: Group, tells: list[Tell]) -> None:
        for tell in tells:
            self.comm.post(tell)
        if group.done:
            self.over.set()

    def reduce(self, part: int, values: np.ndarray[Any, Any]) -> None:
        self.over.clear()
        with self.lock:
            self._post(self.groups[part], self.groups[part].begin(values, 1.0, keeps=True))
        self.over.wait()


def measured(what: Callable[[], None]) -> tuple[float, float]:
    """Seconds until the last host was done, and CPU seconds of this one."""
    distributed.barrier()
    begun_s, cpu_s = time.monotonic(), _cpu_s()
    what()
    ended_s = time.monotonic() - begun_s
    used_s = _cpu_s() - cpu_s
    slowest = torch.tensor([ended_s], dtype=torch.float64)
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    return slowest.item(), used_s


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--elements", type=int, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--warm-ups", type=int, required=True, help="connections, last rounds, both of a group's buffers")
    parser.add_argument("--schedules", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    store: Any = distributed.TCPStore(os.environ["MASTER_ADDR"], 29400, SIZE, RANK == 0)  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    schedules = args.schedules.split(",")
    ours = Ours(store, args.elements, schedules)
    values = np.random.default_rng(RANK).normal(size=args.elements).astype(np.float32)
    tensor = torch.from_numpy(values.copy())
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ("gloo", WEIGHTED, *schedules)}
    whole = torch.from_numpy(values)

    def weighted() -> None:
        torch.mul(whole, 1.0, out=tensor)
        distributed.all_reduce(tensor)

    for repetition in range(-args.warm_ups, args.repetitions):
        made = [("gloo", measured(lambda: distributed.all_reduce(tensor))), (WEIGHTED, measured(weighted))]
        made += [(name, measured(lambda part=part: ours.reduce(part, values))) for part, name in enumerate(schedules)]
        for name, figure in made if repetition >= 0 else []:
            figures[name].append(figure)
    sent: dict[str, Any] = {"rank": RANK, "figures": figures}
    (args.out / f"host-{RANK}.json").write_text(json.dumps(sent))
    distributed.barrier()
    ours.comm.close()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
