"""Kernels that workers will need, compiled before the workers are started, by as many processes as there are cores.

Only a process without other threads may fork: the zygote calls this before it starts anything.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence

from taut.codecs.kernels.cpu.compilation import Kernel, missing
from taut.config import cores


def prepare_kernels(names: Sequence[str], tell: Callable[[int, int], None]) -> None:
    """Load these kernels, and compile those that are not in the cache; ``tell`` how many of those are compiled so far."""
    wanted = missing(names)
    if not wanted:
        return
    tell(0, len(wanted))
    if len(wanted) > 1 and cores() > 1 and all(kernel.kept for kernel in wanted):
        _compile_in_forks(wanted, tell)
    for kernel in wanted:
        kernel.compile()  # a fork has compiled it, and it comes from the cache
    tell(len(wanted), len(wanted))


def _compile_in_forks(kernels: Sequence[Kernel], tell: Callable[[int, int], None]) -> None:
    """Compile ``kernels`` into the cache. Each fork takes the next number from a pipe, and reports it when it is done."""
    tasks, offer = os.pipe()
    done, report = os.pipe()
    os.write(offer, bytes(range(len(kernels))))
    os.close(offer)
    children = []
    for _ in range(min(cores(), len(kernels))):
        child = os.fork()
        if not child:
            try:
                gc.disable()
                while number := os.read(tasks, 1):
                    kernels[number[0]].compile()
                    os.write(report, number)
            finally:
                os._exit(0)
        children.append(child)
    os.close(tasks)
    os.close(report)
    finished = 0
    while os.read(done, 1):
        finished += 1
        tell(finished, len(kernels))
    os.close(done)
    for child in children:
        os.waitpid(child, 0)
