"""The environment of a process: its launcher's settings, the launcher, the cores, the user's cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from taut.errors import Misuse


def chosen_launcher(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the launcher that ``TAUT_LAUNCHER`` names, ``none`` for none; None where it is not set.

    >>> chosen_launcher({"TAUT_LAUNCHER": "slurm"}), chosen_launcher({})
    ('slurm', None)
    """
    return (os.environ if environ is None else environ).get("TAUT_LAUNCHER") or None


def costs_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return where ``taut codecs --measure`` keeps its result: ``$TAUT_COSTS``, or ``costs.json`` in the user's cache.

    >>> str(costs_file({"XDG_CACHE_HOME": "/cache"})), str(costs_file({"TAUT_COSTS": "mine.json"}))
    ('/cache/taut/costs.json', 'mine.json')
    """
    environ = os.environ if environ is None else environ
    if environ.get("TAUT_COSTS"):
        return Path(environ["TAUT_COSTS"])
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return Path(cache) / "taut" / "costs.json"


def traces_go_to(environ: Mapping[str, str] | None = None) -> str:
    """Return the address that OpenTelemetry's exporter sends to.

    >>> traces_go_to({})
    'http://localhost:4318'
    """
    return (os.environ if environ is None else environ).get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class WorkerEnvironment:
    """The settings that a launcher gives the worker process it starts. The token comes as text or as its file's path."""

    supervisor: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    bind: str = "127.0.0.1"
    advertise: str | None = None
    process_base: int = 0  # added to the process id, where an engine starts workers on several machines
    announces: bool = False  # it was started by hand, and tells on standard error how it gets on

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which ``worker_environment`` reads the same record."""
        texts = {each.name: getattr(self, each.name) for each in fields(self)} | {"announces": "1" * self.announces}
        return {f"TAUT_{name.upper()}": str(text) for name, text in texts.items() if text}


def joining(address: str, token_file: str | None, environ: Mapping[str, str] | None = None) -> WorkerEnvironment:
    """Return the environment of a worker that joins ``address`` by hand; a named token file wins."""
    environ = os.environ if environ is None else environ
    known = {name: environ[name] for name in ("TAUT_TOKEN", "TAUT_TOKEN_FILE") if environ.get(name)}
    if token_file is not None:
        known = {"TAUT_TOKEN_FILE": token_file}
    if not known:
        raise Misuse(
            "no token",
            "the run's token",
            "give --token-file with a copy of the file that `taut supervisor` names, or set TAUT_TOKEN",
        )
    return found(address, known.get("TAUT_TOKEN"), known.get("TAUT_TOKEN_FILE"), environ)


def found(
    address: str, token: str | None, token_file: str | None = None, environ: Mapping[str, str] | None = None
) -> WorkerEnvironment:
    """Return the environment of a worker that has found ``address`` and its token."""
    environ = os.environ if environ is None else environ
    return WorkerEnvironment(
        supervisor=address,
        token=token,
        token_file=token_file,
        bind=environ.get("TAUT_BIND") or "",
        advertise=environ.get("TAUT_ADVERTISE") or None,
    )


@dataclass(frozen=True)
class DiscoveryEnvironment:
    """How a worker that was given no address finds its supervisor: at an address, in a folder, by a pairing code."""

    supervisor: str | None = None
    rendezvous: str | None = None
    code: str | None = field(default=None, repr=False)


def discovery_environment(environ: Mapping[str, str] | None = None) -> DiscoveryEnvironment:
    """Return ``TAUT_SUPERVISOR``, ``TAUT_RENDEZVOUS`` and ``TAUT_CODE``; None for each that is not set.

    >>> discovery_environment({"TAUT_RENDEZVOUS": "/shared"}).rendezvous
    '/shared'
    """
    environ = os.environ if environ is None else environ
    return DiscoveryEnvironment(*(environ.get(f"TAUT_{name}") or None for name in ("SUPERVISOR", "RENDEZVOUS", "CODE")))


@dataclass(frozen=True)
class IslandEnvironment:
    """What the launcher tells a process of an island: its number there, their number, and the file by which they meet."""

    part: int
    size: int
    store: str

    def variables(self) -> dict[str, str]:
        """Return the environment variables from which ``island_environment`` reads the same record."""
        return {f"TAUT_ISLAND_{each.name.upper()}": str(getattr(self, each.name)) for each in fields(self)}


def island_environment(environ: Mapping[str, str] | None = None) -> IslandEnvironment | None:
    """Return this process's place in its island; None where a worker is one process.

    >>> island_environment(IslandEnvironment(1, 2, "/tmp/store").variables())
    IslandEnvironment(part=1, size=2, store='/tmp/store')
    """
    environ = os.environ if environ is None else environ
    part, size, store = (environ.get(f"TAUT_ISLAND_{name}", "") for name in ("PART", "SIZE", "STORE"))
    return IslandEnvironment(int(part), int(size), store) if part.isdecimal() and size.isdecimal() and store else None


def worker_environment(environ: Mapping[str, str] | None = None) -> WorkerEnvironment | None:
    """Return the launcher's settings; None without a launcher: the process is then a run of one worker."""
    environ = os.environ if environ is None else environ
    supervisor = environ.get("TAUT_SUPERVISOR")
    if not supervisor:
        return None
    token, token_file = environ.get("TAUT_TOKEN") or None, environ.get("TAUT_TOKEN_FILE") or None
    if token is None and token_file is None:
        raise Misuse(
            f"TAUT_SUPERVISOR = {supervisor!r} without a token",
            "the run's token beside the address",
            "set TAUT_TOKEN_FILE to the file that `taut supervisor` named, or TAUT_TOKEN to its text",
        )
    return WorkerEnvironment(
        supervisor,
        token,
        token_file,
        environ.get("TAUT_BIND") or "127.0.0.1",
        environ.get("TAUT_ADVERTISE") or None,
        process_base=int(base) if (base := environ.get("TAUT_PROCESS_BASE", "")).isdecimal() else 0,
        announces=environ.get("TAUT_ANNOUNCES") == "1",
    )
