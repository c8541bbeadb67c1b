"""Whether a host can train: its facts against those of this machine, and what to try where it cannot. No I/O.

| there | says |
|---|---|
| Python before 3.11, no taut, no torch, another protocol of taut | refused |
| another script or file, no such directory, devices that are not there | refused |
| another version of taut with the same protocol, another version of torch | a warning |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from taut.config.hosts import Host
from taut.engines.ssh.session import Facts

_SSH_WORDS = (  # what ssh says, and what to try
    ("could not resolve hostname", "check the name, or give its address"),
    ("connection refused", "does sshd run there, at that port?"),
    ("timed out", "is the machine on, and does a firewall let ssh through?"),
    ("no route to host", "is the machine on, and in a network that is reached from here?"),
    ("network is unreachable", "is the machine in a network that is reached from here?"),
    ("host key verification failed", "connect once by hand and check its key: ssh {destination}"),
    ("identification has changed", "its key is not the one that is known: find out why, then ssh-keygen -R"),
    ("permission denied", "is the user right? a key lets you in without a password: ssh-copy-id {destination}"),
    ("too many authentication failures", "name the key in ~/.ssh/config: IdentityFile and IdentitiesOnly yes"),
)


@dataclass(frozen=True)
class Wanted:
    """The script and files as they are here, and this machine's versions. ``sources`` and ``files``: name to digest."""

    taut: str
    protocol: int
    torch: str
    sources: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    module: str = ""


def unreachable(host: Host, code: int | None, said: str, python: str, version: str = "") -> str:
    """Return why no agent answers: from ssh's exit ``code`` and words, and the ``version`` of Python if that was told.

    >>> unreachable(Host("b"), 255, "ssh: connect to host b port 22: Connection refused", "python3")
    'ssh: connect to host b port 22: Connection refused; does sshd run there, at that port?'
    """
    if version:
        return f"{python} there is Python {version}: expected 3.11 or newer; {_NAME_PYTHON}"
    last = _last_line(said)
    if code is None:
        return f"no answer; try by hand: ssh {host.destination} {python} --version"
    if code == 255:
        remedies = [remedy for words, remedy in _SSH_WORDS if words in said.lower()]
        remedy = remedies[0].format(destination=host.destination) if remedies else f"try by hand: ssh {host.destination}"
        return f"{last or 'ssh failed'}; {remedy}"
    if code in (126, 127):
        return f"{python} cannot be run there ({last or f'exit code {code}'}); {_NAME_PYTHON}"
    return f"{python} ended with exit code {code} ({last or 'it said nothing'}); {_NAME_PYTHON}"


_NAME_PYTHON = "name a Python that has taut: --ssh-python, or python in hosts.toml"


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def problems(host: Host, facts: Facts, wanted: Wanted, python: str) -> list[str]:
    """Return what keeps the host from training; nothing where it can."""
    if not facts.directory:
        return [f"there is no folder {host.directory}; make it, or leave directory away: the script is then sent"]
    found = []
    if not facts.taut:
        install = f"ssh {host.destination} {python} -m pip install taut=={wanted.taut}"
        found.append(f"taut cannot be imported by {python} ({facts.wrong}); {install}, or {_NAME_PYTHON}")
    elif facts.protocol != wanted.protocol:
        found.append(
            f"taut {facts.taut} there speaks protocol {facts.protocol}: expected {wanted.protocol}, as taut "
            f"{wanted.taut} here does; install the same version on both"
        )
    if not facts.torch:
        found.append(f"{python} has no torch; {_NAME_PYTHON}")
    if facts.devices:
        found.append(facts.devices)
    if wanted.module and not facts.module:
        found.append(f"no module {wanted.module} there; a module is not sent: install it, or name its folder: directory")
    return found + _differences(host, facts, wanted)


def _differences(host: Host, facts: Facts, wanted: Wanted) -> list[str]:
    """Compare the files there with those here."""
    where = f"in {host.directory}" if host.directory else "there"
    send = "copy it there, or leave directory away: the script is then sent"
    found = _compared(wanted.sources, facts.sources, where, send)
    return found + _compared(wanted.files, facts.files, where, "copy it there (a path is from directory, else the home)")


def _compared(here: Mapping[str, str], there: Sequence[str], where: str, remedy: str) -> list[str]:
    found = []
    for (name, expected), digest in zip(here.items(), [*there, *[""] * len(here)], strict=False):
        if not digest:
            found.append(f"no file {name} {where}; {remedy}")
        elif digest != expected:
            found.append(f"{name} {where} has SHA-256 {digest[:16]}, here it has {expected[:16]}; {remedy}")
    return found


def warnings(facts: Facts, wanted: Wanted) -> list[str]:
    """Return the differences with which a run may still go well.

    >>> here = Wanted("1.0", 2, "2.13.0+cpu")
    >>> warnings(Facts("b", 2, True, "1.0", 2, "2.12.1", "", [], []), here)
    ['torch 2.12.1 there, 2.13.0+cpu here: their results may differ in the last digits']
    """
    found = []
    if facts.taut != wanted.taut:
        found.append(f"taut {facts.taut} there, {wanted.taut} here, with the same protocol")
    if facts.torch.partition("+")[0] != wanted.torch.partition("+")[0]:
        found.append(f"torch {facts.torch} there, {wanted.torch} here: their results may differ in the last digits")
    return found


def listening_address(found: Sequence[str]) -> str:
    """Return the address to listen on, of those that this machine uses to reach each host: one that others reach, too.

    >>> listening_address(["127.0.0.1", "10.0.0.1", "10.1.0.1"]), listening_address(["::1"])
    ('10.0.0.1', '::1')
    """
    return next((each for each in found if not each.startswith("127.") and each != "::1"), found[0])
