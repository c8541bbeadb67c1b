"""Which memberships of a run in lock-step may be in force, so that the supervisor and the workers cannot both go on.

The supervisor gives workers up, and where it is not heard workers elect a membership of their own (``assembly.py``). For
each membership v that may be in force, those that stay must be more than half of its workers and the supervisor:

    2 (|heard in v| + 1) > |v| + 1        workers without a supervisor need 2 |votes in v| > |v|

Two such sets have a worker in common, and it is in one of the two memberships at a time. Who has ended counts, too, for
it may have voted before, unless it was heard a moment ago, and heard the supervisor itself (``party``). A membership may
be in force from when it was told until all members of a later one have said that they are in that (``Heartbeat.agreed``).

To count the workers of now alone would not do: of a half that falls silent one after the other each would be given up by
enough, and newcomers would outvote those who cannot be heard. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from taut.core.messages import View


@dataclass(slots=True)
class AnnouncedMembership:
    """A membership that workers were told of, under the stamps from ``first`` to ``last``."""

    first: int
    last: int
    members: frozenset[int]


@dataclass(slots=True)
class LiveMemberships:
    """``told``: the memberships that may be in force, in order.

    >>> agreement = LiveMemberships()
    >>> agreement.tell(1, {0, 1, 2, 3}, started=True)
    >>> agreement.enough({3}), agreement.enough({2, 3})
    (False, True)
    >>> agreement.tell(2, {0, 1, 2, 3, 4, 5, 6}, started=True)  # three newcomers, whom workers 0 to 2 have not met
    >>> agreement.enough({3, 4, 5, 6})
    False
    >>> agreement.agreed(2)  # they have
    >>> agreement.enough({3, 4, 5, 6})
    True
    """

    told: list[AnnouncedMembership] = field(default_factory=list)

    def tell(self, stamp: int, members: Collection[int], started: bool) -> None:
        """Workers are told, or decided, that these are the members. Before the run has ``started`` nothing was trained
        that could part."""
        now = frozenset(members)
        if self.told and self.told[-1].members == now:
            self.told[-1].last = stamp
            return
        if not started:
            self.told.clear()
        self.told.append(AnnouncedMembership(stamp, stamp, now))

    def agreed(self, stamp: int) -> None:
        """All members of the membership under this stamp are in it, or beyond: nothing that was told before is in force,
        nor what is earlier in the workers' order and was told while it was not known that they had gone on."""
        at = next((at for at, each in enumerate(self.told) if each.first <= stamp <= each.last), None)
        if at is not None:
            self.told = [each for each in self.told[at:] if each.last >= self.told[at].first]

    def elected(self, view: View) -> bool:
        """Workers went on by themselves, or may have. False: it is known."""
        told = AnnouncedMembership(view.stamp, view.stamp, frozenset(view.members))
        if told in self.told:
            return False
        self.told.append(told)
        return True

    def enough(
        self,
        heard: Collection[int],
        party: Callable[[int], bool] = lambda _: True,
        claimed: Sequence[Collection[int]] = (),
    ) -> bool:
        """Whether these may go on without the others. ``party``: this one may have gone on without us; ``claimed``: these
        are said to have, which is looked into."""
        for members in (*(each.members for each in self.told), *claimed):
            parties = [rank for rank in members if rank in heard or party(rank)]
            if 2 * (sum(rank in heard for rank in parties) + 1) <= len(parties) + 1:
                return False
        return True
