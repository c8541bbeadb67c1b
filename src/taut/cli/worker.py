"""``taut worker``: one worker of a run that a supervisor elsewhere conducts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from taut.cli.launch import script_of
from taut.cli.options import NETWORK, Advertise, Bind, Module, Script, ScriptArgs
from taut.config import WorkerEnvironment, joining
from taut.engines.local import become
from taut.errors import Misuse

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def worker(
    *,
    script: Script,
    join: Annotated[
        str,
        typer.Option(help="The supervisor's address, as it says.", rich_help_panel=NETWORK, show_default=False),
    ],
    args: ScriptArgs = None,
    module: Module = False,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A copy of the supervisor's token file; else TAUT_TOKEN.", rich_help_panel=NETWORK),
    ] = None,
    bind: Bind = None,
    advertise: Advertise = None,
) -> None:
    """Join a run with SCRIPT as one more worker, here.

    The token comes from --token-file, or from the environment (TAUT_TOKEN, TAUT_TOKEN_FILE): never write it
    into a command line, where every user of the machine can read it.
    """
    script = script_of(script, module)
    address = check_address(join)
    told = joining(address, str(token_file) if token_file is not None else None)
    check_token(told)
    place = WorkerEnvironment(
        supervisor=address,
        token=told.token,
        token_file=told.token_file,
        bind=bind or told.bind or default_bind(address),
        advertise=advertise or told.advertise,
    )
    become(script, args or [], place.variables())


def check_address(given: str) -> str:
    """``host:port`` or ``tcp://host:port``, as ``tcp://host:port``."""
    from taut.communication.endpoint import split

    _, port = split(given, "--join")
    if not port:
        raise Misuse(f"--join {given!r}", "HOST:PORT", "copy the address that `taut supervisor` shows")
    return given if given.startswith("tcp://") else f"tcp://{given}"


def check_token(told: WorkerEnvironment) -> None:
    """A token that is none is refused here, before torch is imported."""
    from taut.communication.keys import Token, read_token_file

    Token.parse(told.token if told.token is not None else read_token_file(told.token_file or ""))


def default_bind(address: str) -> str:
    """Where a worker listens for its peers: on loopback when the supervisor is there, else everywhere."""
    from taut.communication.endpoint import split

    return "127.0.0.1" if split(address, "--join")[0] in LOOPBACK else "0.0.0.0"
