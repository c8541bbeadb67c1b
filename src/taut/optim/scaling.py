"""The learning rate for a batch of another size than the one it was found with."""

from __future__ import annotations

import math

from taut.errors import Misuse


def linear_scaling(base_lr: float, batch_size: int, reference: int = 256) -> float:
    """Return the rate for SGD with a larger batch, to be reached by a warm-up.

        lr = base_lr * batch_size / reference

    ``base_lr``: what works with batches of ``reference`` samples. ``batch_size``: the samples behind one update, of all
    workers together: workers x batch of each x micro-batches. In a strategy that does not wait (async, gossip), it is
    the batch of one worker: there each batch is an update.

    >>> linear_scaling(0.1, 8 * 256)
    0.8

    Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, arXiv:1706.02677.
    """
    return base_lr * _factor(base_lr, batch_size, reference)


def sqrt_scaling(base_lr: float, batch_size: int, reference: int = 256) -> float:
    """Return the rate for Adam, LAMB and their like with a larger batch: their steps do not grow with the gradient.

        lr = base_lr * sqrt(batch_size / reference)

    The arguments are those of ``linear_scaling``.

    >>> sqrt_scaling(0.001, 4096)
    0.004

    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014, arXiv:1404.5997, and for Adam
    Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022, arXiv:2205.10287.
    """
    return base_lr * math.sqrt(_factor(base_lr, batch_size, reference))


def _factor(base_lr: float, batch_size: int, reference: int) -> float:
    if not 0.0 <= base_lr < math.inf:
        raise Misuse(f"base_lr={base_lr}", "a finite number >= 0")
    for name, samples in (("batch_size", batch_size), ("reference", reference)):
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
            raise Misuse(f"{name}={samples!r}", "a whole number of samples, at least 1")
    return batch_size / reference
