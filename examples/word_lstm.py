"""Train a word language model whose weights are updated by hand and whose hidden state is carried from batch to batch.

python examples/word_lstm.py                                     # alone
taut run -n 2 --strategy sync examples/word_lstm.py              # each worker reads stretches of the text
taut run -n 2 --validate-every 2s --stop-early 3 examples/word_lstm.py --epochs 40
"""

import argparse
import math
import random

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--words", type=int, default=40_000)
parser.add_argument("--lr", type=float, default=4.0)
options = parser.parse_args()
STEPS, SIDE_BY_SIDE, CLIP = 20, 16, 0.25  # words in a batch of each sequence, sequences, the gradient's norm

# A made-up text. Who acts is in all sentences of a paragraph: only a model with a memory knows it from the last sentence.
NAMES, VERBS, THINGS = ("ada", "bob", "eve"), ("sees", "takes", "likes"), ("the cat", "a tree", "the sea", "some tea")
draw, text = random.Random(0), list[str]()
while len(text) < options.words:
    name = draw.choice(NAMES)
    for _ in range(draw.randint(3, 6)):
        text += f"{name} {draw.choice(VERBS)} {draw.choice(THINGS)} .".split()
vocabulary = sorted(set(text))
tokens = torch.tensor([vocabulary.index(word) for word in text])
rows = len(tokens) // SIDE_BY_SIDE
tokens = tokens[: rows * SIDE_BY_SIDE].view(SIDE_BY_SIDE, rows).t().contiguous()  # time, sequences side by side
training, held_out = tokens[: rows * 9 // 10], tokens[rows * 9 // 10 :]


class WordModel(nn.Module):
    """Guess the next word from the words so far."""

    def __init__(self, words: int, width: int = 64) -> None:
        super().__init__()
        self.encoder, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width)
        self.decoder = nn.Linear(width, words)

    def forward(self, inputs, hidden=None):
        output, hidden = self.lstm(self.encoder(inputs), hidden)
        return self.decoder(output).flatten(0, 1), hidden


def descend() -> None:
    """Update the weights by hand: there is no optimizer of torch's."""
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-options.lr)


def perplexity(model: nn.Module) -> float:
    """Return the perplexity of the held-out text."""
    guesses, _ = model(held_out[:-1])
    return math.exp(float(cross_entropy(guesses, held_out[1:].flatten())))


torch.manual_seed(0)
model = WordModel(len(vocabulary))
with taut.join(model, descend, validate=perplexity, better="lower") as worker:
    hidden = None
    batches = worker.batches((training[:-1], training[1:]), STEPS, epochs=options.epochs, order="sequential")
    for inputs, targets in batches:
        # The state is carried over, without its gradients, where this batch goes on from the one before it.
        hidden = tuple(state.detach() for state in hidden) if hidden and batches.follows else None
        guesses, hidden = model(inputs, hidden)
        worker.step(cross_entropy(guesses, targets.flatten()), clip_norm=CLIP)

print(f"perplexity {worker.score:.2f} of {len(vocabulary)} words after {worker.steps} steps")
