"""How ``taut supervisor --announce`` tells where it is, and how ``taut worker`` without an address finds it."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

from taut.cli.commands.dashboard import WithDashboard
from taut.cli.options import network_flag
from taut.cli.output.display import Display
from taut.discovery.choice import choose
from taut.engines.launchers.rendezvous import Offer
from taut.errors import Misuse, Refused, SupervisorLost

if TYPE_CHECKING:
    from rich.console import Console

    from taut.discovery.lan import Service
    from taut.supervisor.service import Supervisor

FLAG, LAN = "--announce", "lan"
LOOK_S, FOLDER_S, LAN_S, TOLD_S = 0.2, 60.0, 15.0, 3.0
ASKED = 3  # times for a code


class SupervisorCommand(WithDashboard):
    """A command whose ``--announce`` needs no value, either."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_lan(args))


def with_lan(args: list[str]) -> list[str]:
    """Add the value ``lan`` after an ``--announce`` that has none.

    >>> with_lan(["--announce", "-n", "2"]), with_lan(["-n", "2", "--announce"]), with_lan(["--announce", "/shared"])
    (['--announce', 'lan', '-n', '2'], ['-n', '2', '--announce', 'lan'], ['--announce', '/shared'])
    """
    at = args.index(FLAG) + 1 if FLAG in args else 0
    missing = at and (at == len(args) or args[at].startswith("-"))
    return [*args[:at], LAN, *args[at:]] if missing else args


def check_announce(announce: str | None) -> None:
    """Refuse an ``--announce`` that cannot work, before anything is started."""
    if announce == LAN:
        check_lan(f"{FLAG} in the local network")
    elif announce is not None:
        from taut.discovery.shared_file import checked_folder

        checked_folder(announce, FLAG)


def check_lan(what: str) -> None:
    """Raise ``Misuse`` where the packages of the extra ``lan`` are missing."""
    if missing := [name for name in ("zeroconf", "spake2", "cryptography") if find_spec(name) is None]:
        remedy = "it needs: pip install 'taut[lan]'; or use --rendezvous DIR, or --join ADDRESS"
        raise Misuse(what, f"the package {missing[0]} to be installed", remedy)


@contextmanager
def announced(supervisor: Supervisor, announce: str | None, bind: str, display: Display) -> Iterator[None]:
    """Announce the supervisor during the block: in a folder, in the local network, or not at all."""
    with ExitStack() as stack:
        stack.callback(supervisor.stop)  # also where it cannot be announced
        if announce == LAN:
            _announce_in_lan(supervisor, bind, display, stack)
        elif announce is not None:
            _announce_in_folder(supervisor, announce, display, stack)
        yield


def _announce_in_folder(supervisor: Supervisor, folder: str, display: Display, stack: ExitStack) -> None:
    from taut.discovery.shared_file import SharedFile

    run, token_file = supervisor.run_dir.name, str(supervisor.token_file)
    file = SharedFile(folder, Offer(supervisor.address, run, token_file, supervisor.token))
    stack.callback(file.withdraw)
    file.announce()
    there = shlex.quote(str(file.path.parent))
    display.note(f"announced in {there}; where that folder is seen: taut worker --rendezvous {there} SCRIPT", copied=True)


def _announce_in_lan(supervisor: Supervisor, bind: str, display: Display, stack: ExitStack) -> None:
    from taut.discovery.lan import LanAnnouncer
    from taut.discovery.pairing_server import PairingServer

    run = supervisor.run_dir.name
    offer = Offer(supervisor.address, run, token=supervisor.token)
    server = stack.enter_context(PairingServer(offer, bind, lambda code: _say_code(display, code)))
    stack.enter_context(LanAnnouncer(run, supervisor.address, server.port, bind))
    display.note(f"announced in the local network as {run}; on each machine there: taut worker SCRIPT")
    _say_code(display, server.code)


def _say_code(display: Display, code: str) -> None:
    display.note(f"code for the next worker: {code}")


@dataclass(frozen=True)
class Wanted:
    """The flags of ``taut worker`` that name the supervisor to find."""

    rendezvous: Annotated[
        str | None, network_flag(metavar="DIR", help="Find the supervisor that `--announce DIR` announced there.")
    ] = None
    run: Annotated[str | None, network_flag(metavar="NAME", help="The run to join, where several are announced.")] = None
    code: Annotated[
        str | None, network_flag(help="The code that a supervisor in the local network shows. It works once.")
    ] = field(default=None, repr=False)

    def given(self) -> list[str]:
        """Return the flags that were given."""
        return [f"--{each.name}" for each in fields(self) if getattr(self, each.name) is not None]


def find(wanted: Wanted, bind: str | None, gone: Callable[[str], str | None], console: Console) -> Offer:
    """Return the address and the token of the supervisor that ``wanted`` describes. ``bind``: the address of this host to
    look from; ``gone`` says why nobody answers at an address. Raise ``Misuse``, ``Refused`` or ``SupervisorLost``."""
    if wanted.rendezvous is not None:
        if wanted.code is not None:
            raise Misuse("--rendezvous and --code", "one of them", "a folder needs no code")
        return find_in_folder(wanted.rendezvous, wanted.run, gone, console)
    check_lan("no --join ADDRESS")
    return find_in_lan(wanted, bind, console)


def find_in_folder(folder: str, run: str | None, gone: Callable[[str], str | None], console: Console) -> Offer:
    """Return what a supervisor that lives has announced in ``folder``; wait for one."""
    from taut.discovery.shared_file import checked_folder, look

    path, until_s, told = checked_folder(folder, "--rendezvous"), time.monotonic() + FOLDER_S, False
    while True:
        looked = look(path)
        silent = {one.address: gone(one.address) for one in looked.offers if run in (None, one.run)}
        living = [one for one in looked.offers if one.address in silent and silent[one.address] is None]
        if (chosen := choose(living, run, f"in {path}")) is not None:
            return chosen
        why = (
            "; ".join([*(_why_not(one, silent) for one in looked.offers), *looked.refused])
            or "nothing is announced there"
        )
        now_s = time.monotonic()
        if now_s > until_s:
            remedy = f"start `taut supervisor --announce {folder}`, or give --join ADDRESS"
            raise SupervisorLost(f"no supervisor{_of(run)} in {path} for {FOLDER_S:.0f} s: {why}; {remedy}")
        if not told and now_s > until_s - FOLDER_S + TOLD_S:
            told = True
            text = f"no supervisor{_of(run)} in {path} yet: {why}. Waiting; Ctrl-C stops"
            console.print(text, markup=False, soft_wrap=True)
        time.sleep(LOOK_S)


def _why_not(offer: Offer, silent: Mapping[str, str | None]) -> str:
    """Return why this offer is not taken."""
    if offer.address not in silent:
        return f"{offer.run} is another run"
    return f"the supervisor of {offer.run} does not answer at {offer.address}, it may be gone ({silent[offer.address]})"


def find_in_lan(wanted: Wanted, bind: str | None, console: Console) -> Offer:
    """Return what a supervisor in the local network tells after pairing."""
    from taut.discovery.lan import browse
    from taut.discovery.pairing_client import pair

    console.print("looking for a supervisor in the local network", style="dim")
    found = browse(wanted.run, LAN_S, bind)
    service = choose(found, wanted.run, "in the local network")
    if service is None:
        others = f" (found: {', '.join(sorted(one.run for one in found))})" if found else ""
        tries = "start `taut supervisor --announce` there; where the network passes no multicast, give --join ADDRESS"
        raise SupervisorLost(f"no supervisor{_of(wanted.run)} in the local network for {LAN_S:.0f} s{others}; {tries}")
    console.print(f"found {service.run} at {service.address}", markup=False)
    for left in reversed(range(ASKED)):
        try:
            return pair(service, wanted.code or ask_code(service))
        except Refused as why:
            if wanted.code is not None or not left:
                raise
            console.print(f"{why}; try again", markup=False, soft_wrap=True)
    raise AssertionError


def ask_code(service: Service) -> str:
    """Return the code that the user types. Raise ``Misuse`` without a terminal."""
    if not sys.stdin.isatty():
        remedy = "set TAUT_CODE or give --code (other users see it in `ps`, but it works once only)"
        raise Misuse("no code, and no terminal to ask for it", "the code that the supervisor shows", remedy)
    sys.stderr.write(f"code that the supervisor of {service.run} shows: ")
    sys.stderr.flush()
    return sys.stdin.readline(100)


def _of(run: str | None) -> str:
    return f" of {run}" if run else ""
