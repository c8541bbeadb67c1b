"""Small clients that speak the protocol to a supervisor over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import torch
from safetensors.torch import save
from scripted import digest, hello

from taut.core.messages import (
    SUPERVISOR,
    Done,
    Donor,
    Drain,
    Finish,
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    Message,
    NoLease,
    Ready,
    Start,
    SupervisorMessage,
    Upload,
    Welcome,
)
from taut.supervisor.prepare import Origin
from taut.supervisor.service import Supervisor
from taut.supervisor.view import ClusterView
from taut.transport.framing import decode, encode
from taut.transport.keys import Token, WorkerKeys
from taut.transport.zmq.transport import ZmqTransport

M = TypeVar("M", bound=Message)
PATIENCE_S = 30.0


class Client:
    """One worker's end of the protocol."""

    def __init__(self, address: str, token: str, pid: int) -> None:
        self.pid = pid
        server = (address, Token.parse(token))
        self.transport = ZmqTransport(WorkerKeys.generate(), supervisor=server)
        self.inbox: list[Message] = []
        self.said = 0

    def send(self, frames: list[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.transport.send(SUPERVISOR, frames):
            assert time.monotonic() < deadline, "the supervisor takes nothing"
            self.receive()

    def say(self, message: Message, *payloads: bytes) -> None:
        if isinstance(message, Heartbeat | Done):
            message = msgspec.structs.replace(message, said=self.said)
        self.send(encode(message, payloads))
        self.said += not isinstance(message, Heartbeat)

    def hear(self, kind: type[M]) -> M:
        """The next message of this kind; others stay in the inbox."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            for index, message in enumerate(self.inbox):
                if isinstance(message, kind):
                    return self.inbox.pop(index)  # type: ignore[return-value]
            assert time.monotonic() < deadline, f"no {kind.__name__} but {self.inbox}"
            self.receive()

    def become_ready(self) -> int:
        self.say(hello(self.pid))
        rank = self.hear(Welcome).rank
        self.hear(Donor)
        self.say(Ready())
        return rank

    def receive(self) -> None:
        for _, frames in self.transport.receive(0.1):
            self.inbox.append(decode(frames, SupervisorMessage)[0])


class Harness:
    """A supervisor and its clients, all closed at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: list[Client] = []
        self.supervisors: list[Supervisor] = []

    def supervise(self, workers: int, **more: object) -> Supervisor:
        run_dir = self.path / "runs" / "a-run"
        options = {"run": "a-run", "workers": workers, "seed": 3, "origin": Origin("taut run x.py"), **more}
        self.supervisors.append(Supervisor({"tau": 0.5}, run_dir, **options))  # type: ignore[arg-type]
        self.supervisors[-1].start()
        return self.supervisors[-1]

    def close(self) -> None:
        for supervisor in self.supervisors:
            supervisor.stop()
        for client in self.clients:
            client.transport.close()

    def client(self, pid: int) -> Client:
        self.clients.append(Client(self.supervisors[-1].address, self.supervisors[-1].token, pid))
        return self.clients[-1]

    def seen(self, condition: Callable[[ClusterView], object]) -> ClusterView:
        """The first view that fulfils the condition; clients' sockets are read meanwhile."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.supervisors[-1].view()):
            assert time.monotonic() < deadline, self.supervisors[-1].view()
            for client in self.clients:
                client.receive()
        return self.supervisors[-1].view()


def work(client: Client) -> None:
    """One pass, to the end."""
    client.hear(Start)
    while True:
        client.say(LeaseRequest(0, 100, 10, True))
        answer = client.hear(Message)  # type: ignore[type-abstract]
        while not isinstance(answer, Lease | NoLease):
            answer = client.hear(Message)  # type: ignore[type-abstract]
        if isinstance(answer, NoLease):
            break
        client.say(LeaseDone([answer.lease]))
    client.say(Done())


def end_together(*clients: Client) -> None:
    """Drain; the first client writes the model."""
    for client in clients:
        client.hear(Drain)
        client.say(digest(), b"\0" * 8)
    for client in clients:
        client.hear(Finish)
    data = save({"a.weight": torch.zeros(3, 4)})
    clients[0].say(Upload(0, len(data)), data)
