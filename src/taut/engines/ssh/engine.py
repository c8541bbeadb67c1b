"""Workers on hosts that ssh reaches: ``taut run --hosts a,b:2 SCRIPT``.

ssh carries the script, the token and the workers' output; updates go directly between the workers, encrypted, as with
every engine. On each host an agent (agent.py) starts its workers with that machine's own ``local`` engine. A host that is
lost takes its workers along, and the run goes on.
"""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from taut.config.hosts import Host, dealt, read_hosts
from taut.engines.base import Engine, Exit
from taut.engines.ssh.connections import PYTHON, Connections, append, warn
from taut.engines.ssh.session import Told, decoded
from taut.errors import Misuse
from taut.transport.endpoint import split
from taut.transport.keys import read_token_file

if TYPE_CHECKING:
    from taut.config import Settings

HOST_STEP = 10_000_000  # process ids of a host are told apart by this: above those of any system
EVERYWHERE = "0.0.0.0"


class SshEngine(Engine):
    """Workers on the machines ``hosts``, host by host in their order. `adapted` connects to them."""

    name: ClassVar[str] = "ssh"
    own_settings: ClassVar[tuple[str, ...]] = ("hosts", "same_file", "ssh_command", "ssh_python")
    _checked: ClassVar[Connections | None] = None  # by `adapted`, for the engine that is made next

    def __init__(
        self,
        *args: Any,
        log_dir: str | Path,
        hosts: str | None = None,
        same_file: tuple[str, ...] = (),
        ssh_command: str = "ssh",
        ssh_python: str = PYTHON,
        **settings: Any,
    ) -> None:
        super().__init__(*args, log_dir=log_dir, **settings)
        known, SshEngine._checked = SshEngine._checked, None
        if known is None:
            hosts_dealt = dealt(_read(hosts), len(self.logs))
            known = Connections(hosts_dealt, ssh_command, ssh_python, self.threads)
            warn(known.check(self.script, same_file, self.devices, self.preload))
        self._hosts = known
        self._token = read_token_file(self.environment.pop("TAUT_TOKEN_FILE"))
        self.slots = [(number, local) for number, host in enumerate(known.hosts) for local in range(host.workers or 0)]
        self._alive = set(range(len(self.logs)))
        self._compiling: dict[int, tuple[int, int]] = {}
        self._closed = False
        self.remarks = [self._remark(number) for number in range(len(known.hosts))]

    @classmethod
    def adapted(cls, settings: Settings, script: str | Path) -> Settings:
        """Connect to the hosts and check them; the supervisor listens at an address that they reach."""
        hosts_dealt = dealt(_read(settings.hosts), settings.workers)
        hosts = Connections(hosts_dealt, settings.ssh_command, settings.ssh_python, settings.threads)
        warn(hosts.check(str(script), settings.same_file, settings.devices, settings.preload))
        try:
            bind = settings.bind
            if settings.sources.get("bind", "default") == "default":
                bind = EVERYWHERE if settings.advertise else hosts.bind_address()
        except BaseException:
            hosts.close()
            raise
        SshEngine._checked = hosts
        return replace(settings, bind=bind)

    # ------------------------------------------------------------------------------------------------ start

    def start(self) -> None:
        supervisor = self.environment["TAUT_SUPERVISOR"]
        if not supervisor.startswith("tcp://"):
            raise Misuse(f"the address {supervisor}", "a transport between machines", "zmq is the default")
        for number, session in enumerate(self._hosts.sessions):
            append(self.own_log, f"{self.remarks[number]}\n".encode())
            known = {name: text for name, text in self.environment.items() if name not in ("TAUT_ADVERTISE", "TAUT_BIND")}
            session.send(
                start={
                    "args": self.args,
                    "token": self._token,
                    "environment": known | {"TAUT_PROCESS_BASE": str(self._base(number))},
                    "towards": split(supervisor, "supervisor"),
                    "workers": session.host.workers,
                    "threads": self._hosts.threads,
                    "start": self.start_by,
                    "preload": self.preload,
                    "kernels": self.kernels,
                    "devices": session.host.devices or self.devices,
                }
            )

    @staticmethod
    def _base(number: int) -> int:
        return HOST_STEP * (number + 1)  # this machine's own processes have none added

    def _indices(self, number: int) -> list[int]:
        return [index for index, (host, _) in enumerate(self.slots) if host == number]

    def _remark(self, number: int) -> str:
        """Say which workers are on the host, and what it has."""
        facts, host, indices = self._hosts.facts[number], self._hosts.hosts[number], self._indices(number)
        workers = f"worker {indices[0]}" if len(indices) == 1 else f"workers {indices[0]} to {indices[-1]}"
        return f"{host.name}: {workers}, Python {facts.python}, torch {facts.torch}, {facts.cores} cores"

    # ------------------------------------------------------------------------------------------------ messages

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        exits: list[Exit] = []
        while True:
            try:
                number, told = (
                    self._hosts.events.get(timeout=timeout_s) if timeout_s > 0 else self._hosts.events.get_nowait()
                )
            except queue.Empty:
                return exits
            timeout_s = 0.0
            exits += self._lost(number) if told.lost else self._heard(number, told)

    def _heard(self, number: int, told: Told) -> list[Exit]:
        """Take note of a host's message. An index or a process that is not the host's is passed over."""
        if told.compiling is not None or number in self._compiling:
            self._compiled(number, told)
        if told.output is not None and told.index == -1:
            append(self.own_log, decoded(told.output))
            return []
        indices = self._indices(number)
        if not 0 <= told.index < len(indices):
            return []
        index = indices[told.index]
        if told.output is not None:
            append(self.logs[index], decoded(told.output))
        elif told.started is not None:
            pid = told.started + self._base(number)
            self.pids[pid] = self.started[pid] = index
        elif told.exited is not None and index in self._alive:
            self._alive.discard(index)
            pid = told.exited + self._base(number) if told.exited else 0
            self.pids.pop(pid, None)
            return [Exit(pid, told.reason, told.code == 0, index, told.code)]
        return []

    def _compiled(self, number: int, told: Told) -> None:
        """Show the host that has most kernels left to compile."""
        if told.compiling is not None:
            self._compiling[number] = told.compiling
        elif told.started is not None:
            self._compiling.pop(number, None)
        self.compiling = min(self._compiling.values(), key=lambda each: each[0] - each[1], default=None)

    def _lost(self, number: int) -> list[Exit]:
        """Report the workers that were on a host whose connection ended."""
        session, lost = self._hosts.sessions[number], [index for index in self._indices(number) if index in self._alive]
        if not lost:
            return []
        said = session.said.splitlines()
        reason = f"killed by the loss of host {session.host.name}"
        append(self.own_log, f"{session.host.name}: lost ({said[-1] if said else 'the connection ended'})\n".encode())
        self._alive -= set(lost)
        pids = {index: pid for pid, index in self.pids.items()}
        for index in lost:
            self.pids.pop(pids.get(index, 0), None)
        return [Exit(pids.get(index, 0), reason, False, index, -9) for index in lost]

    # ------------------------------------------------------------------------------------------------ end

    @property
    def running(self) -> bool:
        return bool(self._alive)

    def terminate(self) -> None:
        self._end("terminate")

    def kill(self) -> None:
        self._end("kill")

    def _end(self, how: str) -> None:
        for session in self._hosts.sessions:
            session.send(end=how)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._hosts.close()
        self.poll()  # the last output


def _read(hosts: str | None) -> tuple[Host, ...]:
    if not hosts:
        raise Misuse("--engine ssh without --hosts", "the hosts to train on", "--hosts a,b:2 or --hosts hosts.toml")
    return read_hosts(hosts)
