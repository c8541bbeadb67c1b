"""Acknowledged messages over the edges of a relay's trees, and the way around a worker that is gone.

A message belongs to a tree (its ``key``). It is for its receiver and all workers behind the receiver as seen from
``via``: the neighbour in that tree from which it comes, or on whose behalf it is sent. *got* acknowledges it. A leaving
worker says *going* when it takes no more messages. Those that it has not acknowledged by then it never took, so they are
sent around it, to its other neighbours in the tree, on its behalf:

    a - R - b      a to b, via R: for b and all behind b
        |
        c          a to c, via R: for c and all behind c

Messages that were never sent to a worker before it died go around it, too; whether those under way were passed on is
unknown. *tree*, with the members, goes before the first message of a tree: the receiver may never have known that tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from taut.core.messages import MAX_WORKERS
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, Membership, Note, Tell
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
    """One worker's messages. ``trees``: by key, the current one last; ``told``: members of trees that others use."""

    membership: Membership
    trees: dict[int, SpanningTree] = field(default_factory=dict)
    told: dict[int, tuple[int, ...]] = field(default_factory=dict)
    under_way: dict[int, list[EdgeMessage]] = field(default_factory=dict)  # by receiver, unacknowledged
    going: set[int] = field(default_factory=set)  # workers that take no more messages
    taken: dict[int, dict[int, int]] = field(default_factory=dict)  # by sender and tree: the last message
    highest: int = 0  # highest rank that was ever a member
    _sent: dict[int, int] = field(default_factory=dict)  # by receiver: number of messages
    _introduced: set[tuple[int, int]] = field(default_factory=set)  # (receiver, tree) pairs for which *tree* was sent

    def root(self, tree: SpanningTree) -> None:
        """Make ``tree`` the current tree: the members changed."""
        self.trees.pop(tree.key, None)
        self.trees[tree.key] = tree
        self.highest = max(self.highest, *tree.members)
        for key in list(self.trees)[:-TREES_KEPT]:
            del self.trees[key]
            self._introduced = {pair for pair in self._introduced if pair[1] != key}

    def members_changed(self, membership: Membership) -> None:
        """Note the new members. Forget the messages under way to dead workers: whether they arrived is unknown."""
        self.membership = membership
        self.under_way = {to: all_ for to, all_ in self.under_way.items() if to in membership.members}

    def send(self, to: int, message: EdgeMessage) -> list[Tell]:
        """Send the message to ``to``, or around it if it is gone."""
        if to not in self.membership.members or to in self.going:
            tree = self.trees.get(message.key)
            onward = [each for each in tree.lists.get(to, ()) if each != message.via] if tree is not None else []
            around = replace(message, via=to)
            return [tell for each in onward for tell in self.send(each, around)]
        tells: list[Tell] = []
        if (to, message.key) not in self._introduced:
            self._introduced.add((to, message.key))
            members = np.array(self.trees[message.key].members, "<u4").tobytes()
            tells.append(Tell(to, Note("tree", message.key), members))
        self._sent[to] = number = self._sent.get(to, 0) + 1
        self.under_way.setdefault(to, []).append(replace(message, number=number))
        note = Note("update", message.key, message.count, [number, message.via])
        tells.append(Tell(to, note, bind(message.payloads)))
        return tells

    def confirmed(self, sender: int, key: int) -> EdgeMessage | None:
        """Remove and return the oldest message of this tree, which ``sender`` has acknowledged."""
        waiting = self.under_way.get(sender, [])
        found = next((each for each in waiting if each.key == key), None)
        if found is not None:
            waiting.remove(found)
        return found

    def goes(self, rank: int) -> list[Tell]:
        """Send the unacknowledged messages around ``rank``, which takes no more."""
        self.going.add(rank)
        return [tell for message in self.under_way.pop(rank, []) for tell in self.send(rank, message)]

    @property
    def owed(self) -> bool:
        return any(self.under_way.values())

    @property
    def astray(self) -> bool:
        """Return whether a message is under way that belongs to an earlier tree, or goes around a worker."""
        present = next(reversed(self.trees))
        every = (each for waiting in self.under_way.values() for each in waiting)
        return any(each.key != present or each.via != self.membership.rank for each in every)

    def introduce(self, event: Heard) -> None:
        """Note the members of a tree that the sender uses. Raise ``MalformedMessage`` unless both of us are in it."""
        nbytes = len(event.payload)
        if nbytes % 4 or nbytes > 4 * MAX_WORKERS:
            raise MalformedMessage(f"a tree of {nbytes} bytes")
        members: tuple[int, ...] = tuple(np.frombuffer(event.payload, "<u4").tolist())
        if list(members) != sorted({*members, self.membership.rank}) or tree_key(members) != event.note.round:
            raise MalformedMessage("a tree in which this worker is not, or another one than its key says")
        self.told.pop(event.note.round, None)
        self.told[event.note.round] = members
        for key in list(self.told)[:-TREES_KEPT]:
            del self.told[key]

    def tree(self, key: int) -> SpanningTree | None:
        """Return the tree; None while this worker does not know it, or not all of its members."""
        if key not in self.trees and key in self.told and self.told[key][-1] <= self.highest:
            present = next(reversed(self.trees))
            self.trees[key] = plant(replace(self.membership, members=self.told[key]))
            self.trees[present] = self.trees.pop(present)
        return self.trees.get(key)

    def take(self, event: Heard, tree: SpanningTree) -> int:
        """Note a message of this tree as taken. Return the neighbour on whose behalf it comes."""
        number, via = _numbers(event.note.numbers)
        if via not in tree.neighbours:
            raise MalformedMessage(f"an update on behalf of worker {via}, which is no neighbour in the tree")
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
