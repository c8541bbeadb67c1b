"""A run that changes its strategy: ``sync for 200 steps, then async for 1000 steps, then averaging:every=8``.

A phase lasts until every worker has made at least so many steps in it; nobody waits for that. Then the supervisor says
so, and each worker, at the end of its step, ends the phase as it would end a run: what is under way arrives,
replicas that differ are averaged, and from the weights on which all agree the next phase starts. So a change is agreed
upon, and never half applied. The optimizer and its moments go on through it.

Where processors round differently, replicas that must stay equal drift apart. The last phase then begins again every
``resync`` steps, for as long as the run lasts, and with each beginning the replicas are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taut.errors import Misuse
from taut.strategies.registry import Choice, parse

_THEN = re.compile(r"\s*,?\s*\bthen\b\s*")
_FOR = re.compile(r"(?P<what>.*?)\s+for\s+(?P<steps>\d+)(?:\s+steps?)?\s*,?", re.DOTALL)


@dataclass(frozen=True)
class Phase:
    """One strategy of a schedule, and how many steps each worker makes in it at least; None: to the end."""

    choice: Choice
    steps: int | None = None

    def __str__(self) -> str:
        return str(self.choice) if self.steps is None else f"{self.choice} for {self.steps} steps"


@dataclass(frozen=True)
class PhaseSchedule:
    """The phases of a run, one after the other. Most runs have one.

    >>> schedule = parse_schedule("sync for 200 steps, then async")
    >>> [str(phase) for phase in schedule.phases]
    ['sync for 200 steps', 'async']
    >>> str(schedule)
    'sync for 200 steps, then async'
    """

    phases: tuple[Phase, ...]

    @property
    def first(self) -> Choice:
        return self.phases[0].choice

    @property
    def last(self) -> Choice:
        return self.phases[-1].choice

    @property
    def resync(self) -> int:
        """Return after how many steps the last phase begins again, where processors round differently; 0: never."""
        return self.last.method().resync_steps if self.last.is_method else 0

    def at(self, number: int) -> Phase:
        """Return phase ``number``; after the last one comes the last one again.

        >>> schedule = parse_schedule("async for 5 steps, then sync:resync=100")
        >>> schedule.at(0).steps, schedule.at(1).steps, schedule.at(7).steps
        (5, 100, 100)
        """
        return self.phases[number] if number < len(self.phases) - 1 else self._lasting

    @cached_property
    def endless(self) -> bool:
        """Return whether there is one phase, which never ends."""
        return len(self.phases) == 1 and not self.resync

    @cached_property
    def _lasting(self) -> Phase:
        return Phase(self.last, self.resync or None)

    @property
    def choices(self) -> list[Choice]:
        return [phase.choice for phase in self.phases]

    def __str__(self) -> str:
        return ", then ".join(str(phase) for phase in self.phases)


def parse_schedule(given: str | Mapping[str, Any]) -> PhaseSchedule:
    """Read one strategy, or several in phases."""
    if not isinstance(given, str) or not (_THEN.search(given) or _FOR.fullmatch(given.strip())):
        return PhaseSchedule((Phase(parse(given)),))
    phases = [_phase(part.strip(), given) for part in _THEN.split(given)]
    for phase in phases[:-1]:
        if phase.steps is None:
            remedy = f"as in '{phase} for 200 steps, then'"
            raise Misuse(f"strategy {given!r}", f"for how many steps {phase} lasts", remedy)
    if phases[-1].steps is not None:
        remedy = f"drop 'for {phases[-1].steps} steps', or say what comes then"
        raise Misuse(f"strategy {given!r}", "a last phase that lasts to the end", remedy)
    return PhaseSchedule(tuple(phases))


def _phase(text: str, given: str) -> Phase:
    match = _FOR.fullmatch(text)
    if match is None:
        if not text:
            raise Misuse(f"strategy {given!r}", "a strategy before and after every 'then'")
        return Phase(parse(text))
    steps = int(match["steps"])
    if steps < 1:
        raise Misuse(f"strategy {given!r}", "at least 1 step in each phase")
    return Phase(parse(match["what"]), steps)
