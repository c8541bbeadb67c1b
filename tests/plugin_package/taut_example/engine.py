"""Each worker a fresh ``python SCRIPT``, and nothing else."""

from __future__ import annotations

import os
import subprocess
import time
from typing import Any, ClassVar

from taut.engines.base import Engine, Exit
from taut.engines.local import describe_exit
from taut.engines.script import command


class Plain(Engine):
    """``--engine plain``."""

    name: ClassVar[str] = "plain"

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self.own_log.write_text("started by taut_example\n")
        for index, log in enumerate(self.logs):
            with open(log, "ab") as output:
                process = subprocess.Popen(
                    command(self.script, self.args),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=os.environ | self.environment,
                )
            self._processes[process.pid] = process
            self.pids[process.pid] = self.started[process.pid] = index

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        until_s, ended = time.monotonic() + timeout_s, self._ended()
        while not ended and time.monotonic() < until_s:
            time.sleep(0.01)
            ended = self._ended()
        return [Exit(pid, describe_exit(code), code == 0, self.pids.pop(pid), code) for pid, code in ended]

    def _ended(self) -> list[tuple[int, int]]:
        found = [(pid, self._processes[pid].poll()) for pid in self.pids]
        return [(pid, code) for pid, code in found if code is not None]

    @property
    def running(self) -> bool:
        return bool(self.pids)

    def terminate(self) -> None:
        for pid in self.pids:
            self._processes[pid].terminate()

    def kill(self) -> None:
        for pid in self.pids:
            self._processes[pid].kill()

    def close(self) -> None:
        self.kill()
        for process in self._processes.values():
            process.wait()
