"""``taut worker``: one worker of a run that a supervisor elsewhere conducts."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from taut.cli.discovery import Wanted, find
from taut.cli.launch import script_of
from taut.cli.options import Given, Module, RequireSignature, Script, ScriptArgs, network_flag, output_flag, with_flags
from taut.cli.output.console import notes
from taut.cli.packing.unpack import opened_job, unpacked
from taut.config import WorkerEnvironment, discovery_environment, found, joining
from taut.engines.devices import device_variables
from taut.engines.local import become, devices_of
from taut.errors import Misuse, SupervisorLost

if TYPE_CHECKING:
    from rich.console import Console

TOLD_S, AGAIN_S, PATIENCE_S = 3.0, 0.2, 60.0  # without an answer: the user is told, it is tried again, it ends
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@with_flags("bind advertise devices")
def worker(
    *,
    script: Script,
    join: Annotated[
        str | None, network_flag(help="The supervisor's address, as it says; without it, it is found: see above.")
    ] = None,
    args: ScriptArgs = None,
    module: Module = False,
    token_file: Annotated[
        Path | None, network_flag(help="A copy of the supervisor's token file; else TAUT_TOKEN.")
    ] = None,
    wanted: Wanted,
    given: Given,
    quiet: Annotated[bool, output_flag("--quiet", "-q", help="Print only what SCRIPT prints, and errors.")] = False,
    require_signature: RequireSignature = None,
) -> None:
    """Join a run with SCRIPT as one more worker, here.

    The token comes from --token-file, or from the environment (TAUT_TOKEN, TAUT_TOKEN_FILE): never write it
    into a command line, where every user of the machine can read it.

    Without --join the supervisor is found: in the folder --rendezvous, at TAUT_SUPERVISOR, in the folder
    TAUT_RENDEZVOUS, or in the local network, with the code that `taut supervisor --announce` shows.
    """
    job = opened_job(script, require_signature, module=module, quiet=quiet)
    script = script_of(script, module)
    settings = given.settings()
    if job is not None:
        script, args = unpacked(job, settings), [*job.manifest.args, *(args or [])]
    (device,) = devices_of(1, settings.devices)
    console = notes()
    bind = settings.bind if settings.sources["bind"] != "default" else None
    told = told_by(join, token_file, wanted, bind, console)
    check_token(told)
    address = told.supervisor
    environment = WorkerEnvironment(
        supervisor=address,
        token=told.token,
        token_file=told.token_file,
        bind=given.flags["bind"] or told.bind or default_bind(address),
        advertise=given.flags["advertise"] or told.advertise,
        announces=not quiet,
    )
    if not quiet:
        console.print(f"joining the run at {address}", style="dim")
    if address.startswith("tcp://"):
        await_supervisor(address, console)
    become(script, args or [], environment.variables() | device_variables(0, device))


def told_by(
    join: str | None, token_file: Path | None, wanted: Wanted, bind: str | None, console: Console
) -> WorkerEnvironment:
    """Return the address and the token: as given, from the environment, or as found."""
    known, file = discovery_environment(), str(token_file) if token_file is not None else None
    if join is not None or (known.supervisor is not None and not wanted.given()):
        if wanted.given():
            raise Misuse(f"--join and {' and '.join(wanted.given())}", "one of them", "--join says where the run is")
        return joining(check_address(join or known.supervisor or ""), file)
    if file is not None:
        raise Misuse("--token-file without --join", "an address beside it", "a supervisor that is found gives its token")
    sought = wanted if wanted.rendezvous or wanted.code else replace(wanted, rendezvous=known.rendezvous, code=None)
    if sought.rendezvous is None and sought.code is None:
        sought = replace(sought, code=known.code)
    offer = find(sought, bind, unanswered, console)
    return found(check_address(offer.address), offer.token)


def await_supervisor(address: str, console: Console) -> None:
    """Wait until something answers at ``address`` as a supervisor does; say so after a few seconds without an answer.

    Raises ``SupervisorLost`` after ``PATIENCE_S``.
    """
    began_s, told = time.monotonic(), False
    while (why := unanswered(address)) is not None:
        waited_s = time.monotonic() - began_s
        if waited_s > PATIENCE_S:
            raise SupervisorLost(f"no supervisor at {address} for {PATIENCE_S:.0f} s: {why}")
        if waited_s > TOLD_S and not told:
            told = True
            remedy = "Is that the address that `taut supervisor` shows, and does the supervisor still run?"
            text = f"no supervisor answers at {address}: {why}. {remedy} Trying again; Ctrl-C stops"
            console.print(text, markup=False, soft_wrap=True)
        time.sleep(AGAIN_S)


def unanswered(address: str) -> str | None:
    """Return why nothing at ``address`` answers as a supervisor does; None where something does."""
    from taut.transport.endpoint import split

    try:
        with socket.create_connection(split(address, "--join"), timeout=TOLD_S) as connection:
            greeting = connection.recv(1)  # the first byte that every ZeroMQ socket sends
    except TimeoutError:
        return f"nothing came back for {TOLD_S:.0f} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None if greeting == b"\xff" else "something else than a supervisor listens there"


def check_address(given: str) -> str:
    """Return ``host:port`` or ``tcp://host:port`` as ``tcp://host:port``."""
    from taut.transport.endpoint import split

    if "://" in given and not given.startswith("tcp://"):
        return given
    _, port = split(given, "--join")
    if not port:
        raise Misuse(f"--join {given!r}", "HOST:PORT", "copy the address that `taut supervisor` shows")
    return given if "://" in given else f"tcp://{given}"


def check_token(told: WorkerEnvironment) -> None:
    """Refuse a token that is none, before torch is imported."""
    from taut.transport.keys import Token, read_token_file

    Token.parse(told.token if told.token is not None else read_token_file(told.token_file or ""))


def default_bind(address: str) -> str:
    """Return where a worker listens for its peers: on loopback when the supervisor is there, else everywhere."""
    from taut.transport.endpoint import split

    return "127.0.0.1" if split(address, "--join")[0] in LOOPBACK else "0.0.0.0"
