"""A character transformer: it learns to continue a text, letter by letter, and writes a line at the end.

    taut data get tinyshakespeare                                                       # once
    taut run --workers 4 examples/char_transformer.py --data data/tinyshakespeare
    taut run --workers 4 --strategy diloco examples/char_transformer.py --data data/tinyshakespeare

Without --data it learns sentences that a small grammar makes up. The loop before taut, and with it:

    -for chosen in DataLoader(starts, batch_size=32, shuffle=True):
    -    optimizer.zero_grad()
    -    loss(model, train, chosen).backward()
    -    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    -    optimizer.step()
    +with taut.join(model, optimizer, validate=held_out_loss, better="lower") as worker:
    +    for chosen in worker.batches(starts, batch_size=32, epochs=1):
    +        worker.step(loss(model, train, chosen), clip_norm=1.0)
"""

import argparse
import random
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, help="a text file, or a folder with one named input.txt")
parser.add_argument("--steps", type=int, default=400, help="of all workers together")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--layers", type=int, default=2)
parser.add_argument("--length", type=int, default=48, help="letters that the model sees at once")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--lr", type=float, default=3e-3)
options = parser.parse_args()
LENGTH, WIDTH, HEADS = options.length, options.width, 4


def made_up_text(sentences):
    """Make up sentences."""
    draw = random.Random(1)
    animals, deeds = ("the fox", "a dog", "the old owl", "a small mouse"), ("sees", "follows", "likes", "waits for")
    return "".join(f"{draw.choice(animals)} {draw.choice(deeds)} {draw.choice(animals)}. " for _ in range(sentences))


if options.data:
    text = (options.data / "input.txt" if options.data.is_dir() else options.data).read_text(encoding="utf-8")
else:
    text = made_up_text(1000)
letters = sorted(set(text))
device = taut.device()
number = {letter: index for index, letter in enumerate(letters)}
numbers = torch.tensor([number[letter] for letter in text], device=device)
train, held_out = numbers[: len(numbers) * 9 // 10], numbers[len(numbers) * 9 // 10 :]


class Block(nn.Module):
    """Attention to earlier letters, then two dense layers; both are added to what comes in."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = (each.unflatten(2, (HEADS, -1)).transpose(1, 2) for each in self.mix(self.norms[0](x)).chunk(3, dim=2))
        x = x + self.out(scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.dense(self.norms[1](x))


class Transformer(nn.Module):
    """Numbers of letters in, a score for each possible next letter out."""

    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(letters), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(options.layers)), nn.LayerNorm(WIDTH))
        self.next = nn.Linear(WIDTH, len(letters))

    def forward(self, seen):
        return self.next(self.blocks(self.letters(seen) + self.places.weight[: seen.shape[1]]))


def loss(model, source, starts):
    """Return the mean loss per letter on the pieces of ``source`` that begin at ``starts``."""
    pieces = source[starts.to(device)[:, None] + torch.arange(LENGTH + 1, device=device)]
    return cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def held_out_loss(model):
    starts = torch.arange(0, len(held_out) - LENGTH - 1, LENGTH)[:64]
    return float(loss(model, held_out, starts))


torch.manual_seed(0)
model = Transformer().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
starts = torch.randperm(len(train) - LENGTH - 1, generator=torch.Generator().manual_seed(0))
starts = starts.repeat(-(-options.steps * options.batch // len(starts)))[: options.steps * options.batch]

with taut.join(model, optimizer, validate=held_out_loss, better="lower") as worker:
    for chosen in worker.batches(starts, batch_size=options.batch, epochs=1):
        worker.step(loss(model, train, chosen), clip_norm=1.0)

if worker.is_main:
    model.eval()
    written = numbers[:1]
    with torch.no_grad():
        for _ in range(72):
            odds = model(written[None, -LENGTH:])[0, -1].softmax(dim=0)
            written = torch.cat([written, torch.multinomial(odds, 1)])
    print(f"loss {worker.score:.3f} per letter of the text that was held out. It writes:")
    print("".join(letters[each] for each in written.tolist()))
