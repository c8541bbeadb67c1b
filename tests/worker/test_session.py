"""A session whose supervisor is a script: what a worker does that is given up, and finds nobody to come back to."""

from __future__ import annotations

import json
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from taut.core.messages import SUPERVISOR, Donor, Expulsion, Hello, Member, Message, Roster, Start, Welcome, WorkerMessage
from taut.errors import GivenUp, SupervisorLost
from taut.transport.framing import decode, encode
from taut.transport.transport import Transport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher
from taut.worker.joining.connection import Connector
from taut.worker.model.flat_params import FlatParams
from taut.worker.session import WorkerSession
from taut.worker.time_split import Stopwatch


class Line(Transport):
    """A transport to a supervisor alone, which says ``answers`` to a Hello, and takes everything else."""

    address = "memory://line"

    def __init__(self, answers: Sequence[Message]) -> None:
        self.answers, self.inbox = answers, queue.SimpleQueue[Message | None]()

    def say(self, message: Message) -> None:
        self.inbox.put(message)

    def admit(self, member: Member) -> None: ...

    def forget(self, rank: int) -> None: ...

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        message, _ = decode(list(frames), WorkerMessage)
        if isinstance(message, Hello):
            for answer in self.answers:
                self.say(answer)
        return True

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        try:
            message = self.inbox.get(timeout=timeout_s)
        except queue.Empty:
            return []
        return [] if message is None else [(SUPERVISOR, encode(message, ()))]

    def wake(self) -> None:
        self.inbox.put(None)

    def close(self, linger_s: float = 0.0) -> None: ...


class Lines(Connector):
    """One line for each place that the worker takes."""

    def __init__(self, *lines: Line) -> None:
        self.watch, self.address, self.public_key, self.host, self.pid = Stopwatch(), "memory://line", "", "here", 1
        self.lines = list(lines)

    def comm(self, make_strategy: Any, **options: Any) -> CommThread:
        return CommThread(Dispatcher(self.lines.pop(0), make_strategy, **options))

    def renew(self) -> None: ...


def test_who_is_given_up_and_finds_no_supervisor_keeps_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = json.dumps({"strategy": "async", "patience_s": 0.05})
    here = Line([Welcome(3, "otter", 0, 1, settings), Roster(1, [Member(3, "", "", False)], []), Donor(-1), Start()])
    model = torch.nn.Linear(2, 1)
    session = WorkerSession(Lines(here, Line([])), FlatParams(model))
    session.train()
    here.say(Expulsion("silent for 9.0 s", True))
    with pytest.raises(GivenUp) as given_up:
        session.comm.wait(lambda _: False, lambda: None)
    with pytest.raises(SupervisorLost, match="no answer from the supervisor"):
        session.come_back(given_up.value)
    saved = session.save_here()
    assert saved == tmp_path / "otter-worker-3.safetensors"
    assert torch.equal(load_file(saved)["weight"], model.weight)
