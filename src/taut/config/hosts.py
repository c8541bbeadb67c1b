"""The hosts of a run over ssh: ``a,b:2,ada@c``, or a TOML file with more about each.

Names and users may not begin with a dash, and have no characters that a shell or ssh reads otherwise: they stand on the
command line of ssh.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.errors import Misuse
from taut.specs import did_you_mean

if TYPE_CHECKING:
    from taut.config.settings import Settings

MAX_WORKERS = 4096  # on one host
EXAMPLE = "as in a,b:2,ada@c (two workers on b), or a file hosts.toml"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}"
_ADDRESS = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}"
_IPV6 = r"[0-9A-Fa-f:.]{2,45}(?:%[A-Za-z0-9]{1,15})?"
_ITEM = re.compile(rf"(?:({_USER})@)?(?:({_ADDRESS})|\[({_IPV6})\])(?::([0-9]{{1,5}}))?")


@dataclass(frozen=True)
class Host:
    """A machine that ssh reaches. ``workers``: None takes its share of ``--workers``, or one.

    ``python`` is the program there; ``directory`` a folder there that has the script; ``devices`` as for ``--devices``.
    An empty text: nothing was said.
    """

    name: str
    address: str = ""
    user: str = ""
    port: int | None = None
    python: str = ""
    directory: str = ""
    workers: int | None = None
    devices: str = ""

    @property
    def destination(self) -> str:
        """Return the host as ssh takes it.

        >>> Host("b", user="ada").destination, Host("b", address="10.0.0.2").destination
        ('ada@b', '10.0.0.2')
        """
        return (f"{self.user}@" if self.user else "") + (self.address or self.name)


def parse_hosts(text: str, blame: str = "--hosts") -> tuple[Host, ...]:
    """Return the hosts of ``[USER@]HOST[:WORKERS],...``.

    >>> [(host.destination, host.workers) for host in parse_hosts("a,ada@b:2,[fe80::1]:3")]
    [('a', None), ('ada@b', 2), ('fe80::1', 3)]
    """
    found = []
    for word in text.split(","):
        item = _ITEM.fullmatch(word.strip())
        if item is None:
            raise Misuse(f"{blame} = {text!r}: {word.strip()!r}", "[USER@]HOST[:WORKERS]", EXAMPLE)
        user, name, ipv6, workers = item.groups()
        count = None if workers is None else _number(int(workers), 1, MAX_WORKERS, f"{blame} = {text!r}: {word!r}")
        found.append(Host(name or ipv6, user=user or "", workers=count))
    return _once(found, blame)


def parse_hosts_toml(text: str, blame: str) -> tuple[Host, ...]:
    """Return the hosts of a TOML file: a table ``[hosts.NAME]`` for each, and ``[defaults]`` for all of them.

    >>> parse_hosts_toml('[defaults]\\nuser = "ada"\\n[hosts.a]\\n[hosts.b]\\nworkers = 2', "hosts.toml")[1].destination
    'ada@b'
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misuse(blame, "a TOML file", str(error)) from None
    for name in tables:
        if name not in ("defaults", "hosts"):
            raise Misuse(f"{blame}: [{name}]", "[hosts.NAME] and [defaults]", did_you_mean(name, ("defaults", "hosts")))
    hosts, defaults = tables.get("hosts", {}), tables.get("defaults", {})
    if not isinstance(hosts, dict) or not hosts or not all(isinstance(each, dict) for each in hosts.values()):
        raise Misuse(f"{blame}: hosts", "a table [hosts.NAME] for each host")
    if not isinstance(defaults, dict):
        raise Misuse(f"{blame}: defaults", "a table [defaults]")
    known = _fields(defaults, f"{blame}: [defaults]")
    return _once([_from_table(name, known, table, blame) for name, table in hosts.items()], blame)


def _from_table(name: str, defaults: Mapping[str, Any], table: Mapping[str, object], blame: str) -> Host:
    own = dict(defaults) | _fields(table, f"{blame}: [hosts.{name}]")
    address = own.get("address", name)
    if not re.fullmatch(f"{_ADDRESS}|{_IPV6}", address):
        raise Misuse(f"{blame}: [hosts.{name}]: {address!r}", "a host's name or address, as ssh takes it")
    return Host(name, **own)


def _fields(table: Mapping[str, object], blame: str) -> dict[str, Any]:
    """Return the checked values of one table."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        what = f"{blame} {key} = {value!r}"
        if key not in _CHECKS:
            raise Misuse(f"{blame} {key}", "one of " + ", ".join(_CHECKS), did_you_mean(key, _CHECKS))
        found[key] = _CHECKS[key](value, what)
    return found


def _number(value: object, least: int, most: int, blame: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Misuse(blame, f"a whole number from {least} to {most}")
    return value


def _text(value: object, blame: str) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable() or value.startswith("-"):
        raise Misuse(blame, "a text that is not empty and does not begin with a dash")
    return value


def _user(value: object, blame: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(_USER, value):
        raise Misuse(blame, "the name of a user there")
    return value


def _devices(value: object, blame: str) -> str:
    from taut.config.checks import devices

    return str(devices(value, blame))


_CHECKS: dict[str, Any] = {
    "address": _text,
    "user": _user,
    "port": lambda value, blame: _number(value, 1, 65_535, blame),
    "python": _text,
    "directory": _text,
    "workers": lambda value, blame: _number(value, 1, MAX_WORKERS, blame),
    "devices": _devices,
}


def _once(hosts: Sequence[Host], blame: str) -> tuple[Host, ...]:
    """Refuse a host that stands there twice."""
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise Misuse(f"{blame}: {name} twice", "each host once", f"{name}:2 puts two workers on it")
    return tuple(hosts)


def read_hosts(given: str, blame: str = "--hosts") -> tuple[Host, ...]:
    """Return the hosts of a list, or of the TOML file that ``given`` names."""
    if not given.endswith(".toml"):
        return parse_hosts(given, blame)
    try:
        text = Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise Misuse(f"{blame} = {given!r} ({reason})", "a TOML file that can be read", EXAMPLE) from None
    return parse_hosts_toml(text, given)


def dealt(hosts: Sequence[Host], workers: int | None, blame: str = "--hosts") -> tuple[Host, ...]:
    """Return the hosts with a number of workers each: those that say none share what is left of ``workers``, in turn.

    >>> [host.workers for host in dealt(parse_hosts("a,b:2,c"), 6)]
    [2, 2, 2]
    """
    open_ones = [host.name for host in hosts if host.workers is None]
    taken = sum(host.workers or 0 for host in hosts)
    left = len(open_ones) if workers is None else workers - taken
    if left < len(open_ones) or (left and not open_ones):
        needed = f"{taken} workers" if not open_ones else f"at least {taken + len(open_ones)} workers"
        raise Misuse(f"--workers {workers} beside {blame}", f"{needed}, as the hosts say", "leave --workers away")
    shares = {name: left // len(open_ones) + (k < left % len(open_ones)) for k, name in enumerate(open_ones)}
    return tuple(replace(host, workers=host.workers or shares[host.name]) for host in hosts)


def with_hosts(settings: Settings) -> Settings:
    """Return the settings of a run on ``--hosts``: the engine is ``ssh``, and the hosts say how many workers."""
    if not settings.hosts:
        if settings.same_file:
            raise Misuse(f"--same-file {settings.same_file[0]} without --hosts", "hosts to compare the file with")
        return settings
    if settings.engine != "ssh" and settings.sources.get("engine", "default") != "default":
        raise Misuse(f"--engine {settings.engine} beside --hosts", "--engine ssh, or none", "--hosts are reached by ssh")
    said = settings.workers if settings.sources.get("workers", "default") != "default" else None
    workers = sum(host.workers or 0 for host in dealt(read_hosts(settings.hosts), said))
    sources = dict(settings.sources) | {"workers": settings.sources.get("hosts", "flag")}
    return replace(settings, engine="ssh", workers=workers, sources=sources)
