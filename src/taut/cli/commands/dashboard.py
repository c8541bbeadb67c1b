"""``taut dashboard``: a run in the browser; and the same beside a run that a command starts (``--dashboard``)."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

from taut.cli.launch import Interrupts
from taut.cli.options import Given, RunName, with_flags
from taut.cli.output.console import notes
from taut.cli.output.display import Display
from taut.config import Settings
from taut.errors import Misuse
from taut.specs import parse_address
from taut.supervisor.storage.store_reader import find_run

if TYPE_CHECKING:
    from taut.dashboard.server import Listening
    from taut.supervisor.service import Supervisor

FLAG, ANY_PORT = "--dashboard", "0"
_PLACE = re.compile(r"(\S+:)?\d{1,5}")


class WithDashboard(TyperCommand):
    """A command whose ``--dashboard`` needs no value: the next word is taken as one only if it can be an address. (``taut
    run --dashboard train.py``)"""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        values = [one for one in self.params if isinstance(one, TyperOption) and not one.is_flag]
        return super().parse_args(ctx, with_value(args, {name for one in values for name in one.opts}))


def with_value(args: list[str], valued: set[str]) -> list[str]:
    """Add the value "any port" after a ``--dashboard`` that has none. ``valued``: the flags that take a value. Words
    after the first that is no flag belong to the script.

    >>> with_value(["-n", "4", "--dashboard", "train.py", "--dashboard"], {"-n", "--dashboard"})
    ['-n', '4', '--dashboard', '0', 'train.py', '--dashboard']
    >>> with_value(["--dashboard", "8080", "train.py"], {"--dashboard"})
    ['--dashboard', '8080', 'train.py']
    """
    at = 0
    while at < len(args) and args[at].startswith("-") and args[at] != "--":
        if args[at] == FLAG and not (at + 1 < len(args) and _PLACE.fullmatch(args[at + 1])):
            return [*args[: at + 1], ANY_PORT, *args[at + 1 :]]
        at += 2 if args[at] in valued else 1
    return args


def opened(settings: Settings) -> Listening | None:
    """Open the socket of the dashboard, if one was asked for, before anything is started: mistakes are told then."""
    return None if settings.dashboard is None else _listen(settings.dashboard, settings.advertise)


def reopened(listening: Listening | None, settings: Settings, folder: Path) -> Listening | None:
    """Return the socket for a run whose supervisor died: at the address where its page was, unless settings name another
    port. Pages that are open go on there."""
    left = _left(folder)
    if left is None or settings.dashboard not in (None, ANY_PORT):
        return listening
    from taut.dashboard.server import listen

    try:
        again = listen(str(left["bind"]), int(left["port"]), settings.advertise)
    except (Misuse, KeyError, ValueError, TypeError):  # somebody else has it now
        return listening
    if listening is not None:
        listening.socket.close()
    return again


@contextmanager
def shown(listening: Listening | None, supervisor: Supervisor, folder: Path, display: Display) -> Iterator[None]:
    """Serve the run in the browser during the block, if that was asked for."""
    if listening is None:
        yield
        return
    from taut.dashboard.secret import new_secret, read_secret
    from taut.dashboard.server import Dashboard
    from taut.dashboard.sources import StoreSource, SupervisorSource

    history = None
    if _left(folder) is not None:  # its supervisor died: pages that are open keep their secret and their curves
        history = StoreSource(folder, secret_for_all=True).history
    if history is None or read_secret(folder) is None:
        new_secret(folder)
    source = SupervisorSource(supervisor, secret_for_all=not listening.loopback)
    with Dashboard(listening, source, folder, history=history) as dashboard:
        _say_where(dashboard.url, folder, listening.loopback, display)
        yield


@with_flags("listen link advertise runs_dir config")
def dashboard(
    run: RunName = "latest",
    *,
    given: Given,
    listen: Annotated[
        str,
        typer.Option(metavar="[HOST:]PORT", help="Where to serve it; default: any free port, for this machine alone."),
    ] = ANY_PORT,
    link: Annotated[
        bool, typer.Option("--link", help="Also print a link that carries the secret, on this terminal alone.")
    ] = False,
) -> None:
    """Show a run in the browser, one that goes or one that is over.

    Where its own command serves it already (--dashboard), this says at which address. Looking needs no secret on this
    machine; steering always does, and so does looking from another one. The secret is in the run's folder.
    """
    if link and not sys.stdout.isatty():
        raise Misuse("--link into a pipe or a file", "a terminal", "a secret must not end up in a log or a command line")
    settings = given.settings()
    folder = find_run(settings.runs_dir, run).summary.path
    display = Display(notes())
    running = _served_already(folder)
    if running is not None:
        display.note(f"dashboard: {running}")
        _print_link(running, folder, link)
        return
    _serve(_listen(listen, settings.advertise, "--listen"), folder, display, link)


def _serve(listening: Listening, folder: Path, display: Display, link: bool) -> None:
    from taut.dashboard.secret import new_secret, read_secret
    from taut.dashboard.server import Dashboard
    from taut.dashboard.sources import StoreSource

    source = StoreSource(folder, secret_for_all=not listening.loopback)
    if read_secret(folder) is None:
        new_secret(folder)
    with Interrupts() as interrupts, Dashboard(listening, source, folder, history=source.history) as server:
        _say_where(server.url, folder, listening.loopback, display, linked=not link)
        _print_link(server.url, folder, link)
        display.note("Ctrl-C to stop")
        tick = threading.Event()
        while not interrupts.count:
            tick.wait(0.1)


def _listen(address: str, advertise: str | None, flag: str = FLAG) -> Listening:
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        remedy = "pip install 'taut[dashboard]'; a run needs neither without the dashboard"
        raise Misuse(f"{flag} without {' and '.join(missing)}", "starlette and uvicorn", remedy)
    from taut.dashboard.server import listen

    host, port = parse_address(address, flag)
    return listen(host, port, advertise)


def _served_already(folder: Path) -> str | None:
    """Return the address at which a living process serves this run; None where there is none."""
    from taut.supervisor.storage.store_reader import alive

    found = _left(folder)
    try:
        return str(found["url"]) if found and alive(str(found["host"]), int(found["pid"])) else None
    except (ValueError, KeyError, TypeError):
        return None


def _left(folder: Path) -> dict[str, Any] | None:
    """Return what a server of this run wrote of its address; None where there was none, or it ended in order."""
    try:
        found = json.loads((folder / "dashboard.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _say_where(url: str, folder: Path, loopback: bool, display: Display, linked: bool = True) -> None:
    """Print the address: on a terminal one that carries the secret, so that a click is enough; never into a log."""
    from taut.dashboard.secret import SECRET_FILE, read_secret

    secret = read_secret(folder)
    if linked and display.console.is_terminal and secret is not None:
        display.note(f"dashboard: {url}#secret={secret}", copied=True)
    else:
        needs = "steering" if loopback else "looking and steering"
        display.note(f"dashboard: {url} ({needs} needs the secret in {folder / SECRET_FILE})")
    if not loopback:
        display.note("it is plain HTTP: whoever is on the network between can read along, the secret too", "yellow")


def _print_link(url: str, folder: Path, wanted: bool) -> None:
    from taut.dashboard.secret import SECRET_FILE, read_secret

    if not wanted:
        return
    secret = read_secret(folder)
    if secret is None:
        raise Misuse(f"{folder / SECRET_FILE}", "a secret that this user may read", "start the dashboard anew")
    sys.stdout.write(f"{url}#secret={secret}\n")
    sys.stdout.flush()
