"""How far a run is: in the passes over leased data, in those over the workers' own, or in rounds of clients. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from taut.core.messages import Statistics
    from taut.supervisor.data.leases import Leases


class Progress(Struct, frozen=True):
    """``epoch``: the earliest that is not complete, with the samples that are ``done`` of its ``total`` (0: unknown).
    ``epochs``: how many the scripts ask for, 0 while unknown; then ``trained`` and ``left`` are the samples of all.
    ``unit``: what is counted, epochs or rounds of clients; of rounds, done and left count rounds, and not samples."""

    epoch: int = 0
    done: int = 0
    total: int = 0
    epochs: int = 0
    trained: int = 0
    left: int = 0
    unit: str = "epoch"


def progress(leases: Leases, epochs: int, made: Sequence[Statistics]) -> Progress:
    """Return the progress of the run. ``epochs``: that are asked for of leased data; ``made``: by the workers that take
    part, whose own data counts where they have any."""
    own = [one for one in made if one.own_length]
    rounds = [one for one in made if one.own_wanted and not one.own_length]
    if rounds:
        return rounds_of_clients(rounds)
    if own:
        return passes_over_own(own)
    epoch, done, total = leases.progress()
    left = leases.samples_left(epochs) if epochs else 0
    return Progress(epoch, done, total, epochs, leases.samples_trained, left)


def passes_over_own(made: Sequence[Statistics]) -> Progress:
    """Return the progress of workers with data of their own. The slowest one says which epoch it is.

    >>> from taut.core.messages import Statistics
    >>> large = Statistics(samples=150, own_length=100, own_passes=1, own_wanted=2)
    >>> small = Statistics(samples=20, own_length=10, own_passes=2, own_wanted=2)
    >>> of_all = passes_over_own([large, small])
    >>> of_all.epoch, of_all.epochs, of_all.done, of_all.total, of_all.trained, of_all.left
    (1, 2, 60, 110, 170, 50)
    """
    epoch = min(one.own_passes for one in made)
    epochs = max(one.own_wanted for one in made) if all(one.own_wanted for one in made) else 0
    done = sum(min(one.own_length, max(0, one.samples - epoch * one.own_length)) for one in made)
    left = sum(max(0, one.own_length * one.own_wanted - one.samples) for one in made)
    total, trained = sum(one.own_length for one in made), sum(one.samples for one in made)
    return Progress(min(epoch, max(0, epochs - 1)) if epochs else epoch, done, total, epochs, trained, left)


def rounds_of_clients(made: Sequence[Statistics]) -> Progress:
    """Return the progress of workers that train clients, in rounds.

    >>> from taut.core.messages import Statistics
    >>> rounds_of_clients([Statistics(own_passes=3, own_wanted=10)] * 2).unit
    'round'
    """
    over, wanted = min(one.own_passes for one in made), max(one.own_wanted for one in made)
    left = max(0, wanted - over)
    return Progress(min(over, wanted - 1), over, wanted, wanted, over, left, "round")
