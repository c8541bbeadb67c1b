"""Train a small character transformer in two stages: each process of an island has half of the layers.

taut run --workers 4 --island 2 examples/pipelined_transformer.py # two islands of two processes each
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()

text = "the quick brown fox jumps over the lazy dog. " * 60
letters = sorted(set(text))
numbers = torch.tensor([letters.index(letter) for letter in text])
LENGTH, WIDTH = 24, 32
starts = torch.arange(0, len(numbers) - LENGTH - 1, 5)
x = torch.stack([numbers[start : start + LENGTH] for start in starts.tolist()])
y = torch.stack([numbers[start + 1 : start + LENGTH + 1] for start in starts.tolist()])


class Embedding(nn.Module):
    """Letters and their positions, as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(len(letters), WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.letters(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))


class Block(nn.Module):
    """One layer, which sees no later letters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.layer(hidden, src_mask=self.mask)


def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the loss over all letters."""
    return cross_entropy(output.flatten(0, 1), target.flatten())


taut.parallel.island()
torch.manual_seed(0)
layers = nn.Sequential(Embedding(), *(Block() for _ in range(4)), nn.Linear(WIDTH, len(letters)))
model = taut.parallel.pipeline(layers, microbatches=4)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=32, epochs=options.epochs, drop_last=True):
        optimizer.zero_grad()
        loss = model.loss(inputs, targets, loss_of)  # forward and backward, micro-batch by micro-batch
        optimizer.step()
        worker.exchange(loss)

print(f"loss {loss_of(model(x[:64]), y[:64]):.3f} after {worker.steps} steps")
