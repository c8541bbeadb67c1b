"""The flags that several commands share, declared once."""

from __future__ import annotations

import json
import math
import shutil
import sys
from pathlib import Path
from typing import IO, Annotated, Any, cast

import msgspec
import typer
from rich.console import Console

from taut.cli.completion import complete_codec, complete_run, complete_strategy, complete_topology, complete_word
from taut.cli.prose import ProseConsole
from taut.cli.remarks import Remarks

RUN, NETWORK, OUTPUT = "What is run", "Network", "Output"

Workers = Annotated[
    int | None,
    typer.Option("--workers", "-n", help="How many workers the run starts with.", rich_help_panel=RUN),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        help="When workers wait, and how they merge: async, sync, ssp:3, dpsgd ...",
        autocompletion=complete_strategy,
        rich_help_panel=RUN,
    ),
]
Topology = Annotated[
    str | None,
    typer.Option(
        help="Who is wired to whom: complete, ring, torus:3x4, star, file:PATH ...",
        autocompletion=complete_topology,
        rich_help_panel=RUN,
    ),
]
Codec = Annotated[
    str | None,
    typer.Option(
        help="How updates are written down, with options: tether, threshold:tau=0.0078125, dense ...",
        autocompletion=complete_codec,
        rich_help_panel=RUN,
    ),
]
Finish = Annotated[
    str | None,
    typer.Option(
        help="Which model comes out: average, best (on validation), any, ensemble.",
        autocompletion=complete_word("average", "best", "any", "ensemble"),
        rich_help_panel=RUN,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Of the order of the data.", rich_help_panel=RUN)]
Threads = Annotated[
    int | None,
    typer.Option(help="Torch threads per worker; default: cores / workers.", rich_help_panel=RUN),
]
Preload = Annotated[
    list[str] | None,
    typer.Option(help="A module to import once for all workers; may be repeated.", rich_help_panel=RUN),
]
CheckpointEvery = Annotated[
    str | None,
    typer.Option(help="Write a checkpoint every 5m, 90s, 200steps or 1epoch; default: none.", rich_help_panel=RUN),
]
KeepCheckpoints = Annotated[
    int | None,
    typer.Option(help="How many checkpoints stay; default: 3.", rich_help_panel=RUN),
]
Start = Annotated[
    str | None,
    typer.Option(help="zygote (fork from one warm process) or spawn (fresh processes).", rich_help_panel=RUN),
]
Engine = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What starts the workers; default: local.", rich_help_panel=RUN),
]
Bind = Annotated[str | None, typer.Option(help="Address to listen on.", rich_help_panel=NETWORK)]
Port = Annotated[int | None, typer.Option(help="Port to listen on; 0: any.", rich_help_panel=NETWORK)]
Advertise = Annotated[
    str | None,
    typer.Option(help="Address that others reach this machine at.", rich_help_panel=NETWORK),
]
Transport = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="What carries messages; default: zmq.", rich_help_panel=NETWORK),
]
Link = Annotated[
    str | None,
    typer.Option(
        metavar="RATE[,LATENCY]",
        help="Limit each worker's links to the others, without root: 100mbit, or 100mbit,5ms.",
        rich_help_panel=NETWORK,
    ),
]
Dashboard = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Show the run in a browser, here or (with HOST) elsewhere; without a value: at any free port.",
        rich_help_panel=NETWORK,
    ),
]
Name = Annotated[str | None, typer.Option(help="The run's name.", rich_help_panel=OUTPUT)]
RunsDir = Annotated[
    str | None,
    typer.Option(help="Folder that holds the runs; default: taut-runs.", rich_help_panel=OUTPUT),
]
Config = Annotated[
    Path | None,
    typer.Option(help="Settings file; default: taut.toml, where it exists.", rich_help_panel=OUTPUT),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.", rich_help_panel=OUTPUT)]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Show all workers' output, as --logs all does.", rich_help_panel=OUTPUT)
]
Logs = Annotated[
    str | None,
    typer.Option(
        metavar="all|none|RANK",
        help="Whose output to show while it trains; default: worker 0's. All of it is in the run's folder.",
        rich_help_panel=OUTPUT,
    ),
]
Log = Annotated[
    str | None,
    typer.Option(help="taut's own log: debug, info, warning, error.", rich_help_panel=OUTPUT),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Its name, the end of its name, or: latest.", autocompletion=complete_run),
]
Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script.", show_default=False)]
Module = Annotated[
    bool,
    typer.Option("-m", help="SCRIPT is a module, as for python -m.", rich_help_panel=RUN, show_default=False),
]
ScriptArgs = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARGS]...", help="Whatever follows SCRIPT is the script's.", show_default=False),
]

PASS_ON = {"allow_interspersed_args": False}  # everything after SCRIPT belongs to the script


def results() -> Console:
    """Where results go: standard output, wide enough for a table when it is no terminal."""
    console = ProseConsole(highlight=False)
    elsewhere = shutil.get_terminal_size((110, 25)).columns  # COLUMNS, where it is set
    return console if console.is_terminal else Console(highlight=False, width=elsewhere)


def notes() -> Console:
    """Return the console for progress and remarks: standard error.

    It redraws only on a real terminal. FORCE_COLOR asks for colours, not for a display that is redrawn in a file.
    """
    remarks = cast("IO[str]", Remarks())
    colours = Console(file=remarks, force_jupyter=False).color_system  # as rich reads TERM, NO_COLOR and FORCE_COLOR
    return ProseConsole(
        file=remarks,
        highlight=False,
        force_terminal=remarks.isatty(),
        force_jupyter=False,
        color_system=cast("Any", colours),
    )


def print_json(record: Any) -> None:
    """The one object of ``--json``."""
    sys.stdout.write(json.dumps(plain(record), indent=2) + "\n")
    sys.stdout.flush()


def plain(value: Any) -> Any:
    """As JSON has it: records become objects, paths texts, and what is not finite null.

    >>> plain({"loss": float("nan"), "at": Path("a/b"), "of": (1, 2)})
    {'loss': None, 'at': 'a/b', 'of': [1, 2]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Path):
        return str(value)
    return plain(msgspec.to_builtins(value, enc_hook=str))
