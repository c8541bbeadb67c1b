"""A ``MethodWorld`` whose workers leave in order, as ``worker/exchange/rounds.py`` has them, with an account of what
codecs took in, sent and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.codecs import expand
from taut.strategies.api import Heard, Leaving, MembersChanged, Method, MethodEvent, Tell
from taut.strategies.delivery.residual_handoff import KINDS, ResidualHandoff
from taut.testing.worlds.codec_actor import CodecActor, CoderActor, with_codec, with_coder
from taut.testing.worlds.method_world import MethodWorld

Sum = np.ndarray


class Account:
    """In float64, of all workers that ever were. ``taken``: what went into residuals; ``sent``: what payloads say."""

    def __init__(self, size: int) -> None:
        self.taken, self.sent = np.zeros(size), np.zeros(size)

    def payload(self, payload: bytes | None) -> None:
        if payload:
            self.sent += expand(payload, len(self.sent))

    def watch(self, actor: Any) -> None:
        """From now on everything that this actor's codec does is on the account."""
        if isinstance(actor, CodecActor):
            emit, flush = actor.emit, actor.flush
            actor.emit = lambda: self._counted(actor, emit)
            actor.flush = lambda: self._counted_all(actor, flush)
        else:
            encode = actor.coder.encode
            actor.coder.encode = lambda v, weight=1.0, tail=b"": self._encoded(encode, v, weight) + tail

    def _counted(self, actor: CodecActor, emit: Any) -> bytes | None:
        state = actor.codec_state
        self.taken += (state.w.astype(np.float64) - state.b) / state.workers
        payload: bytes | None = emit()
        self.payload(payload)
        return payload

    def _counted_all(self, actor: CodecActor, flush: Any) -> list[bytes]:
        state = actor.codec_state
        self.taken += (state.w.astype(np.float64) - state.b) / state.workers
        payloads: list[bytes] = flush()
        for payload in payloads:
            self.payload(payload)
        return payloads

    def _encoded(self, encode: Any, v: Sum, weight: float) -> bytes:
        self.taken += v.astype(np.float64) * weight
        payload: bytes = encode(v, weight)
        self.payload(payload)
        return payload


class LeavingWorld(MethodWorld):
    """``leave(rank)`` begins it; ``depart()`` removes those through with it, whenever all that they said has come."""

    def __init__(self, method: Method, workers: int, size: int, codec: str, **given: Any) -> None:
        self.account = Account(size)
        self.estates: dict[int, ResidualHandoff] = {}
        actors = with_codec(codec, workers) if method.streams else with_coder(codec, workers)
        super().__init__(method, [np.zeros(size, np.float32)] * workers, actor=actors, **given)
        for rank, actor in self.actors.items():
            assert isinstance(actor, CodecActor | CoderActor)
            self.account.watch(actor)
            self.estates[rank] = ResidualHandoff(actor.inherit)
        self.leaving: set[int] = set()

    def tell(self, rank: int, event: MethodEvent) -> None:
        if isinstance(event, Heard) and event.note.kind in KINDS:
            self._post(rank, self.estates[rank].heard(event.sender, event.note, event.payload))
            return
        super().tell(rank, event)
        if isinstance(event, MembersChanged):
            self._post(rank, self.estates[rank].members_changed(event.membership.members))

    def _post(self, rank: int, tells: Sequence[Tell]) -> None:
        self._carry_out(rank, tells)

    def leave(self, rank: int) -> bool:
        """False where it cannot leave now: it takes a turn, is leaving, or is the last one."""
        actor: Any = self.actors.get(rank)
        if actor is None or rank in self.leaving or not actor.proceed or len(self.actors) - len(self.leaving) < 2:
            return False
        self.catch_up(rank)
        actor.ended = True  # it hears at once what comes
        self.leaving.add(rank)
        if self.method.streams:
            super().tell(rank, Leaving())
        membership = self.membership(rank)
        near = membership.neighbours()
        receivers = sorted(membership.others, key=lambda other: (other not in near, other))
        self._post(rank, self.estates[rank].leave(actor.residual_parts(), receivers))
        return True

    def depart(self) -> None:
        for rank in sorted(self.leaving):
            said = any(queue for (sender, _), queue in self.queues.items() if sender == rank)
            if self.estates[rank].done and not said and not self.method.owing(self.actors[rank].method_state):
                self.leaving.discard(rank)
                self.kill(rank)

    def happen(self) -> None:
        """One event of those who stay, or a delivery."""
        able = [rank for rank in sorted(self.actors) if rank not in self.leaving]
        self._happen(able)
        self.depart()

    def settle(self) -> None:
        """Until nobody is leaving any more, and nothing is under way."""
        for _ in range(100_000):
            self.depart()
            for rank in sorted(self.actors):
                self.catch_up(rank)
            if not self.deliver() and not self.leaving:
                return
        raise AssertionError(f"workers {sorted(self.leaving)} cannot leave")

    def left(self) -> Sum:
        total = np.zeros(len(self.account.taken))
        for actor in self.actors.values():
            if isinstance(actor, CodecActor):
                left = actor.codec.left(actor.codec_state)
            else:
                assert isinstance(actor, CoderActor)
                left = actor.coder.left
            if left is not None:
                total += left
        return total
