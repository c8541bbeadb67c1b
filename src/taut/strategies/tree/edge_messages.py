"""Messages that cross the edges of a relay's trees: who has taken them, and how they get around a worker that is gone.

A message belongs to a tree (its ``key``), and is for its receiver and all behind that one as seen from ``via``: the
neighbour in that tree from which it comes, or in whose place. *got* says that it was taken. A worker that leaves says
*going* when it takes nothing more; what it has not confirmed by then it never took, so that goes around it, to its other
neighbours in the tree, in its place:

    a - R - b      a to b, via R: for b and all behind b
        |
        c          a to c, via R: for c and all behind c

So does what was never sent to one that died; of what was under way to it, nobody knows whether it was passed on. *tree*
goes before the first message of a tree, with its members: who hears of changes late may never have been in that tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from taut.core.messages import MAX_WORKERS, Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, MemberPlace, Tell
from taut.strategies.delivery.payload_batch import bind
from taut.strategies.tree.spanning_tree import SpanningTree, plant, tree_key

TREES_KEPT = 32
FAR = 1 << 52  # messages over one edge


@dataclass(slots=True, frozen=True)
class EdgeMessage:
    """``count`` updates in ``payloads``, the ``number``-th message to its receiver."""

    key: int
    via: int
    count: int
    payloads: list[bytes]
    number: int = 0


@dataclass
class EdgeMessages:
    """One worker's. ``trees``: by key, the present one last; ``told``: the members of others that were spoken of."""

    place: MemberPlace
    trees: dict[int, SpanningTree] = field(default_factory=dict)
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)
    under_way: dict[int, list[EdgeMessage]] = field(default_factory=dict)  # by receiver, and not confirmed
    going: set[int] = field(default_factory=set)  # these take nothing more
    taken: dict[int, dict[int, int]] = field(default_factory=dict)  # by sender and tree: the last message
    highest: int = 0  # rank that was ever a member
    _sent: dict[int, int] = field(default_factory=dict)  # by receiver: how many
    _introduced: set[tuple[int, int]] = field(default_factory=set)  # receivers, and trees that they were told of

    # ----------------------------------------------------------------------------------------------- this worker's

    def root(self, tree: SpanningTree) -> None:
        """The members changed, and this is the tree of those who are here now."""
        self.trees.pop(tree.key, None)
        self.trees[tree.key] = tree
        self.highest = max(self.highest, *tree.members)
        for key in list(self.trees)[:-TREES_KEPT]:
            del self.trees[key]
            self._introduced = {pair for pair in self._introduced if pair[1] != key}

    def placed(self, place: MemberPlace) -> None:
        """Of what was under way to the dead, nobody knows more."""
        self.place = place
        self.under_way = {to: all_ for to, all_ in self.under_way.items() if to in place.members}

    def send(self, to: int, crossing: EdgeMessage) -> list[Tell]:
        """To ``to``, or around it where it is gone."""
        if to not in self.place.members or to in self.going:
            tree = self.trees.get(crossing.key)
            onward = [each for each in tree.lists.get(to, ()) if each != crossing.via] if tree is not None else []
            around = replace(crossing, via=to)
            return [tell for each in onward for tell in self.send(each, around)]
        tells: list[Tell] = []
        if (to, crossing.key) not in self._introduced:
            self._introduced.add((to, crossing.key))
            members = np.array(self.trees[crossing.key].members, "<u4").tobytes()
            tells.append(Tell(to, Note("tree", crossing.key), members))
        self._sent[to] = number = self._sent.get(to, 0) + 1
        self.under_way.setdefault(to, []).append(replace(crossing, number=number))
        note = Note("update", crossing.key, crossing.count, [number, crossing.via])
        tells.append(Tell(to, note, bind(crossing.payloads)))
        return tells

    def confirmed(self, sender: int, key: int) -> EdgeMessage | None:
        """``sender`` has taken the oldest message of this tree: which."""
        waiting = self.under_way.get(sender, [])
        found = next((each for each in waiting if each.key == key), None)
        if found is not None:
            waiting.remove(found)
        return found

    def goes(self, rank: int) -> list[Tell]:
        """This worker takes nothing more."""
        self.going.add(rank)
        return [tell for crossing in self.under_way.pop(rank, []) for tell in self.send(rank, crossing)]

    @property
    def owed(self) -> bool:
        """Something is under way to somebody, and not confirmed."""
        return any(self.under_way.values())

    @property
    def astray(self) -> bool:
        """Something is under way that belongs to another tree than the present one, or goes around somebody."""
        present = next(reversed(self.trees))
        every = (each for waiting in self.under_way.values() for each in waiting)
        return any(each.key != present or each.via != self.place.rank for each in every)

    # --------------------------------------------------------------------------------------------------- others'

    def introduce(self, event: Heard) -> None:
        """A tree that its sender uses. ``MalformedMessage`` where it is none with the two of us."""
        nbytes = len(event.payload)
        if nbytes % 4 or nbytes > 4 * MAX_WORKERS:
            raise MalformedMessage(f"a tree of {nbytes} bytes")
        members: tuple[int, ...] = tuple(np.frombuffer(event.payload, "<u4").tolist())
        if list(members) != sorted({*members, self.place.rank}) or tree_key(members) != event.note.round:
            raise MalformedMessage("a tree in which this worker is not, or another one than its key says")
        self.told.pop(event.note.round, None)
        self.told[event.note.round] = members
        for key in list(self.told)[:-TREES_KEPT]:
            del self.told[key]

    def tree(self, key: int) -> SpanningTree | None:
        """None where this worker does not know it, or not yet all of its members."""
        if key not in self.trees and key in self.told and self.told[key][-1] <= self.highest:
            present = next(reversed(self.trees))
            self.trees[key] = plant(replace(self.place, members=self.told[key]))
            self.trees[present] = self.trees.pop(present)
        return self.trees.get(key)

    def take(self, event: Heard, tree: SpanningTree) -> int:
        """A message of this tree is taken: the neighbour in whose place it comes."""
        number, via = _numbers(event.note.numbers)
        if via not in tree.neighbours:
            raise MalformedMessage(f"an update in the place of worker {via}, which is no neighbour in the tree")
        last = self.taken.setdefault(event.sender, {})
        last.pop(tree.key, None)
        last[tree.key] = number
        for key in list(last)[:-TREES_KEPT]:
            del last[key]
        return via


def _numbers(numbers: Sequence[float]) -> tuple[int, int]:
    if len(numbers) != 2 or not all(0 <= each < FAR and each == int(each) for each in numbers):
        raise MalformedMessage("an update without its number")
    return int(numbers[0]), int(numbers[1])
