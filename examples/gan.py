"""Train two models against each other, with an optimizer each: a generator of points on a ring, and its critic.

python examples/gan.py                                 # alone
taut run -n 2 --strategy sync examples/gan.py          # one exchange for each step of an optimizer
taut run -n 2 --strategy averaging examples/gan.py     # one after both
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import softplus

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--samples", type=int, default=4096)
options = parser.parse_args()
NOISE, BATCH = 8, 128

draw = torch.Generator().manual_seed(0)
angle = 2 * torch.pi * torch.rand(options.samples, generator=draw)
real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(options.samples, 2, generator=draw)


def layers(inputs: int, outputs: int) -> nn.Module:
    """Return a small network."""
    return nn.Sequential(
        nn.Linear(inputs, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, outputs)
    )


def off_the_ring(models: nn.Module) -> float:
    """Return how far generated points are from the ring, on average, plus how far their center is from its center."""
    points = models["generator"](torch.randn(1024, NOISE, generator=torch.Generator().manual_seed(1)))
    return float((points.norm(dim=1) - 1).abs().mean() + points.mean(0).norm())


torch.manual_seed(0)
generator, critic = layers(NOISE, 2), layers(2, 1)
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.99))
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.99))
models = {"generator": generator, "critic": critic}  # their names in the saved model
optimizers = [generator_optimizer, critic_optimizer]

with taut.join(models, optimizers, validate=off_the_ring, better="lower") as worker:
    torch.manual_seed(1 + worker.rank)  # each worker has noise of its own
    for points in worker.batches(real, batch_size=BATCH, epochs=options.epochs):
        made = generator(torch.randn(len(points), NOISE))
        critic_optimizer.zero_grad()
        critic_loss = (softplus(-critic(points)) + softplus(critic(made.detach()))).mean()
        critic_loss.backward()
        critic_optimizer.step()

        generator_optimizer.zero_grad()
        generator_loss = softplus(-critic(made)).mean()
        generator_loss.backward()
        generator_optimizer.step()

        worker.log(critic_loss=float(critic_loss.detach()))
        worker.exchange(generator_loss)

print(f"{worker.score:.3f} off the ring after {worker.steps} steps")
