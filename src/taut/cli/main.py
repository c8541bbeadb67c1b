"""The ``taut`` command. A user's mistake is one line on standard error and exit code 2; a failed run is 1."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Annotated, NoReturn

import typer

from taut import __version__
from taut.cli.commands.codecs import CodecsCommand
from taut.cli.commands.dashboard import WithDashboard
from taut.cli.discovery import SupervisorCommand
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


COMMANDS = (  # in the order of the help; each is a function in a module of its name
    "run resume demo supervisor worker slurm dashboard drain steer token runs show top plot export strategies "
    "simulate compare probe advise topology codecs data pack serve "
)
PARSERS = {"run": WithDashboard, "resume": WithDashboard, "supervisor": SupervisorCommand, "codecs": CodecsCommand}

for _name in COMMANDS.split():
    _command = getattr(import_module(f"taut.cli.commands.{_name}"), _name)
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name, epilog=examples(_name))
    else:
        _settings = PASS_ON if "args" in signature(_command).parameters else None
        app.command(_name, cls=PARSERS.get(_name), epilog=examples(_name), context_settings=_settings)(_command)


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
        bool, typer.Option("--version", "-V", callback=_show_version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    _Debug.wanted = debug


def _let_go_of_output() -> None:
    """Send the output that is left in memory nowhere: else Python would say at its end that it cannot be written."""
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
        sys.stderr.write("\n".join([f"error: {error}", *getattr(error, "__notes__", ()), ""]))
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
