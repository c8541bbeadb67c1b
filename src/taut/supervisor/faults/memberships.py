"""Live memberships of a run in lock-step: those that may be in force, so that supervisor and workers cannot both go on.

The supervisor evicts workers, and workers that cannot reach it elect a membership of their own (``strategies/election``).
For each membership v that may be in force, those that stay must be more than half of its workers and the supervisor:

    2 (|heard in v| + 1) > |v| + 1        workers without a supervisor need 2 |votes in v| > |v|

Two such sets have a worker in common, which is in one of the two memberships at a time. A worker that has ended counts,
too, for it may have voted before, unless it was heard a moment ago, and heard the supervisor itself (``party``). A
membership may be in force from its announcement until all members of a later one have said that they are in that
(``Heartbeat.agreed``).

It would not do to count the present workers alone: workers that fall silent one after the other would each be evicted by
enough others, and newcomers would outvote those that cannot be heard. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from taut.core.messages import View


class AnnouncedMembership(Struct, array_like=True):
    """A membership that workers were told of, under the stamps from ``first`` to ``last``, as snapshots have it, too."""

    first: int
    last: int
    members: frozenset[int]


class LiveMemberships(Struct):
    """The live memberships. ``told``: in order of announcement.

    >>> memberships = LiveMemberships()
    >>> memberships.tell(1, {0, 1, 2, 3}, started=True)
    >>> memberships.enough({3}), memberships.enough({2, 3})
    (False, True)
    >>> memberships.tell(2, {0, 1, 2, 3, 4, 5, 6}, started=True)  # three newcomers, unknown to workers 0 to 2
    >>> memberships.enough({3, 4, 5, 6})
    False
    >>> memberships.agreed(2)  # known now
    >>> memberships.enough({3, 4, 5, 6})
    True
    """

    told: list[AnnouncedMembership] = []

    def tell(self, stamp: int, members: Collection[int], started: bool) -> None:
        """Note that these members were announced to, or elected by, workers. Before the start, earlier ones are void."""
        now = frozenset(members)
        if self.told and self.told[-1].members == now:
            self.told[-1].last = stamp
            return
        if not started:
            self.told.clear()
        self.told.append(AnnouncedMembership(stamp, stamp, now))

    def agreed(self, stamp: int) -> None:
        """Forget every membership announced before this one, and any later-announced one that sorts before it (announced
        before the supervisor knew of the election): all members of the one under this stamp are in it, or beyond."""
        at = next((at for at, each in enumerate(self.told) if each.first <= stamp <= each.last), None)
        if at is not None:
            self.told = [each for each in self.told[at:] if each.last >= self.told[at].first]

    def elected(self, view: View) -> bool:
        """Add a membership that workers elected, or may have. Return False if it is known."""
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
        """Return whether the heard workers may go on without the others. ``party``: whether a worker may have gone on
        without the supervisor; ``claimed``: memberships that are said to have, which is being checked."""
        for members in (*(each.members for each in self.told), *claimed):
            parties = [rank for rank in members if rank in heard or party(rank)]
            if 2 * (sum(rank in heard for rank in parties) + 1) <= len(parties) + 1:
                return False
        return True
