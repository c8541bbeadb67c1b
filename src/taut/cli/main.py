"""The ``taut`` command. A user's mistake is one line on standard error and exit code 2; a failed run is 1."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from taut import __version__
from taut.beginning import INTERRUPTED
from taut.cli import (
    advise,
    codecs,
    compare,
    dashboard,
    demo,
    drain,
    probe,
    resume,
    run,
    runs,
    show,
    simulate,
    strategies,
    supervisor,
    token,
    topology,
    worker,
)
from taut.cli.options import PASS_ON
from taut.errors import TautError

app = typer.Typer(
    name="taut",
    help="Train one PyTorch model on many loosely coupled machines.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", cls=dashboard.WithDashboard, context_settings=PASS_ON)(run.run)
app.command("resume", cls=dashboard.WithDashboard)(resume.resume)
app.command("demo")(demo.demo)
app.command("supervisor", cls=dashboard.WithDashboard)(supervisor.supervisor)
app.command("worker", context_settings=PASS_ON)(worker.worker)
app.command("dashboard")(dashboard.dashboard)
app.command("drain")(drain.drain)
app.add_typer(token.token, name="token")
app.command("runs")(runs.runs)
app.command("show")(show.show)
app.command("strategies")(strategies.strategies)
app.command("simulate", context_settings=PASS_ON)(simulate.simulate)
app.command("compare", context_settings=PASS_ON)(compare.compare)
app.command("probe", context_settings=PASS_ON)(probe.probe)
app.command("advise", context_settings=PASS_ON)(advise.advise)
app.command("topology")(topology.topology)
app.command("codecs", cls=codecs.CodecsCommand)(codecs.codecs)


class _Debug:
    """Whether errors come with their traceback; set by the flag, read after the command failed."""

    wanted = False


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taut {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say which version this is."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _Debug.wanted = debug


def _let_go_of_output() -> None:
    """What is left of it in memory goes nowhere: else Python would say at its end, too, that it cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    _Debug.wanted = False
    try:
        app(args=list(arguments) if arguments is not None else None)
    except TautError as error:
        if _Debug.wanted:
            traceback.print_exc()
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except OSError as error:
        if _Debug.wanted:
            traceback.print_exc()
        _let_go_of_output()
        what = f"{error.filename}: " if error.filename else ""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"error: {what}{error.strerror or error} (`taut --debug ...` shows where)\n")
        sys.exit(1)
    except KeyboardInterrupt:  # typer answers it only from where it has read the arguments
        sys.exit(INTERRUPTED)
    sys.exit(0)


if __name__ == "__main__":
    main()
