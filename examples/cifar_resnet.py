"""A residual network with batch norm on CIFAR-10: statistics of batch norm are recomputed for the model that is saved.

    taut data get cifar10                                                                  # once; into data/cifar10
    taut run --workers 4 --strategy sync examples/cifar_resnet.py --data data/cifar10
    taut run --workers 4 --strategy averaging:every=8 --scale-lr sqrt examples/cifar_resnet.py --data data/cifar10

Without --data it trains on patches of colored stripes. The loop before taut, and with it:

    -for epoch in range(epochs):
    -    for images, labels in DataLoader(TensorDataset(x, y), batch_size=128, shuffle=True):
    -        optimizer.zero_grad()
    -        functional.cross_entropy(model(augmented(images)), labels).backward()
    -        optimizer.step()
    -        scheduler.step()
    +with taut.join(model, optimizer, validate=accuracy, recalibrate=batches_of_x) as worker:
    +    scheduler = LambdaLR(optimizer, half_a_cosine over worker.total_steps((x, y), 128, epochs=epochs))
    +    for images, labels in worker.batches((x, y), batch_size=128, epochs=epochs):
    +        worker.step(functional.cross_entropy(model(augmented(images)), labels))
    +        scheduler.step()

Each worker's batch norm sees that worker's batches only, so the averages that the workers end with belong to none of the
final models. `recalibrate` gives training batches, with which they are computed anew at the end.
"""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--data", help="folder with cifar-10-binary.tar.gz")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--width", type=int, default=16, help="channels of the first block; 16 is ResNet-20's")
parser.add_argument(
    "--blocks", type=int, default=3, help="blocks of each of three widths: 3 makes ResNet-20, 9 ResNet-56"
)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--samples", type=int, default=2000, help="how many patches to draw, without --data")
options = parser.parse_args()


def drawn_stripes(samples, seed):
    """Draw stripes of five directions and two widths, in random colors: ten classes."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (samples,), generator=random)
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    angle = (math.pi / 5 * (labels % 5))[:, None, None]
    per_pixel = (0.6 + 0.7 * (labels // 5))[:, None, None]
    phase = 2 * math.pi * torch.rand(samples, 1, 1, generator=random)
    waves = torch.sin(per_pixel * (rows * torch.cos(angle) + columns * torch.sin(angle)) + phase)
    colors = torch.randn(samples, 3, 1, 1, generator=random)
    return colors * waves[:, None] + 0.5 * torch.randn(samples, 3, 32, 32, generator=random), labels


class Block(nn.Module):
    """Two convolutions and the way around them (He et al. 2016); a narrower input is padded with zeros."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
        self.stride, self.padding = stride, width - inputs

    def forward(self, x):
        out = self.norms[1](self.second(functional.relu(self.norms[0](self.first(x)))))
        around = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.padding))
        return functional.relu(out + around)


def resnet(width, blocks):
    """Return a network of 6 * blocks + 2 layers."""
    widths = [width] * blocks + [2 * width] * blocks + [4 * width] * blocks
    inputs = [width, *widths[:-1]]
    layers = [Block(before, after, after // before) for before, after in zip(inputs, widths, strict=True)]
    head = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*head, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))


def augmented(images):
    """Mirror half of the images, and shift all of the batch by up to four pixels."""
    mirrored = torch.where(torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5, images.flip(3), images)
    down, right = torch.randint(0, 9, (2,)).tolist()
    return functional.pad(mirrored, (4, 4, 4, 4))[:, :, down : down + 32, right : right + 32]


def normalized(images, labels):
    means, deviations = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
    scaled = torch.from_numpy(images) / 255
    return (scaled - means[:, None, None]) / deviations[:, None, None], torch.from_numpy(labels).long()


if options.data:
    (x, y), (x_test, y_test) = (normalized(*part) for part in taut.data.load(options.data))
else:
    (x, y), (x_test, y_test) = drawn_stripes(options.samples, seed=1), drawn_stripes(400, seed=2)
device = taut.device()
x_test = x_test.to(device)

torch.manual_seed(0)
model = resnet(options.width, options.blocks).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)


def accuracy(model):
    """Return the share of test images that are right."""
    right = [model(part).argmax(dim=1).cpu() for part in x_test.split(500)]
    return float((torch.cat(right) == y_test).float().mean())


def batches_of_x():
    """Give training batches, for the statistics of batch norm."""
    return (part.to(device) for part in x[:2000].split(200))


with taut.join(model, optimizer, validate=accuracy, recalibrate=batches_of_x) as worker:
    steps = worker.total_steps((x, y), options.batch, epochs=options.epochs)  # this worker's share
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 + 0.5 * math.cos(math.pi * min(1.0, step / steps))
    )
    for images, labels in worker.batches((x, y), batch_size=options.batch, epochs=options.epochs):
        worker.step(functional.cross_entropy(model(augmented(images.to(device))), labels.to(device)))
        scheduler.step()

worker.print(f"{100 * worker.score:.1f}% of the test images right, {worker.samples} samples trained by this worker")
