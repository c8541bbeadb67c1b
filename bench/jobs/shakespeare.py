"""A character transformer on tiny Shakespeare with AdamW (the algorithm sheet's), as a worker of a run, or plain.

Synchronous training over p workers is one process with p times the batch (the third law), so that is what ``--plain``
with a larger ``--batch`` gives to compare with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

CONTEXT = 64
CHARACTERS, HELD_OUT = 600_000, 60_000


class Text:
    """The corpus as numbers, and windows of it."""

    def __init__(self, path: Path) -> None:
        text = path.read_text()
        self.alphabet = sorted(set(text))
        number = {character: i for i, character in enumerate(self.alphabet)}
        ids = torch.tensor([number[character] for character in text[:CHARACTERS]])
        self.train, self.validation = ids[:-HELD_OUT], ids[-HELD_OUT:]

    def starts(self, count: int, seed: int) -> torch.Tensor:
        """Where the windows of training begin: the samples that are dealt out."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(len(self.train) - CONTEXT - 1, (count,), generator=generator)

    def windows(self, ids: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        indices = starts[:, None] + torch.arange(CONTEXT)
        return ids[indices], ids[indices + 1]


class Transformer(nn.Module):
    def __init__(self, alphabet: int, width: int = 96, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(alphabet, width)
        self.position = nn.Parameter(torch.randn(CONTEXT, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.blocks(self.embedding(x) + self.position, mask=self.mask, is_causal=True)
        logits: torch.Tensor = self.head(self.norm(hidden))
        return logits


def network(text: Text, seed: int) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(len(text.alphabet))


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def validation_loss(model: nn.Module, text: Text) -> float:
    generator = torch.Generator().manual_seed(9)
    starts = torch.randint(HELD_OUT - CONTEXT - 1, (256,), generator=generator)
    with torch.no_grad():
        return loss_of(model, *text.windows(text.validation, starts)).item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="input.txt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=400 * 64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="without taut")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--peers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    text = Text(args.data)
    model = network(text, args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    starts = text.starts(args.samples, args.seed)
    if args.plain:
        rank = args.rank
        for part in starts.split(args.batch):
            loss_of(model, *text.windows(text.train, part)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        torch.save(model.state_dict(), args.out / "model.pt")
    else:
        import taut

        with taut.join(model, optimizer) as worker:
            for part in worker.batches(starts, batch_size=args.batch, epochs=1):
                worker.step(loss_of(model, *text.windows(text.train, part)))
            rank = worker.rank
    (args.out / f"{rank}.json").write_text(json.dumps({}))


if __name__ == "__main__":
    main()
