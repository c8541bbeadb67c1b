"""The ``taut`` command. A user's mistake is one line on standard error and exit code 2; a failed run is 1."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, NoReturn

import typer
from typer.core import TyperCommand

from taut import __version__
from taut.cli.commands import (
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
    slurm,
    strategies,
    supervisor,
    token,
    topology,
    worker,
)
from taut.cli.examples import examples
from taut.cli.options import PASS_ON
from taut.early_sigint import INTERRUPTED
from taut.errors import TautError

app = typer.Typer(
    name="taut",
    help="Train one PyTorch model on many loosely coupled machines.",
    epilog=examples(""),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(
    name: str, function: Callable[..., None], cls: type[TyperCommand] | None = None, passes_on: bool = False
) -> None:
    app.command(name, cls=cls, epilog=examples(name), context_settings=PASS_ON if passes_on else None)(function)


_add("run", run.run, dashboard.WithDashboard, passes_on=True)
_add("resume", resume.resume, dashboard.WithDashboard)
_add("demo", demo.demo)
_add("supervisor", supervisor.supervisor, dashboard.WithDashboard)
_add("worker", worker.worker, passes_on=True)
_add("slurm", slurm.slurm, passes_on=True)
_add("dashboard", dashboard.dashboard)
_add("drain", drain.drain)
app.add_typer(token.token, name="token", epilog=examples("token"))
_add("runs", runs.runs)
_add("show", show.show)
_add("strategies", strategies.strategies)
_add("simulate", simulate.simulate, passes_on=True)
_add("compare", compare.compare, passes_on=True)
_add("probe", probe.probe, passes_on=True)
_add("advise", advise.advise, passes_on=True)
_add("topology", topology.topology)
_add("codecs", codecs.codecs, codecs.CodecsCommand)


class _Debug:
    """The wish for tracebacks with errors; set by the flag, read after the command failed."""

    wanted = False


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"taut {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Say which version this is."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _Debug.wanted = debug


def _let_go_of_output() -> None:
    """Send the output that is left in memory nowhere: else Python would say at its end, too, that it cannot be
    written."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    _Debug.wanted = False
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="taut")
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
