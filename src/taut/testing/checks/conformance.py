"""One conformance suite for every strategy, streams and methods alike."""

from __future__ import annotations

from typing import Any

from taut.strategies import parse
from taut.strategies.api import Method
from taut.strategies.broadcast.broadcast import Broadcast
from taut.strategies.compatibility import default_topology
from taut.testing.checks.method_check import check_method
from taut.testing.checks.strategy_check import check_strategy as check_stream
from taut.testing.checks.strategy_check import merge_sets


def check_strategy(strategy: str | Broadcast | Method, seed: int, **options: Any) -> None:
    """Play one random history (permuted, delayed, lost and repeated deliveries, workers of different speeds, deaths and
    joins) and require what the strategy promises: nobody waits for ever, everybody ends, and replicas that must agree do.

    ``strategy``: an object, or its written form. ``options``: of ``check_method`` or of the check of streams.

    >>> check_strategy("ssp:2", seed=1)
    >>> check_strategy("averaging:every=2", seed=1, workers=3, lossy=True)
    """
    if isinstance(strategy, str):
        choice = parse(strategy)
        if choice.is_method:
            options.setdefault("topology", default_topology(choice))
            strategy = choice.method()
        else:
            strategy = choice.stream(merge_sets, budget_nbytes=256, window_nbytes=128)
    if isinstance(strategy, Method):
        check_method(strategy, seed, **options)
    else:
        check_stream(strategy, seed, **options)
