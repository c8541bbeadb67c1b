"""Serving a model in tiers: a device answers by itself if it is sure, else asks upstream, over taut's transport.

Links are encrypted and authenticated by CURVE: whoever has the upper tier's token may ask it. A tier that gets no answer
in time answers by itself, and asks again after a while. An edge waits ``wait_s`` at most for the other
devices; one that it waited for in vain, or whose connection broke, it does not wait for until it speaks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch

from taut.core.messages import SUPERVISOR
from taut.errors import MalformedMessage
from taut.tiers.exits import entropy
from taut.tiers.messages import MOST_SAMPLES, Answers, Features, check_answers, packed, unpacked
from taut.tiers.model import Tiers
from taut.transport.framing import decode, encode, nbytes
from taut.transport.transport import ServerSocket, Transport

MOST_WAITING = 256  # batches of which an edge waits for other devices
Upper = Literal["edge", "cloud"]


class Answer(NamedTuple):
    """The class of a sample, the tier that found it, and how unsure it is: the entropy."""

    sample: int
    label: int
    tier: str
    unsure: float


@dataclass
class Uplink:
    """The way to the tier above. ``timeout_s``: for an answer; after a silence it is not asked for ``rest_s``. ``sent``:
    bytes so far, with headers."""

    transport: Transport
    timeout_s: float = 2.0
    rest_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    sent: int = 0
    _rests_until_s: float = float("-inf")

    def ask(self, message: Features) -> dict[int, Answer]:
        """Return the answers for the message's samples; none if the tier above is gone, or says what makes no sense."""
        now = self.clock()
        if now < self._rests_until_s or not self._say(message):
            return {}
        while message.samples:
            left = now + self.timeout_s - self.clock()
            if left <= 0 or self.transport.supervisor.status in ("refused", "expired"):
                self._rests_until_s = self.clock() + self.rest_s
                return {}
            for _, frames in self.transport.receive(min(left, 0.1)):
                found = self._understood(frames, message)
                if found:
                    return found
        return {}

    def _say(self, message: Features) -> bool:
        frames = encode(message)
        said = self.transport.send(SUPERVISOR, frames)
        self.sent += nbytes(frames) if said else 0
        return said

    def _understood(self, frames: list[bytes], message: Features) -> dict[int, Answer]:
        """Return the answers in ``frames``; none if they are late ones, of another batch, or no answers at all."""
        try:
            answers, _ = decode(frames, Answers)
            assert isinstance(answers, Answers)
            if answers.batch != message.batch:
                return {}
            check_answers(answers, message.samples)
        except MalformedMessage:
            return {}
        rows = zip(answers.samples, answers.classes, answers.tiers, answers.entropies, strict=True)
        return {row[0]: Answer(*row) for row in rows}


@dataclass
class DeviceTier:
    """Device number ``device``, sure up to the entropy ``sure``. ``up``: the way to the edge, if there is one."""

    model: Tiers
    device: int
    sure: float
    up: Uplink | None = None
    batch: int = 0

    @torch.no_grad()
    def answer(self, views: torch.Tensor, first: int = 0) -> list[Answer]:
        """Answer samples ``first``, ``first`` + 1 and so on, of which these are the device's views: a batch."""
        features = self.model.devices[self.device](views)
        logits = self.model.device_exits[self.device](features)
        unsure, labels = entropy(logits), logits.argmax(1)
        found = [
            Answer(first + at, label, "device", value)
            for at, (label, value) in enumerate(zip(labels.tolist(), unsure.tolist(), strict=True))
        ]
        if self.up is not None:
            rows = (unsure > self.sure).nonzero().flatten().tolist()
            message = packed(self.batch, self.device, [first + row for row in rows], features[rows])
            better = self.up.ask(message)
            found = [better.get(one.sample, one) for one in found]
        self.batch += 1
        return found


@dataclass
class _Waiting:
    """A batch at the edge: what has come of each device, and from which connection."""

    since_s: float
    parts: dict[int, tuple[bytes, Features, torch.Tensor]] = field(default_factory=dict)


@dataclass
class UpperTier:
    """An edge or a cloud, at the end of ``socket``. ``sure``, ``up`` and ``wait_s``: of an edge. ``answered``: samples
    by the tier that found the class; ``refused``: messages that made no sense."""

    socket: ServerSocket
    model: Tiers
    tier: Upper
    sure: float = 0.5
    up: Uplink | None = None
    wait_s: float = 0.2
    clock: Callable[[], float] = time.monotonic
    answered: dict[str, int] = field(default_factory=lambda: {"edge": 0, "cloud": 0})
    refused: int = 0
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _devices: dict[bytes, int] = field(default_factory=dict)  # connections that have spoken
    _absent: set[int] = field(default_factory=set)  # devices that are not waited for

    def work(self, timeout_s: float) -> None:
        """Take what comes, and answer what is due."""
        arrived = self.socket.receive(min(timeout_s, self.wait_s / 4) if self._waiting else timeout_s)
        for connection, frames in arrived:
            try:
                message, _ = decode(frames, Features)
                assert isinstance(message, Features)
                features = unpacked(message)
                if self.tier == "edge" and message.device >= len(self.model.devices):
                    raise MalformedMessage(f"device {message.device} of {len(self.model.devices)}")
            except MalformedMessage:
                self.refused += 1
                continue
            self._take(connection, message, features)
        for connection in self.socket.take_closed():
            device = self._devices.pop(connection, None)
            if device is not None and device not in self._devices.values():
                self._absent.add(device)
        self._answer_due()

    def _take(self, connection: bytes, message: Features, features: torch.Tensor) -> None:
        if self.tier == "cloud":
            self._finish(message.batch, {0: (connection, message, features)})
            return
        self._devices[connection] = message.device
        self._absent.discard(message.device)
        while len(self._waiting) >= MOST_WAITING and message.batch not in self._waiting:
            first = next(iter(self._waiting))
            self._finish(first, self._waiting.pop(first).parts)
        waiting = self._waiting.setdefault(message.batch, _Waiting(self.clock()))
        waiting.parts.setdefault(message.device, (connection, message, features))

    def _answer_due(self) -> None:
        now = self.clock()
        for batch, waiting in list(self._waiting.items()):
            missing = set(range(len(self.model.devices))) - self._absent - waiting.parts.keys()
            late = now - waiting.since_s >= self.wait_s
            if late:
                self._absent |= missing
            if late or not missing:
                self._finish(batch, self._waiting.pop(batch).parts)

    def _finish(self, batch: int, parts: dict[int, tuple[bytes, Features, torch.Tensor]]) -> None:
        """Answer a batch to each connection that asked."""
        try:
            found = self._found(batch, parts)
        except (RuntimeError, ValueError, IndexError):  # features of shapes that the model does not take
            self.refused += len(parts)
            return
        for connection, message, _ in parts.values():
            rows = [found[sample] for sample in message.samples]
            if rows:
                samples, labels, tiers, unsure = (list(column) for column in zip(*rows, strict=True))
                self.socket.send(connection, encode(Answers(batch, samples, labels, tiers, unsure)))

    @torch.no_grad()
    def _found(self, batch: int, parts: dict[int, tuple[bytes, Features, torch.Tensor]]) -> dict[int, Answer]:
        samples = sorted({sample for _, message, _ in parts.values() for sample in message.samples})[:MOST_SAMPLES]
        if not samples:
            return {}
        if self.tier == "cloud":
            ((_, message, features),) = parts.values()
            return self._counted(message.samples, self.model.cloud_exit(self.model.cloud(features)))
        fused = self.model.edge(self._fused(samples, parts))
        logits = self.model.edge_exit(fused)
        found = self._counted(samples, logits)
        rows = [row for row, sample in enumerate(samples) if found[sample].unsure > self.sure]
        if rows and self.up is not None:
            better = self.up.ask(packed(batch, 0, [samples[row] for row in rows], fused[rows]))
            self.answered["cloud"] += len(better)
            self.answered["edge"] -= len(better)
            found |= better
        return found

    def _fused(self, samples: list[int], parts: dict[int, tuple[bytes, Features, torch.Tensor]]) -> torch.Tensor:
        """Return the fused features of these samples, each of the devices that sent it."""
        place = {sample: row for row, sample in enumerate(samples)}
        shape = next(features.shape[1:] for _, message, features in parts.values() if message.samples)
        stacked = [torch.zeros(len(samples), *shape) for _ in self.model.devices]
        present = torch.zeros(len(samples), len(stacked), dtype=torch.bool)
        for device, (_, message, features) in parts.items():
            rows = [place[sample] for sample in message.samples]
            if rows:
                stacked[device][rows] = features
                present[rows, device] = True
        return self.model.fuse(stacked, present)

    def _counted(self, samples: list[int], logits: torch.Tensor) -> dict[int, Answer]:
        self.answered[self.tier] += len(samples)
        unsure, labels = entropy(logits).clamp(0.0, 1.0).tolist(), logits.argmax(1).tolist()
        rows = zip(samples, labels, unsure, strict=True)
        return {sample: Answer(sample, label, self.tier, value) for sample, label, value in rows}
