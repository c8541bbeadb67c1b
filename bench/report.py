"""How every benchmark here reports: rows on the screen or as JSON, a file in results/, and an exit code.

A row is a figure and, where it has one, the bar it must meet. ``report`` writes ``results/NAME.json`` and
``NAME.md`` with the machine, the versions and the command, unless the run was ``--quick``, and exits with 1
if a bar was missed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "numpy", "numba", "pyzmq", "msgspec", "triton")


@dataclass(frozen=True)
class Row:
    """One figure. ``bar``: such as ``"<= 1.2"``, or empty; ``ok``: whether it was met (True without a
    bar)."""

    name: str
    value: float
    unit: str
    bar: str = ""
    ok: bool = True


@dataclass(frozen=True)
class Grid:
    """Figures without bars that are best seen side by side: a line for each of ``lines``, which has a value for every
    column (None: there is none)."""

    title: str
    columns: Sequence[str]
    lines: dict[str, Sequence[float | None]]

    def table(self) -> str:
        """In Markdown.

        >>> print(Grid("codec", ("encode", "bits"), {"int8": (4.98765, None)}).table())
        | codec | encode | bits |
        |---|---|---|
        | int8 | 4.99 |  |
        """
        rows = [(self.title, *self.columns), ("---",) * (1 + len(self.columns))]
        rows += [(name, *("" if x is None else f"{x:.3g}" for x in values)) for name, values in self.lines.items()]
        head, line, *others = ("|".join(one) if one[0] == "---" else " | ".join(one) for one in rows)
        return "\n".join([f"| {head} |", f"|{line}|", *(f"| {other} |" for other in others)])


def row(name: str, value: float, unit: str, *, at_most: float | None = None, at_least: float | None = None) -> Row:
    """A row with its verdict.

    >>> row("encode", 1.1, "x", at_most=1.2)
    Row(name='encode', value=1.1, unit='x', bar='<= 1.2', ok=True)
    """
    if at_most is not None:
        return Row(name, value, unit, f"<= {at_most:g}", value <= at_most)
    if at_least is not None:
        return Row(name, value, unit, f">= {at_least:g}", value >= at_least)
    return Row(name, value, unit)


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes: ``--quick`` and ``--json``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a smaller run; nothing is written to results/")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    return parser


def machine() -> dict[str, Any]:
    """Where the figures were taken."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "load": load,
        "versions": versions,
    }


def report(
    name: str, rows: Sequence[Row], args: argparse.Namespace, grid: Grid | None = None, page: str = ""
) -> NoReturn:
    """Print the rows, the grid and the rest of the page (Markdown), write them down, and exit: 0 if every bar was met, 1
    otherwise."""
    told = [asdict(one) for one in rows]
    more = {"grid": asdict(grid)} if grid else {}
    tables = "\n\n".join([_table(rows), *([grid.table()] if grid else []), *([page] if page else [])])
    if args.json:
        print(json.dumps({"rows": told, **more} if more else told, indent=1))
    else:
        print(tables)
    if not args.quick:
        about = {"command": shlex.join(["python", *sys.argv]), **machine()}
        RESULTS.mkdir(exist_ok=True)
        whole = {"name": name, **about, "rows": told, **more}
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
        (RESULTS / f"{name}.md").write_text(_page(name, tables, about))
    missed = [one.name for one in rows if not one.ok]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    sys.exit(1 if missed else 0)


def _table(rows: Sequence[Row]) -> str:
    lines = ["| figure | value | unit | bar | |", "|---|---|---|---|---|"]
    for one in rows:
        verdict = ("met" if one.ok else "MISSED") if one.bar else ""
        lines.append(f"| {one.name} | {one.value:.4g} | {one.unit} | {one.bar} | {verdict} |")
    return "\n".join(lines)


def _page(name: str, tables: str, about: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    return (
        f"# {name}\n\n{tables}\n\n"
        f"- command: `{about['command']}`\n"
        f"- machine: {about['cpu']}, {about['cores']} cores, {about['system']}, load {about['load']}\n"
        f"- versions: {versions}\n"
    )
