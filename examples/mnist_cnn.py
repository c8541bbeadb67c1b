"""A convolutional network on MNIST: three lines of the usual loop change.

    taut data get mnist                                                             # once; into data/mnist
    python examples/mnist_cnn.py --data data/mnist                                  # one worker
    taut run --workers 4 examples/mnist_cnn.py --data data/mnist                    # four, each at its own pace
    taut run --workers 4 --strategy sync examples/mnist_cnn.py --data data/mnist    # in lock-step, as DDP

Without --data it trains on digits that it draws itself. The loop before taut, and with it:

    -for epoch in range(epochs):
    -    for images, labels in DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True):
    -        optimizer.zero_grad()
    -        functional.cross_entropy(model(images), labels).backward()
    -        optimizer.step()
    +with taut.join(model, optimizer, validate=accuracy) as worker:
    +    for images, labels in worker.batches((x, y), batch_size=64, epochs=epochs):
    +        worker.step(functional.cross_entropy(model(images), labels))
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with the files of MNIST, or of a data set in its form")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--samples", type=int, default=4000, help="how many digits to draw, without --data")
options = parser.parse_args()

SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
BARS = {"a": (0, 0, 1, 9), "b": (0, 8, 9, 9), "c": (8, 8, 17, 9), "d": (16, 0, 17, 9), "e": (8, 0, 17, 1)}
BARS |= {"f": (0, 0, 9, 1), "g": (8, 0, 9, 9)}


def drawn_digits(samples, seed):
    """Draw digits of seven segments, at places of their own, in noise."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=random)
    images = 0.3 * torch.rand(samples, 28, 28, generator=random)
    corners = torch.randint(2, 9, (samples, 2), generator=random)
    for image, label, (top, left) in zip(images, labels.tolist(), corners.tolist(), strict=True):
        for segment in SEGMENTS[label]:
            first, start, last, end = BARS[segment]
            image[top + first : top + last + 1, left + start : left + end + 1] += 0.6
    return images, labels


if options.data:
    train, test = taut.data.load(options.data)
    (x, y), (x_test, y_test) = ((torch.from_numpy(a) / 255, torch.from_numpy(b).long()) for a, b in (train, test))
else:
    (x, y), (x_test, y_test) = drawn_digits(options.samples, seed=1), drawn_digits(500, seed=2)
device = taut.device()
x, x_test = x[:, None], x_test[:, None].to(device)

torch.manual_seed(0)
model = nn.Sequential(
    *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def accuracy(model):
    """Return the share of test images that are right."""
    right = [model(part).argmax(dim=1).cpu() for part in x_test.split(1000)]
    return float((torch.cat(right) == y_test).float().mean())


with taut.join(model, optimizer, validate=accuracy) as worker:
    for images, labels in worker.batches((x, y), batch_size=64, epochs=options.epochs):
        worker.step(functional.cross_entropy(model(images.to(device)), labels.to(device)))

worker.print(f"{100 * worker.score:.1f}% of the test images right, {worker.samples} samples trained by this worker")
