"""The privacy that a run's noise gives its clients: epsilon for a delta, by Google's dp-accounting (the extra privacy).

Each round is a Gaussian mechanism on a Poisson sample of the clients; privacy loss distributions compose them. Neighbours
are two sets of clients of which one has one client more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from taut.errors import Misuse

MOST_EXACT, MOST_KINDS = 50.0, 4  # an epsilon, and kinds of rounds, for which exact accounting takes seconds
REMEDY = "pip install 'taut[privacy]'"


def accounting() -> Any:
    """Return the package that counts, or raise ``Misuse``."""
    try:
        import dp_accounting.pld
        import dp_accounting.rdp
    except ImportError as error:
        raise Misuse(f"fedavg with noise ({error})", "the package dp-accounting, which counts epsilon", REMEDY) from None
    return dp_accounting


def epsilon(rounds: Mapping[float, int], fraction: float, delta: float) -> float:
    """Return the epsilon of so many rounds of each noise multiple, of clients drawn with the probability ``fraction``.

    It is the bound of Renyi's divergence. Where that is small, it is made exact by distributions of the privacy loss,
    which are long where epsilon is large."""
    dp = accounting()
    logging.getLogger("absl").setLevel(logging.ERROR)
    bound = _composed(dp, dp.rdp.RdpAccountant(), rounds, fraction, delta)
    if bound > MOST_EXACT or len(rounds) > MOST_KINDS:
        return bound
    return min(bound, _composed(dp, dp.pld.PLDAccountant(), rounds, fraction, delta))


def _composed(dp: Any, accountant: Any, rounds: Mapping[float, int], fraction: float, delta: float) -> float:
    for multiple, count in sorted(rounds.items()):
        mechanism = dp.GaussianDpEvent(multiple)
        accountant.compose(dp.PoissonSampledDpEvent(fraction, mechanism) if fraction < 1.0 else mechanism, count)
    return float(accountant.get_epsilon(delta))
