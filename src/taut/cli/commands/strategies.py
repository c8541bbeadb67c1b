"""``taut strategies``: what can be put after ``--strategy``, and what each needs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from taut.cli.output.console import results

WIDE = 110  # columns


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of the table.")] = False,
) -> None:
    """List the strategies, with their parameters."""
    from taut.strategies import REGISTRY

    listed = [_described(name) for name in sorted(REGISTRY)]
    if as_json:
        typer.echo(json.dumps({"strategies": listed}))
        return
    console = results()
    console.print(strategy_table(listed, console.width))
    typer.echo('for example: taut run --workers 4 --strategy ssp:3 SCRIPT; phases: "sync for 200 steps, then async"')


def strategy_table(listed: Sequence[dict[str, Any]], width: int) -> Table:
    """Return a line for each strategy; where there is no room for five columns, all that is said of it in one."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    wide = width >= WIDE
    for heading in ("strategy", "does", "waits", "returns", "parameters") if wide else ("strategy", "does"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "strategy")
    for one in listed:
        parameters = ", ".join(f"{key}={value}" for key, value in one["parameters"].items())
        if wide:
            table.add_row(one["name"], one["does"], one["waits"], one["returns"], parameters)
        else:
            details = f"waits: {one['waits']}; returns: {one['returns']}" + (f"; {parameters}" if parameters else "")
            table.add_row(one["name"], Group(one["does"], Text(details, style="dim")))
    return table


def _described(name: str) -> dict[str, Any]:
    from taut.strategies.compatibility import codecs_of
    from taut.strategies.registry import Choice, parameters

    kind = Choice(name).kind
    text = (importlib.import_module(kind.__module__).__doc__ or "").strip()
    first = " ".join(text.split("\n\n", maxsplit=1)[0].split())
    method = Choice(name).is_method
    return {
        "name": name,
        "does": first.rstrip("."),
        "waits": _waits(kind, method),
        "exchanges": kind.vector if method else "updates",
        "replicas_agree": bool(kind.consensus) if method else bool(kind.complete),
        "codecs": codecs_of(kind),
        "topologies": list(kind.topologies) if method else [],
        "returns": kind.returns if not method or kind.admits_late else "no",
        "paper": kind.paper,
        "parameters": parameters(name),
    }


def _waits(kind: Any, method: bool) -> str:
    if not method:
        return "bounded" if kind.bounded else "never"
    if not kind.lockstep:
        return "for an answer; trains on" if kind.drifts else "never"
    return "in rounds; trains on" if kind.drifts else "in rounds"
