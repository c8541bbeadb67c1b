"""Characters of tiny Shakespeare: a transformer as GPT begins it, and an LSTM."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from task import DATA, Batch, Task, indices, warm_up_and_cosine
from torch import nn

CONTEXT, HELD_OUT = 48, 60_000


@lru_cache
def corpus() -> tuple[torch.Tensor, int]:
    """Return the text as numbers, and how many different ones there are."""
    text = (DATA / "tinyshakespeare" / "input.txt").read_text()
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[character] for character in text]), len(alphabet)


def windows(ids: torch.Tensor, starts: torch.Tensor) -> Batch:
    at = starts[:, None] + torch.arange(CONTEXT)
    return ids[at], ids[at + 1]


def draw(generator: torch.Generator, size: int = 8) -> Batch:
    ids = corpus()[0][:-HELD_OUT]
    return windows(ids, indices(len(ids) - CONTEXT - 1, size, generator))


def predict(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def held_out(model: nn.Module) -> float:
    ids = corpus()[0][-HELD_OUT:]
    return float(predict(model, windows(ids, torch.arange(0, HELD_OUT - CONTEXT - 1, 150))))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        out: torch.Tensor = x + self.narrow(F.gelu(self.wide(self.between(x))))
        return out


class Transformer(nn.Module):
    """GPT's: all weights normal with a deviation of 0.02, pre-norm."""

    def __init__(self, letters: int, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, letters, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.norm(self.blocks(self.letters(x) + self.places.weight)))
        return out


class Recurrent(nn.Module):
    def __init__(self, letters: int, width: int = 96) -> None:
        super().__init__()
        self.letters, self.cells = nn.Embedding(letters, 32), nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, letters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.cells(self.letters(x))[0])
        return out


def transformer(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Transformer(corpus()[1])


def recurrent(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return Recurrent(corpus()[1])


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=6e-3, betas=(0.9, 0.99), weight_decay=0.1)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1.5e-2)


TASKS = {
    "transformer, AdamW": Task(transformer, adamw, draw, predict, held_out, 300, warm_up_and_cosine),
    "character LSTM, Adam": Task(recurrent, adam, draw, predict, held_out, 400, clip=1.0),
}
