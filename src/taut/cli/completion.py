"""What the shell offers when Tab is pressed: names of strategies, codecs, topologies and runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from taut.config import resolve
from taut.errors import TautError


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that begin as the incomplete word does; of a list with commas, complete its last member.

    >>> starting("s", ["sync", "ssp", "async"]), starting("async,s", ["sync", "async"])
    (['ssp', 'sync'], ['async,sync'])
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in sorted(names) if name.startswith(last)]


def complete_strategy(incomplete: str) -> list[str]:
    """Offer the names of strategies."""
    from taut.strategies.registry import REGISTRY

    return starting(incomplete, REGISTRY)


def complete_codec(incomplete: str) -> list[str]:
    """Offer the names of codecs."""
    from taut.codecs.registry import REGISTRY

    return starting(incomplete, REGISTRY)


def complete_topology(incomplete: str) -> list[str]:
    """Offer the names of shapes."""
    from taut.topologies.registry import REGISTRY

    return starting(incomplete, REGISTRY)


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the runs in the folder of runs, and ``latest``."""
    from taut.supervisor.storage.store_writer import FILE

    given = context.params
    try:
        folder = Path(resolve({"runs_dir": given.get("runs_dir")}, config_file=given.get("config")).runs_dir)
    except TautError:  # of a settings file: the command itself will say it
        return []
    return starting(incomplete, ["latest", *(path.parent.name for path in folder.glob(f"*/{FILE}"))])


def complete_finish(incomplete: str) -> list[str]:
    """Offer the ways to choose the model at the end."""
    from taut.strategies.compatibility import FINISHES

    return starting(incomplete, FINISHES)
