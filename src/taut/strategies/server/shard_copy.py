"""A newcomer that is to hold a shard, and has not pulled it yet, borrows a copy from another worker first.

    newcomer, to one other after another: *lend*;   answer: *lent* (its copy, the pushes in it, whether it has pulled it)

A newcomer begins with its donor's x, which contains steps that the donor has yet to push, and an unknown set of pushes:
weights that begin with it would count those twice. So until the newcomer has a copy, or is handed the shard, the shard is
``blank``: pushes and pulls wait, and their senders train on.
"""

from __future__ import annotations

import numpy as np

from taut.strategies.api import Heard, MethodAction, Note, Tell
from taut.strategies.server.server_state import ServerState
from taut.strategies.server.shard import Table, packed, unpacked

LEND, LENT = KINDS = ("lend", "lent")


def copy_of(state: ServerState, shard: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.float32]], Table]:
    """Return this worker's copy of the weights, and the pushes in it: all of its own except the one under way."""
    w = state.base[state.part(shard)].copy()
    own = state.numbers[shard]
    if shard in state.pushing:
        w -= state.change(shard, state.pushing[shard].payload)
        own -= 1
    table = dict(state.known[shard])
    if own > table.get(state.membership.rank, 0):
        table[state.membership.rank] = own
    return w, table


def borrow(state: ServerState) -> list[MethodAction]:
    """Ask for a copy of each blank shard, one worker after the other, until one has pulled it. If none has, take the
    copy of the first worker, which is nearest to the initial weights."""
    actions: list[MethodAction] = []
    for shard, held in state.shards.items():
        if not held.blank or held.lender in state.membership.others:
            continue
        lenders = [rank for rank in state.membership.others if rank not in held.without]
        if lenders:
            held.lender = lenders[0]
            actions.append(Tell(lenders[0], Note(LEND, 0, shard)))
        else:
            held.lent(*(held.spare or copy_of(state, shard)))
    return actions


def heard(state: ServerState, event: Heard) -> list[MethodAction]:
    shard, nbytes, held = event.note.part, state.nbytes(event.note.part), state.shards.get(event.note.part)
    if event.note.kind == LEND:
        return [Tell(event.sender, Note(LENT, int(shard in state.fresh), shard), packed(*copy_of(state, shard)))]
    state.check_finite(event.payload[:nbytes])
    copy = unpacked(event.payload, nbytes)
    if held is None or not held.blank or held.lender != event.sender:
        return []
    if not event.note.round:
        held.lent(*copy)
        return []
    if held.spare is None and event.sender < state.membership.rank:
        held.spare = copy
    held.lender = None
    held.without.add(event.sender)
    return borrow(state)
