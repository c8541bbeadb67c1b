"""Privacy of clients under ``fedavg``: updates of bounded length, and Gaussian noise in their sum (DP-FedAvg). Pure.

    x  <-  x + (sum_{k in S} min(1, c / |d_k|) d_k + N(0, z^2 c^2)) / (C K)

d_k: the update of client k, its weights minus the round's first ones; c: ``clip``; z: ``noise``. All clients count alike,
each of the K is drawn with the probability C, and the sum is divided by the number that is expected: so one client more
or less moves it by c at most. Of p workers each adds noise of the variance z^2 c^2 / p. A round's sums say which part of
the noise was in it, and how often each client was, so an accountant knows what a death or a newcomer took away.

Paper: McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.errors import Misuse


@dataclass
class NoiseLedger:
    """The noise in a run's rounds, for the accountant. ``rounds``: the number of rounds by their noise, as a multiple of
    one client's largest change of the sum; ``epsilon``: the privacy loss of all of them, once it was computed.

    >>> ledger = NoiseLedger()
    >>> ledger.note(2.0, share=0.25, times=[1.0, 0.0]); ledger.note(2.0, share=1.0, times=[2.0]); ledger.rounds
    {1.0: 2}
    """

    rounds: dict[float, int] = field(default_factory=dict)
    epsilon: float | None = None

    def note(self, noise: float, share: float, times: Sequence[float]) -> None:
        """Note a round with this share of the noise, in which each drawn client counted so many times."""
        multiple = noise * math.sqrt(share) / max([1.0, *times])
        self.rounds[multiple] = self.rounds.get(multiple, 0) + 1


def check_privacy(clip: float, noise: float, delta: float) -> None:
    """Raise ``Misuse`` where the settings of a strategy's privacy do not go together."""
    if not clip > 0.0:
        raise Misuse(f"fedavg:clip={clip:g}", "a number above 0", "the norm that no client's update exceeds")
    if not 0.0 <= noise < math.inf:
        raise Misuse(f"fedavg:noise={noise:g}", "a number from 0 up", "a multiple of clip, such as 1")
    if not 0.0 < delta < 1.0:
        raise Misuse(f"fedavg:delta={delta:g}", "a number between 0 and 1", "one far below 1 / clients, such as 1e-5")
    if noise and math.isinf(clip):
        raise Misuse(f"fedavg:noise={noise:g} without clip", "clip=1, say", "noise is a multiple of clip")
