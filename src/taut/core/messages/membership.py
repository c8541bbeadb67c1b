"""A membership with its stamp in the order of memberships, as workers elect them without a supervisor."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from taut.core.messages.base import MAX_WORKERS, Rank

STRIDE = 1 << 32  # more versions of the supervisor's roster than a run ever has
MOST_VIEWS = 16  # that may be in force at once

ViewNumber = Annotated[int, Meta(ge=0, le=2**20)]  # a stamp is below 2^53, so that a float holds it
RosterVersion = Annotated[int, Meta(ge=0, le=STRIDE - 1)]


class View(Struct, frozen=True, array_like=True):
    """A membership. ``number`` counts elections, ``version`` is that of the supervisor's roster; ``own``: elected by
    the workers. ``stamp`` orders all memberships of a run: an election comes after every roster of a supervisor that
    does not know of it.

    >>> View(0, 7, [0, 1, 2]).stamp < View(1, 7, [0, 1], own=True).stamp < View(1, 8, [0, 1]).stamp
    True
    """

    number: ViewNumber
    version: RosterVersion
    members: Annotated[list[Rank], Meta(max_length=MAX_WORKERS)]
    own: bool = False

    @property
    def stamp(self) -> int:
        return self.number * STRIDE + self.version
