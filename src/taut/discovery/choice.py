"""Which of the supervisors that were found is the one to join. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from taut.core.printable import printable
from taut.errors import Misuse


class Announced(Protocol):
    """A supervisor that was found: the name of its run, and where it is."""

    @property
    def run(self) -> str: ...
    @property
    def address(self) -> str: ...


Which = TypeVar("Which", bound=Announced)


def choose(found: Sequence[Which], run: str | None, where: str) -> Which | None:
    """Return the supervisor of ``run``, or the only one where no run is named; None where there is none. Raise ``Misuse``
    where it could be several.

    >>> from taut.engines.launchers.rendezvous import Offer
    >>> found = [Offer("tcp://a:1", "calm-otter"), Offer("tcp://b:1", "shy-crab")]
    >>> choose(found, "shy-crab", "/shared").address, choose(found[:1], None, "/shared").run, choose(found, "x", "")
    ('tcp://b:1', 'calm-otter', None)
    """
    wanted = [one for one in found if run in (None, one.run)]
    if len(wanted) < 2:
        return wanted[0] if wanted else None
    told = " and ".join(sorted(printable(f"{one.run} at {one.address}") for one in wanted))
    same = len({one.run for one in wanted}) == 1
    remedy = "join one by --join ADDRESS --token-file FILE" if same else "choose one by --run NAME"
    raise Misuse(f"{len(wanted)} supervisors {where}: {told}", "one", remedy)
