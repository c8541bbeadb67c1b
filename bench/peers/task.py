"""What every peer of the race trains, and what each of its processes writes down: one file, so that all train the same.

A process appends lines to ``OUT/RANK.log``: the time (the system's monotonic clock, which all processes of a machine
share), its samples and its steps so far. Rank 0 also writes its weights now and then, as ``OUT/TIME.weights``; the race
evaluates them, so that no peer spends time on that. Imports nothing but torch and NumPy: a peer has an environment of
its own.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

CONTEXT, WIDTH, LAYERS, HEADS = 64, 256, 4, 4
HELD_OUT = 60_000  # characters at the end of the text
LOG_EVERY_S, WEIGHTS_EVERY_S, WEIGHTS_SHARE = 0.1, 0.5, 0.03
Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Task:
    """``target``: percent of the test images, or, of text, the validation loss, which is to be no greater."""

    batch: int
    target: float
    learning_rate: float
    text: bool = False


TASKS = {
    "mlp": Task(batch=64, target=97.0, learning_rate=0.1),
    "cnn": Task(batch=64, target=98.0, learning_rate=0.05),
    "text": Task(batch=8, target=2.2, learning_rate=1e-3, text=True),
}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(seen)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


class Characters(nn.Module):
    """A transformer that tells each next character."""

    def __init__(self, alphabet: int) -> None:
        super().__init__()
        self.characters, self.positions = nn.Embedding(alphabet, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, alphabet)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.characters(x) + self.positions.weight[: x.shape[1]])
        return self.head(self.norm(hidden)).transpose(1, 2)  # as cross_entropy wants classes


def network(name: str, alphabet: int = 65) -> nn.Module:
    torch.manual_seed(0)
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    if name == "cnn":
        parts: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28))]
        for inputs, outputs in ((1, 32), (32, 64)):
            parts += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        return nn.Sequential(*parts, nn.Flatten(), nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))
    return Characters(alphabet)


def optimizer_of(
    name: str, parameters: Iterator[nn.Parameter] | list[nn.Parameter], scale: float = 1.0
) -> torch.optim.Optimizer:
    rate = TASKS[name].learning_rate * scale
    if TASKS[name].text:
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=0.0)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9)


class Data:
    """Images and labels, or the text as numbers, of which windows are the samples."""

    def __init__(self, name: str, folder: Path, *, held_out: bool = False) -> None:
        self.text = TASKS[name].text
        if not self.text:
            self.x, self.y = _images(folder / "mnist", "t10k" if held_out else "train")
            return
        text = (folder / "tinyshakespeare" / "input.txt").read_text()
        number = {character: i for i, character in enumerate(sorted(set(text)))}
        ids = torch.tensor([number[character] for character in text])
        self.ids = ids[-HELD_OUT:] if held_out else ids[:-HELD_OUT]
        self.x = torch.arange(0, len(self.ids) - CONTEXT - 1, CONTEXT // 4)  # where windows begin

    def __len__(self) -> int:
        return len(self.x)

    def batch(self, indices: torch.Tensor) -> Batch:
        if not self.text:
            return self.x[indices], self.y[indices]
        at = self.x[indices, None] + torch.arange(CONTEXT)
        return self.ids[at], self.ids[at + 1]


def _images(folder: Path, part: str) -> Batch:
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


def parser(about: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--model", choices=TASKS, default="mlp")
    made.add_argument("--data", type=Path, required=True, help="a folder with mnist/ and tinyshakespeare/")
    made.add_argument("--out", type=Path, required=True)
    made.add_argument("--rank", type=int, required=True)
    made.add_argument("--world", type=int, default=4)
    made.add_argument("--head", default="10.77.0.1", help="the address of host 1")
    made.add_argument("--address", default="10.77.0.1", help="this host's address")
    made.add_argument("--slowness", type=float, default=1.0, help="how many times slower this process is")
    return made


class Participant:
    """One process of a race: its share of the data, its model and its log. ``loss`` idles after the forward pass, if this
    process is slow, for as long as so much slower a machine would take longer for a whole step."""

    def __init__(self, args: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        self.args, self.task = args, TASKS[args.model]
        self.data = Data(args.model, args.data)
        self.model = network(args.model)
        self.samples = self.steps = 0
        self._log = (args.out / f"{args.rank}.log").open("w")
        self._logged_s = self._begun_s = self._weights_s = 0.0
        self._begun_cpu_s = self._step_cpu_s = 0.0
        self._slower = args.slowness - 1.0

    def optimizer(self, scale: float = 1.0) -> torch.optim.Optimizer:
        return optimizer_of(self.args.model, self.model.parameters(), scale)

    def batches(self) -> Iterator[Batch]:
        """Without end: its own share of the samples, in another order each time."""
        generator = torch.Generator().manual_seed(self.args.rank)
        mine = torch.arange(self.args.rank, len(self.data), self.args.world)
        while True:
            order = mine[torch.randperm(len(mine), generator=generator)]
            for indices in order.split(self.task.batch)[:-1]:
                yield self.data.batch(indices)

    def loss(self, batch: Batch, model: nn.Module | None = None) -> torch.Tensor:
        x, y = batch
        begun_s, self._begun_cpu_s = time.monotonic(), time.thread_time()
        loss = F.cross_entropy((model or self.model)(x), y)
        if self._slower and self._step_cpu_s:
            spread = (time.monotonic() - begun_s) / (time.thread_time() - self._begun_cpu_s)  # of wall time over CPU time
            time.sleep(self._slower * self._step_cpu_s * spread)
        return loss

    def stepped(self, model: nn.Module | None = None) -> None:
        """Count the step that ends now, and write down what is due."""
        taken_s, now_s = time.thread_time() - self._begun_cpu_s, time.monotonic()
        self._step_cpu_s = 0.9 * self._step_cpu_s + 0.1 * taken_s if self._step_cpu_s else taken_s
        self.samples, self.steps = self.samples + self.task.batch, self.steps + 1
        self._begun_s = self._begun_s or now_s
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._log.write(f"{now_s:.4f} {self.samples} {self.steps}\n")
            self._log.flush()
            self._logged_s = now_s
        if self.args.rank == 0 and now_s >= self._weights_s:
            self.write_weights(model or self.model)

    def write_weights(self, model: nn.Module) -> None:
        now_s = time.monotonic()
        flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).numpy()
        part = self.args.out / "weights.part"
        flat.tofile(part)
        part.rename(self.args.out / f"{now_s:.4f}.weights")
        self._weights_s = now_s + max(WEIGHTS_EVERY_S, WEIGHTS_SHARE * (now_s - self._begun_s))


class Judge:
    """Evaluates weights that rank 0 has written."""

    def __init__(self, name: str, folder: Path) -> None:
        self.task, self.model = TASKS[name], network(name)
        data = Data(name, folder, held_out=True)
        self.whole = [data.batch(part) for part in torch.arange(len(data))[:: 8 if data.text else 1].split(500)]

    def score(self, path: Path, parts: int | None = None) -> float:
        """Of all held-out data, or of its first ``parts``."""
        flat = torch.from_numpy(np.fromfile(path, np.float32))
        nn.utils.vector_to_parameters(flat, self.model.parameters())
        total, right, loss = 0, 0.0, 0.0
        with torch.no_grad():
            for x, y in self.whole[:parts]:
                told = self.model(x)
                total += len(x)
                right += (told.argmax(1) == y).float().mean().item() * len(x)
                loss += F.cross_entropy(told, y).item() * len(x)
        return loss / total if self.task.text else 100.0 * right / total

    def reached(self, score: float, margin: float = 0.0) -> bool:
        """Whether that is the target, or better than it by ``margin`` (in points, or in hundredths of a nat)."""
        return score <= self.task.target - margin / 100 if self.task.text else score >= self.task.target + margin
