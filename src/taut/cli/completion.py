"""Completion when Tab is pressed in a shell: names of strategies, codecs, topologies and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
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


def _registered(module: str, names: str = "REGISTRY") -> Callable[[str], list[str]]:
    """Return a function that offers the names in ``module``; the module is imported when Tab is pressed."""
    return lambda incomplete: starting(incomplete, getattr(import_module(module), names))


complete_strategy = _registered("taut.strategies.registry")
complete_codec = _registered("taut.codecs.registry")
complete_topology = _registered("taut.topologies.registry")
complete_finish = _registered("taut.strategies.compatibility", "FINISHES")


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the runs in the folder of runs, and ``latest``."""
    from taut.supervisor.storage.store_writer import FILE

    given = context.params
    try:
        folder = Path(resolve({"runs_dir": given.get("runs_dir")}, config_file=given.get("config")).runs_dir)
    except TautError:  # of a settings file: the command itself will say it
        return []
    return starting(incomplete, ["latest", *(path.parent.name for path in folder.glob(f"*/{FILE}"))])
