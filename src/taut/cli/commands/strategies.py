"""``taut strategies``: what can be put after ``--strategy``, and what each needs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from textwrap import wrap
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from taut.cli.output.console import results

WIDE = 110  # columns


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print one object instead of the table.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Show which codecs each takes, and why not others.")] = False,
) -> None:
    """List the strategies, with their parameters."""
    from taut.strategies import REGISTRY

    if matrix:
        pairs = codec_pairs()
        typer.echo(json.dumps({"pairs": pairs}) if as_json else matrix_text(pairs, results().width))
        return
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


def codec_pairs() -> list[dict[str, str]]:
    """Return every pair of a strategy and a codec, with the reason why it cannot work; empty if it can."""
    from taut.plugins import CODECS
    from taut.strategies import REGISTRY
    from taut.strategies.compatibility import why_not

    return [
        {"strategy": strategy, "codec": codec, "why_not": why_not(REGISTRY[strategy], codec)}
        for strategy in sorted(REGISTRY)
        for codec in CODECS
    ]


def matrix_text(pairs: Sequence[dict[str, str]], width: int) -> str:
    """Return a table of all pairs, codecs written downwards, and under it the reasons, each once.

    >>> pairs = [{"strategy": "sync", "codec": codec, "why_not": why} for codec, why in {"topk": "", "t": "no"}.items()]
    >>> print(matrix_text(pairs, 80))
          t
          o
          p
          k t
    sync  + -
    <BLANKLINE>
    +: taken; -: not, because
    sync: all but topk: no
    """
    codecs, strategies = (list(dict.fromkeys(pair[key] for pair in pairs)) for key in ("codec", "strategy"))
    left, height = max(map(len, strategies)) + 2, max(map(len, codecs))
    taken = {(pair["strategy"], pair["codec"]): not pair["why_not"] for pair in pairs}
    lines = [" " * left + " ".join(codec.rjust(height)[row] for codec in codecs) for row in range(height)]
    for strategy in strategies:
        lines.append(strategy.ljust(left) + " ".join("-+"[taken[strategy, codec]] for codec in codecs))
    refused: dict[tuple[str, str], list[str]] = {}  # by codecs and reason: strategies
    for strategy in strategies:
        reasons: dict[str, list[str]] = {}
        for pair in pairs:
            if pair["strategy"] == strategy and pair["why_not"]:
                reasons.setdefault(pair["why_not"], []).append(pair["codec"])
        for reason, unfit in reasons.items():
            which = ", ".join(unfit) if len(unfit) < len(codecs) - 1 else "all but " + _others(codecs, unfit)
            refused.setdefault((which, reason), []).append(strategy)
    lines += ["", "+: taken; -: not, because"]
    for (which, reason), by in refused.items():
        lines += wrap(f"{', '.join(by)}: {which}: {reason}", width, subsequent_indent="  ")
    return "\n".join(line.rstrip() for line in lines)


def _others(names: Sequence[str], some: Sequence[str]) -> str:
    return ", ".join(name for name in names if name not in some) or "none"


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
