"""Spoken digits (FSDD), written out in letters: recurrent networks with CTC."""

from __future__ import annotations

import io
import tarfile
import wave
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from task import DATA, Batch, Task, indices
from torch import nn

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = sorted(set("".join(WORDS)))
WINDOW, HOP, BANDS, FRAMES, LONGEST = 256, 160, 32, 40, 5


@lru_cache
def recordings() -> tuple[Batch, Batch]:
    """Return (spectra, frames, letters, number of letters) for training, and of the takes 0 to 4 to test with."""
    found: tuple[list[Any], list[Any]] = ([], [])
    with tarfile.open(DATA / "fsdd" / "recordings.tar.gz") as archive:
        for member in archive:  # in the archive's order: going back would decompress all of it again
            file = archive.extractfile(member)
            if file is None or not member.name.endswith(".wav"):
                continue
            digit, _, take = member.name.rsplit("/", 1)[-1][:-4].split("_")
            with wave.open(io.BytesIO(file.read())) as sound:
                x = np.frombuffer(sound.readframes(sound.getnframes()), np.int16).astype(np.float32) / 32768.0
            found[int(take) < 5].append((_spectrum(x), [LETTERS.index(letter) + 1 for letter in WORDS[int(digit)]]))
    return _batch(found[0]), _batch(found[1])


def _spectrum(x: Any) -> Any:
    starts = range(0, min(max(1, len(x) - WINDOW), HOP * FRAMES), HOP)
    cut = np.stack([np.pad(x[at : at + WINDOW], (0, max(0, WINDOW - len(x) + at))) for at in starts]) * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(cut, axis=1)[:, :128]).reshape(len(cut), BANDS, 4).mean(2)
    return np.log(power + 1e-3) / 2.0 + 1.5


def _batch(found: list[Any]) -> Batch:
    x = torch.zeros(len(found), FRAMES, BANDS)
    letters = torch.zeros(len(found), LONGEST, dtype=torch.long)
    for i, (spectrum, word) in enumerate(found):
        x[i, : len(spectrum)] = torch.from_numpy(spectrum)
        letters[i, : len(word)] = torch.tensor(word)
    frames = torch.tensor([len(spectrum) for spectrum, _ in found])
    return x, frames, letters, torch.tensor([len(word) for _, word in found])


def draw(generator: torch.Generator, size: int = 16) -> Batch:
    train = recordings()[0]
    at = indices(len(train[0]), size, generator)
    return tuple(part[at] for part in train)


class Listener(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], layers: int, width: int) -> None:
        super().__init__()
        self.cells, self.head = kind(BANDS, width, layers, batch_first=True), nn.Linear(width, len(LETTERS) + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.log_softmax(self.head(self.cells(x)[0]), 2)


def listener(kind: type[nn.RNNBase], layers: int, width: int, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Listener(kind, layers, width)


def hear(model: nn.Module, batch: Batch) -> torch.Tensor:
    x, frames, letters, lengths = batch
    return F.ctc_loss(model(x).transpose(0, 1), letters, frames, lengths, zero_infinity=True)


def held_out(model: nn.Module) -> float:
    return float(hear(model, recordings()[1]))


def adam(parameters: Any, rate: float) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=rate)


TASKS = {
    "spoken digits, 4 layers of RNN, Adam": Task(
        partial(listener, nn.RNN, 4, 64), partial(adam, rate=3e-3), draw, hear, held_out, 300, clip=1.0
    ),
    "spoken digits, GRU, Adam": Task(
        partial(listener, nn.GRU, 2, 48), partial(adam, rate=3e-3), draw, hear, held_out, 300, clip=5.0
    ),
}
