"""The runs of a comparison: all strategies, topologies, codecs, numbers of workers and seeds that go together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from taut.config import Settings, resolve
from taut.errors import Misuse


@dataclass(frozen=True)
class Cell:
    """One run. ``strategy``, ``topology`` and ``codec`` are as they were written, or the strategy's own where they were
    not named; ``named``: those that were named; ``resolved``: all of them in full."""

    strategy: str
    topology: str
    codec: str
    workers: int
    seed: int
    named: Mapping[str, str] = field(default_factory=dict)
    resolved: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        count = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.strategy}, {self.codec}, {self.topology}, {count}, seed {self.seed}"


@dataclass(frozen=True)
class Skipped:
    """A combination that cannot work, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class Matrix:
    """Cells in the order in which they are run: the first seed of everything first, so that an interrupted comparison has
    some runs of every configuration."""

    cells: tuple[Cell, ...]
    skipped: tuple[Skipped, ...] = ()


def expand(
    strategies: Sequence[str],
    codecs: Sequence[str] = (),
    topologies: Sequence[str] = (),
    workers: Sequence[int] = (4,),
    seeds: Sequence[int] = (0,),
    finish: str | None = None,
    config_file: Path | None = None,
    ambient: bool = True,
) -> Matrix:
    """Return the matrix; what does not go together is left out with its reason. No codecs or topologies: each strategy's
    own. ``ambient``: taut.toml and the environment's TAUT_ variables count, as they do for real runs.

    >>> made = expand(["sync", "async"], codecs=["dense", "tether"], workers=[2])
    >>> [(cell.strategy, cell.codec) for cell in made.cells]
    [('sync', 'dense'), ('async', 'dense'), ('async', 'tether')]
    >>> made.skipped[0].what, made.skipped[0].reason.partition(":")[0]
    ('sync, tether', "codec 'tether' with strategy 'sync'")
    """
    _check_words(strategies, codecs, topologies, config_file, ambient)
    cells: dict[tuple[object, ...], Cell] = {}  # once those that are the same under another name, as ssp and ssp:3 are
    unfit: dict[tuple[str, str], list[int]] = {}
    choices = list(product(workers, strategies, topologies or [""], codecs or [""]))
    for seed, (count, strategy, topology, codec) in product(seeds, choices):
        flags = {"strategy": strategy, "topology": topology, "codec": codec, "finish": finish or ""}
        named = {key: value for key, value in flags.items() if value}
        try:
            settings = _settings({**named, "workers": count, "seed": seed}, config_file, ambient).fitted()
        except Misuse as error:
            counts = unfit.setdefault((", ".join(named.values()), str(error)), [])
            counts += [count] if count not in counts else []
        else:
            resolved = {key: str(getattr(settings, key)) for key in ("strategy", "topology", "codec", "finish")}
            shown = {key: named.get(key, resolved[key]) for key in ("strategy", "topology", "codec")}
            cell = Cell(**shown, workers=count, seed=seed, named=named, resolved=resolved)
            cells.setdefault((*resolved.items(), count, seed), cell)
    return Matrix(
        tuple(cells.values()), tuple(_skipped(what, counts, workers, why) for (what, why), counts in unfit.items())
    )


def _settings(flags: Mapping[str, object], config_file: Path | None, ambient: bool) -> Settings:
    return resolve(flags, config_file=config_file) if ambient else resolve(flags, environ={}, cwd=os.devnull)


def _skipped(what: str, counts: Sequence[int], workers: Sequence[int], reason: str) -> Skipped:
    """Name a combination that is left out, with the numbers of workers where they matter."""
    some = "" if len(counts) == len(workers) else f" with {', '.join(map(str, counts))} workers"
    return Skipped(what + some, reason)


def _check_words(
    strategies: Sequence[str], codecs: Sequence[str], topologies: Sequence[str], config_file: Path | None, ambient: bool
) -> None:
    """Refuse a misspelt word: it is a mistake, not a combination to be left out."""
    if not strategies:
        raise Misuse("--strategies with nothing in it", "at least one", "as in --strategies sync,async")
    for key, written in (("strategy", strategies), ("codec", codecs), ("topology", topologies)):
        for one in written:
            _settings({key: one}, config_file, ambient)
