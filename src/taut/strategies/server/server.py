"""Parameter server, Downpour: workers push their optimizer's changes and pull the server's weights, at their own pace.

    server   w <- w + scale remedy(d_i)  for every push; see ``staleness.py``
    worker   every ``push`` steps: push d_i = x - (x at its last push)
             every ``pull`` steps: x <- w + its unpushed changes

No worker waits: a pull is answered while the worker trains on, and included at the end of a step; until a push is
confirmed, later changes are summed (``client.py``). The weights are cut into ``shards``, held by the first workers beside
their training (their communication threads serve them).

When a server leaves in order, all hear of it, and its shards move to the next entitled workers, with every push that is
in them; pushes that still come to it are passed on, lost ones are sent again (``shard_moves.py``). When one dies, its
successor begins with its own copy (``on_death=elect``: others' pushes since its last pull are lost) or, if it has not
pulled yet, with a borrowed one (``shard_copy.py``); or all stop and save their models (``on_death=stop``). At the end
each server, when all have told it that they ended, sends its weights to all: replicas end with the same bits.

**With a compressor** a push is Q(x - x at its last push), and x at its last push moves by that alone: what is left out
is in the next push. A pull is answered with the compressed difference from what the worker has (``copies.py``); the
first one, the first from another server, and the weights of the end are whole. So both ways feed back their errors, as
in DoubleSqueeze.
Papers: Dean et al. 2012, "Large Scale Distributed Deep Networks" (Downpour SGD); Tang et al. 2019, "DoubleSqueeze".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from taut.core.staleness_counts import Counts, summed
from taut.errors import MalformedMessage
from taut.specs import check_choice, check_from_zero, check_whole
from taut.strategies import api as m
from taut.strategies.delivery.copies import SentCopies, shortens
from taut.strategies.server import client
from taut.strategies.server import shard_copy as lending
from taut.strategies.server import shard_moves as moves
from taut.strategies.server.server_ending import ServerEnding
from taut.strategies.server.server_state import Pushed, ServerState
from taut.strategies.server.shard import ENTRY_NBYTES, Shard, holder
from taut.strategies.server.staleness import KINDS, Remedy


@dataclass(frozen=True)
class Server(m.Method):
    """``--strategy server:shards=2,push=4,pull=4,staleness=rate``. ``scale``: factor for pushes; 1 is the paper's, with
    which p workers move the weights p times as fast, and late pushes act as momentum on top. The default, 0, takes
    1/sqrt(p), the tether's gain. ``lambda0``: of the dc kinds, 0 for the paper's.
    """

    name = "server"
    info = m.StrategyInfo(m.Completeness.UNBOUNDED, coded_kinds=("push", "passed", "moved"))
    codecs = ("dense", m.ANY_COMPRESSOR)
    paper = "Dean et al. 2012"
    consensus = True
    concurrent = True
    lockstep = False
    directed = True
    topologies = ("star", "complete")

    shards: int = 1
    push: int = 1
    pull: int = 1
    staleness: str = "rate"
    scale: float = 0.0
    lambda0: float = 0.0
    on_death: str = "elect"

    def __post_init__(self) -> None:
        for name in ("shards", "push", "pull"):
            check_whole(self, name, 1)
        for name in ("scale", "lambda0"):
            check_from_zero(self, name, math.inf, "0 takes the default")
        check_choice(self, "staleness", KINDS)
        check_choice(self, "on_death", ("elect", "stop"))

    def start(self, membership: m.Membership, local: m.Local) -> ServerState:
        holders = [holder(shard, self.shards, membership.members) for shard in range(self.shards)]
        zeros, ending = [0] * self.shards, ServerEnding(self.shards, membership)
        state = ServerState(local, membership, local.x.copy(), holders, ending, zeros, [*zeros], [{} for _ in holders])
        coder, parts = shortens(local.coder), [state.part(shard) for shard in range(self.shards)]
        if coder is not None:
            state.coders = [coder.part(part.start, part.stop) for part in parts]
        if membership.rank != membership.members[0]:  # the first worker has no donor
            state.fresh.update(range(self.shards))
        for shard, rank in enumerate(holders):
            if rank == membership.rank:
                state.shards[shard] = self._open(state, shard)
        return state

    def on(self, state: ServerState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = moves.greet(state) + lending.borrow(state)
        match event:
            case m.Stepped(samples, rate):
                self._stepped(state, samples, rate, actions)
                actions.append(m.Proceed())
            case m.Heard():
                self._heard(state, event, actions)
            case m.MembersChanged(membership):
                state.membership = membership
                state.left |= state.going.difference(membership.members)
                state.going.intersection_update(membership.members)
                self._move(state, actions, members_changed=True)
                actions += state.ending.members_changed(membership, state.shards)
            case m.Leaving():
                client.include(state)
                actions += client.push(state, 1, partial(self._take_own, state))
                state.leaving = True
                state.going.add(state.membership.rank)
                self._move(state, actions)
            case m.Draining() if not state.draining:
                client.include(state)
                state.draining = True
            case m.Ended() | m.Draining():
                pass
        if state.leaving or state.draining:
            self._end(state, actions)
        return actions

    def owing(self, state: ServerState) -> bool:
        """Return whether a push is not confirmed yet, or a shard not taken over."""
        return bool(state.pushing or any(state.unpushed) or state.handed)

    def figures(self, state: ServerState) -> dict[str, float]:
        served = [shard.staleness for shard in state.shards.values()]
        return {
            "pushes": state.pushes,
            "pulls": state.pulls,
            "elections": state.elections,
            "staleness": float(np.mean(served)) if served else 0.0,
        }

    def staleness_counts(self, state: ServerState) -> Counts:
        return summed(shard.late.taken() for shard in list(state.shards.values()))

    # The worker.

    def _stepped(self, state: ServerState, samples: int, rate: float, actions: list[m.MethodAction]) -> None:
        if samples:
            state.steps += 1
            state.unpushed = [steps + 1 for steps in state.unpushed]
            state.rate = rate
        client.include(state)
        if samples:
            actions += client.push(state, self.push, partial(self._take_own, state))
        if samples and state.steps % self.pull == 0:
            actions += client.ask(state)

    # The server.

    def _open(self, state: ServerState, shard: int) -> Shard:
        """Hold a shard from now on, beginning with this worker's copy, which lacks the pushes under way."""
        w, table = lending.copy_of(state, shard)
        others = set(state.membership.others)
        opened = w.copy() if others else None
        blank = bool(others) and shard in state.fresh
        remedy, number = Remedy(self.staleness, self.lambda0), (state.membership.rank << 20) + state.elections % (1 << 20)
        sent = SentCopies(state.membership.rank)
        return Shard(w, remedy, {} if blank else table, opened, others, blank=blank, openings={number}, sent=sent)

    def _take_own(self, state: ServerState, pushed: Pushed, shard: int) -> list[m.MethodAction]:
        return self._take(state, shard, (state.membership.rank, pushed.number), pushed.note, pushed.payload)

    def _take(
        self, state: ServerState, shard: int, name: tuple[int, int], note: m.Note, payload: bytes
    ) -> list[m.MethodAction]:
        """Count a push, by its origin and number, unless it is in the weights already; confirm it to its origin."""
        (origin, number), held = name, state.shards[shard]
        if number > held.taken.get(origin, 0) and not state.ending.closed(shard):  # after that all have the last weights
            workers = len(state.membership.members)
            scale = self.scale or 1.0 / math.sqrt(workers)
            held.push(origin, state.change(shard, payload), workers, max(1, note.round), note.numbers[0], scale)
            held.taken[origin] = number
        if origin != state.membership.rank:
            return [m.Tell(origin, m.Note("got", number, shard))]
        client.confirmed(state, shard, number)
        return []

    def _heard(self, state: ServerState, event: m.Heard, actions: list[m.MethodAction]) -> None:
        self._hear(state, event, actions)
        came = event.note.kind in (moves.HAND, lending.LENT)
        if state.early and (came or any(held.complete for held in state.shards.values())):
            self._hear_early(state, actions)  # they may have waited for this
        actions += client.push_own(state, partial(self._take_own, state))

    def _hear(self, state: ServerState, event: m.Heard, actions: list[m.MethodAction]) -> None:
        note, sender, shard = event.note, event.sender, event.note.part
        if shard >= self.shards:
            raise MalformedMessage(f"{note.kind!r} for shard {shard} of {self.shards}")
        if note.kind in ("weights", "moved"):
            client.answered(state, event)
        elif note.kind == "final":
            state.check_nbytes(event)
            state.check_finite(event.payload)
            state.ending.final(shard, sender, event.payload)
        elif note.kind == "got":
            client.confirmed(state, shard, note.round)
        elif note.kind in ("push", "passed"):
            self._pushed(state, event, actions)
        elif note.kind in moves.KINDS:
            actions += moves.handed(state, event)
        elif note.kind in lending.KINDS:
            actions += lending.heard(state, event)
        elif note.kind == "going":
            state.going.update({sender} & set(state.membership.members))
            self._move(state, actions)
        elif shard not in state.shards:
            state.keep_early(event, sender)  # the sender knows the new holder, as this worker will
        else:
            self._asked(state, event, actions)

    def _asked(self, state: ServerState, event: m.Heard, actions: list[m.MethodAction]) -> None:
        note, sender, held = event.note, event.sender, state.shards[event.note.part]
        if held.blank and note.kind in ("pull", "end"):
            state.keep_early(event, sender)
        elif note.kind == "pull":
            actions.append(self._answer(state, event, held))
        elif note.kind == "end":
            state.check_finite(event.payload)
            held.spoke(sender)
            actions += state.ending.ended(note.part, sender, event.payload, held)
        elif note.kind == "yours":
            held.spoke(sender)

    def _answer(self, state: ServerState, event: m.Heard, held: Shard) -> m.Tell:
        shard = event.note.part
        if not state.coders:
            return m.Tell(event.sender, m.Note("weights", 0, shard), held.pull(event.sender))
        if len(event.note.numbers) != 1:
            raise MalformedMessage(f"'pull' with the numbers {event.note.numbers}")
        written = held.answer(event.sender, event.note.numbers[0], state.coders[shard])
        coded = len(written.payload) - ENTRY_NBYTES * len(held.taken)
        kind = "weights" if written.whole else "moved"
        return m.Tell(event.sender, m.Note(kind, 0, shard, [written.stamp, float(coded)]), written.payload)

    def _pushed(self, state: ServerState, event: m.Heard, actions: list[m.MethodAction]) -> None:
        push, held = client.read_push(state, event), state.shards.get(event.note.part)
        if held is None and push.version <= state.membership.version:
            actions.append(client.pass_on(state, event, push))
            return
        if held is not None and event.note.kind == "push":
            held.spoke(event.sender)
        if held is None or held.blank or (push.again and held.opened is not None):
            # This worker does not know the members yet; or the push may be in the weights that are to come.
            state.keep_early(event, push.origin)
        else:
            name = (push.origin, push.number)
            actions += self._take(state, event.note.part, name, event.note, event.payload)

    # Changes of members, and the end.

    def _move(self, state: ServerState, actions: list[m.MethodAction], members_changed: bool = False) -> None:
        """Move shards after *going*, or (``members_changed``) after a change of members."""
        actions += moves.say_going(state)
        for shard in range(self.shards):
            actions += moves.move(state, shard, self.on_death, partial(self._open, state))
            if members_changed:
                actions += client.push_again(state, shard, partial(self._take_own, state))
        for held in state.shards.values():
            held.keep(state.membership.members)
        actions += lending.borrow(state)
        self._hear_early(state, actions)
        actions += client.push_own(state, partial(self._take_own, state))

    def _hear_early(self, state: ServerState, actions: list[m.MethodAction]) -> None:
        early, state.early = state.early, {}
        for event in early.values():
            if event.sender in state.membership.members:
                self._hear(state, event, actions)

    def _end(self, state: ServerState, actions: list[m.MethodAction]) -> None:
        """Push the rest as soon as the push before was confirmed: this worker trains no more."""
        actions += client.push(state, 1, partial(self._take_own, state))
        if state.draining:
            busy = {s for s in range(self.shards) if state.unpushed[s] or state.blank(s)} | state.pushing.keys()
            quiet = set(range(self.shards)) - busy
            actions += state.ending.tell(state.holders, state.shards, quiet)
            if state.ending.complete and not state.finished:
                state.finished = True
                for shard, payload in state.ending.finals.items():
                    state.local.x[state.part(shard)] = np.frombuffer(payload, np.float32)
                actions.append(m.Finished())
