"""All hosts of a run: connect to each at once, check each, and refuse the run where one cannot train."""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import queue
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import taut
from taut.config.hosts import Host
from taut.core.messages import PROTOCOL_VERSION
from taut.core.versions import package_versions
from taut.engines.ssh.agent import digest
from taut.engines.ssh.session import CONNECT_S, Facts, Session, Told
from taut.engines.ssh.sources import sources_of
from taut.engines.ssh.verdict import Wanted, listening_address, problems, unreachable, warnings
from taut.errors import Misuse
from taut.transport.endpoint import own_address
from taut.worker.joining.main_script import module_of

PYTHON = "python3"
MEANWHILE = "taut.supervisor.service"  # what a run imports next, while the hosts answer: half a second
LOOK_S = 60.0  # for a host that let us in to say what it is like: its disk may be slow


class Connections:
    """The sessions with the hosts, in their order. ``facts``: what each host is like, once `check` has gone well.

    Arguments:
        hosts: with their numbers of workers.
        ssh: the ssh program, with options.
        python: for hosts that name none.
        threads: of each worker; None: a host's cores, shared by its workers.
    """

    def __init__(self, hosts: Sequence[Host], ssh: str, python: str, threads: int | None) -> None:
        self.hosts, self.python, self.threads = tuple(hosts), python, threads
        self.ssh = shlex.split(ssh)
        self.events: queue.SimpleQueue[tuple[int, Told]] = queue.SimpleQueue()
        self.sessions = [Session(number, host, self.events) for number, host in enumerate(self.hosts)]
        self.facts: dict[int, Facts] = {}
        self._names: list[str] = []  # that ssh's settings give the hosts
        if not self.ssh or shutil.which(self.ssh[0]) is None:
            raise Misuse(f"--ssh-command = {ssh!r}", "the ssh program", "Debian and Ubuntu: apt install openssh-client")

    def check(self, script: str, same_files: Sequence[str], devices: str | None, preload: Sequence[str]) -> list[str]:
        """Connect to every host and return the warnings about them. Raise ``Misuse`` with a line for each host that
        cannot train; nothing is left on any host then."""
        try:
            wanted, sent = _wanted(script, same_files)
            for session in self.sessions:
                session.open(self.ssh, self.python, look=self._task(session.host, wanted, sent, devices, preload))
            importlib.import_module(MEANWHILE)
            self._names = [self._hostname(host) for host in self.hosts]
            self._await_facts()
            wrong = [line for session in self.sessions for line in self._wrong(session, wanted)]
            if wrong:
                count = len({line.partition(":")[0] for line in wrong})
                given = f"{count} of {len(self.hosts)} hosts" if len(self.hosts) > 1 else "the host"
                raise Misuse(given, "hosts that can train:\n" + "\n".join(wrong))
        except BaseException:  # Ctrl-C, too
            self.close()
            raise
        return [
            f"{session.host.name}: {text}"
            for session in self.sessions
            for text in warnings(self.facts[session.number], wanted)
        ]

    def _task(
        self, host: Host, wanted: Wanted, sent: Mapping[str, bytes], devices: str | None, preload: Sequence[str]
    ) -> dict[str, object]:
        texts = {} if host.directory else sent
        return {
            "directory": host.directory,
            "sources": [[name, base64.b64encode(texts.get(name, b"")).decode()] for name in wanted.sources],
            "files": list(wanted.files),
            "module": wanted.module,
            "workers": host.workers,
            "devices": host.devices or devices,
            "threads": self.threads,
            "preload": list(preload),
        }

    def _await_facts(self) -> None:
        """Wait until every host has told its facts, or is lost, or has had its time."""
        waiting, deadline = {session.number for session in self.sessions}, time.monotonic() + CONNECT_S + LOOK_S
        while waiting:
            try:
                number, told = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                return
            if told.facts is not None:
                self.facts[number] = told.facts
            if told.facts is not None or told.lost:
                waiting.discard(number)

    def _wrong(self, session: Session, wanted: Wanted) -> list[str]:
        """Return a line for each thing that keeps the host from training."""
        host, python, facts = session.host, session.host.python or self.python, self.facts.get(session.number)
        if facts is None:
            version = session.python if session.refused else ""
            found = [unreachable(host, session.code, session.said, python, version)]
        else:
            found = problems(host, facts, wanted, python)
        return [f"  {host.name}: {text}" for text in found]

    def bind_address(self) -> str:
        """Return the address of this machine that the hosts can reach."""
        return listening_address([own_address(_bracketed(name)) for name in self._names])

    def _hostname(self, host: Host) -> str:
        """Ask ssh which address its settings give the host."""
        words = [*self.ssh, "-G", "--", host.destination]
        try:
            told = subprocess.run(words, capture_output=True, text=True, timeout=CONNECT_S, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return host.address or host.name
        lines = [line.split() for line in told.splitlines()]
        return next((line[1] for line in lines if line[:1] == ["hostname"] and len(line) > 1), host.name)

    def close(self) -> None:
        """End everything on the hosts, at all of them at once, and wait for it."""
        for session in self.sessions:
            session.ask_to_close()
        for session in self.sessions:
            session.close()


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _wanted(script: str, same_files: Sequence[str]) -> tuple[Wanted, dict[str, bytes]]:
    """Return what every host must have, and the files to send."""
    module = module_of(script)
    sent = {} if module else sources_of(script)
    files = {name: digest(os.path.expanduser(name)) for name in same_files}
    for name, found in files.items():
        if not found:
            raise Misuse(f"--same-file {name}", "a file that can be read here")
    here = package_versions("torch")
    sources = {name: hashlib.sha256(text).hexdigest() for name, text in sent.items()}
    return Wanted(taut.__version__, PROTOCOL_VERSION, here.get("torch", ""), sources, files, module), sent


def warn(texts: Sequence[str]) -> None:
    """Print warnings about hosts, before anything is shown of the run."""
    for text in texts:
        sys.stderr.write(f"warning: {text}\n")


def append(log: Path, data: bytes) -> None:
    """Add to a log. A full disk does not end a run."""
    try:
        with open(log, "ab") as file:
            file.write(data)
    except OSError:
        pass
