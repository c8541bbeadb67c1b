"""How busy this host is: its processors and memory as Linux tells, its GPUs as NVIDIA's library does.

It is for people who look at a run: nothing depends on it, and what a system does not tell is left unknown.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from taut.core.clock import Clock, MonotonicClock
from taut.core.messages import HostUse
from taut.worker.comm.nvml import GpuUse, Nvml

EVERY_S = 2.0
PROC = Path("/proc")


class HostMeter:
    """Reads the use of this host, at most every ``EVERY_S`` seconds. ``proc``: where Linux shows it."""

    def __init__(self, clock: Clock | None = None, proc: Path = PROC) -> None:
        self._clock, self._proc = clock or MonotonicClock(), proc
        self._read_s = float("-inf")
        self._before = (0, 0)  # ticks that the processors were busy, and all of them
        self._nvml: Nvml | None = None

    def read(self) -> HostUse | None:
        """Return how busy the host was since the last reading; None where that is a moment ago, or nothing is known."""
        now = self._clock.now()
        if now - self._read_s < EVERY_S or not sys.platform.startswith("linux"):
            return None
        self._read_s = now
        try:
            busy, every = ticks((self._proc / "stat").read_text())
            used, whole = memory((self._proc / "meminfo").read_text())
        except (OSError, ValueError, KeyError, IndexError):  # a system that shows these files otherwise, or not at all
            return None
        (busy_before, before), self._before = self._before, (busy, every)
        share = (busy - busy_before) / (every - before) if before and every > before else -1.0
        gpus = self._gpus()
        return HostUse(min(1.0, max(-1.0, share)), os.cpu_count() or 0, used, whole, *gpus)

    def _gpus(self) -> GpuUse:
        if self._nvml is None:
            self._nvml = Nvml()
        return self._nvml.read()


def ticks(stat: str) -> tuple[int, int]:
    """Return how many ticks the processors were busy, and all ticks, since the system's start.

    >>> ticks("cpu  10 0 20 60 10 0 0 0 0 0\\ncpu0 ...")
    (30, 100)
    """
    each = [int(number) for number in stat.split("\n", 1)[0].split()[1:9]]  # what comes after that is in them already
    return sum(each) - each[3] - each[4], sum(each)  # idle, and waiting for a disk


def memory(meminfo: str) -> tuple[int, int]:
    """Return the bytes of memory that are not available, and all.

    >>> memory("MemTotal:       100 kB\\nMemFree:  10 kB\\nMemAvailable:   40 kB\\n")
    (61440, 102400)
    """
    found = {name: rest for name, _, rest in (line.partition(":") for line in meminfo.splitlines())}
    whole, free = (1024 * int(found[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    return whole - free, whole
