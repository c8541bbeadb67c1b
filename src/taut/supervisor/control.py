"""Orders of the run's owner to its supervisor (drain, dismiss or pause a worker, change the learning rate, begin a
checkpoint, issue and revoke tokens), and calls from other threads.

Orders come over the supervisor's own socket, encrypted, from a connection that proved to hold the owner's key, which is
made from the run's keys: a user who may read that file (mode 0600) may give orders, from this machine or another one.
"""

from __future__ import annotations

import math
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from taut.core.messages.base import Count, Message, Name, Rank, Text
from taut.errors import MalformedMessage, Misuse, StorageFailed, SupervisorLost
from taut.supervisor.run.actions import Action
from taut.supervisor.storage.previous_run import PreviousRun
from taut.transport.framing import decode, encode
from taut.transport.keys import RunKeys, write_token_file
from taut.transport.transport import ANSWER_S, ORDER_NBYTES, transport_of

if TYPE_CHECKING:
    from taut.supervisor.run.cluster import Cluster
    from taut.supervisor.run.workers import WorkerEntry
    from taut.transport.access import AccessControl

LONGEST_S = 10 * 365.25 * 86400.0


class DrainRun(Message, frozen=True):
    """End the run in order, with a model, as Ctrl-C does."""

    reason: Text


class Dismiss(Message, frozen=True):
    """Let this worker go in order; ``expel``: at once. The others go on."""

    rank: Rank
    reason: Text
    expel: bool = False


class Pause(Message, frozen=True):
    """Let this worker make no step until it is told to go on, by ``paused=False``."""

    rank: Rank
    reason: Text
    paused: bool = True


class Tune(Message, frozen=True):
    """Multiply all learning rates by ``rate``, and set the slack of tether; None: as it is."""

    reason: Text
    rate: float | None = None
    slack: float | None = None


class CheckpointNow(Message, frozen=True):
    """Begin a checkpoint now, if the run has checkpoints."""

    reason: Text


class IssueToken(Message, frozen=True):
    """Issue one more token, valid for ``lasts_s`` seconds from now (None: for ever)."""

    name: Name
    lasts_s: float | None = None
    reason: Text = ""


class ListTokens(Message, frozen=True):
    """List the tokens."""


class RevokeToken(Message, frozen=True):
    """Revoke this token; ``expel``: also expel the workers that came with it, at once."""

    name: Name
    expel: bool = False
    reason: Text = ""


Order = DrainRun | Dismiss | Pause | Tune | CheckpointNow | IssueToken | ListTokens | RevokeToken


class TokenLine(Struct, frozen=True, array_like=True):
    """A token for display. ``expires_at``: seconds since 1970; ``workers``: live ones that came with it."""

    name: Name
    expires_at: float | None
    revoked: bool
    expired: bool
    workers: Count


class Obeyed(Message, frozen=True):
    """The order is done, or under way. ``token`` only in answer to ``IssueToken``."""

    said: Text
    token: Annotated[str, Meta(max_length=256)] = ""
    tokens: Annotated[tuple[TokenLine, ...], Meta(max_length=1024)] = ()


class Rejected(Message, frozen=True):
    """The order cannot be done: what was given, what was expected, and what to try."""

    given: Text
    expected: Text
    remedy: Text


Answer = Obeyed | Rejected
Call = Callable[[float], list[Action]]  # takes the time, returns actions to carry out


class ThreadCalls:
    """Calls that other threads want the supervisor's thread to make: it alone may touch the run's state. ``wake``
    ends that thread's wait.

    >>> calls = ThreadCalls(wake=lambda: None)
    >>> calls.give(lambda now: [])
    >>> [call(0.0) for call in calls.take()]
    [[]]
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._given: queue.SimpleQueue[Call] = queue.SimpleQueue()

    def give(self, call: Call) -> None:
        """Add a call. May be called from any thread."""
        self._given.put(call)
        self.wake()

    def take(self) -> Iterator[Call]:
        """Yield the calls in their order, also those added meanwhile."""
        while not self._given.empty():
            yield self._given.get()


class Control:
    """Carries out orders. ``came_with``: the token that a connection was made with; ``clock``: seconds since 1970."""

    def __init__(
        self,
        cluster: Cluster,
        access: AccessControl,
        keys_file: Path,
        came_with: Callable[[bytes], str | None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster, self._access, self._keys_file = cluster, access, keys_file
        self._came_with, self._clock = came_with, clock

    def obey(self, frames: list[bytes], now: float) -> tuple[list[bytes], list[Action]]:
        """Return the answer to an order, as frames, and the actions to carry out."""
        actions: list[Action] = []
        answer: Answer
        try:
            order, _ = decode(frames, Order, limit_nbytes=ORDER_NBYTES)
            answer = self._do(order, actions, now)
        except Misuse as error:
            answer = Rejected(str(error.given)[:4000], error.expected[:4000], error.remedy[:4000])
        except MalformedMessage as error:
            answer = Rejected("an order that cannot be read", "one of this version of taut", str(error)[:4000])
        except StorageFailed as error:
            answer = Rejected("tokens that cannot be kept", "a folder that can be written to", str(error)[:4000])
        return encode(answer, ()), actions

    def _do(self, order: object, actions: list[Action], now: float) -> Obeyed:
        cluster = self._cluster
        if cluster.outcome is not None:
            raise Misuse(f"run {cluster.plan.run!r}, which is over", "a run that is going")
        match order:
            case DrainRun(reason):
                actions += cluster.drain(reason, now)
                return Obeyed("the run is being drained")
            case Dismiss(rank, reason, expel):
                actions += cluster.dismiss(rank, reason, now, expel)
                return Obeyed(f"worker {rank} {'was expelled' if expel else 'is told to go'}")
            case Pause(rank, reason, paused):
                actions += cluster.pause(rank, reason, now, paused)
                return Obeyed(f"worker {rank} {'stops after its step' if paused else 'goes on'}")
            case Tune(reason, rate, slack):
                actions += cluster.tune(rate, slack, reason, now)
                return Obeyed("the workers change it at their next step")
            case CheckpointNow(reason):
                actions += cluster.checkpoint(now, reason)
                return Obeyed("a checkpoint is begun; an event says when it is complete")
            case _:
                return self._tokens(order, actions, now)

    def _tokens(self, order: object, actions: list[Action], now: float) -> Obeyed:
        match order:
            case IssueToken(name, lasts_s, reason):
                answer = self._issue(name, lasts_s)
                self._note(f"token {answer.tokens[0].name} is issued", reason, actions)
                return answer
            case RevokeToken(name, expel, reason):
                answer = self._revoke(name, expel, actions, now)
                self._note(f"token {name} is revoked", reason, actions)
                return answer
            case _:
                return Obeyed("", tokens=self._lines())

    def _note(self, what: str, reason: str, actions: list[Action]) -> None:
        self._cluster.outbox.record("token", f"{what}{f', {reason}' if reason else ''}")
        actions += self._cluster.outbox.take()

    def _issue(self, name: str, lasts_s: float | None) -> Obeyed:
        if lasts_s is not None and not (math.isfinite(lasts_s) and 1.0 <= lasts_s <= LONGEST_S):
            raise Misuse(f"a token for {lasts_s} s", "1 s to 10 years", "leave --expires out for one that never does")
        keys = self._access.keys
        names = {one.name for one in keys.join_secrets}
        name = name or next(one for one in (f"token-{n}" for n in range(2, 10_000)) if one not in names)
        self._keep(keys.issue(name, None if lasts_s is None else self._clock() + lasts_s))
        return Obeyed(f"token {name} is good from now on", self._access.keys.token_of(name), self._lines(name))

    def _revoke(self, name: str, expel: bool, actions: list[Action], now: float) -> Obeyed:
        self._keep(self._access.keys.revoke(name))
        came = [worker for worker in self._cluster.members.workers.values() if self._token(worker) == name]
        gone = [worker for worker in came if worker.live]
        if not expel:
            stay = f"; {len(gone)} workers that came with it stay in the run" if gone else ""
            return Obeyed(f"token {name} is void from now on{stay}", tokens=self._lines(name))
        for worker in came:
            worker.may_return = False  # silent ones, too
        for worker in gone:
            actions += self._cluster.dismiss(worker.rank, f"its token ({name}) was revoked", now, expel=True)
        said = f"token {name} is void from now on, and {len(gone)} workers that came with it were expelled"
        return Obeyed(said, tokens=self._lines(name))

    def _token(self, worker: WorkerEntry) -> str | None:
        """Return the name of the token that a worker came with, at its first admission."""
        name = self._came_with(worker.connection)
        if name is not None:
            return name
        previous = next((one for one in self._cluster.members.workers.values() if one.successor == worker.rank), None)
        return None if previous is None else self._token(previous)

    def _keep(self, keys: RunKeys) -> None:
        """Write the keys to disk before they are used: a revoked token must not become valid by a restart."""
        write_token_file(self._keys_file, keys.text)
        self._access.keys = keys

    def _lines(self, name: str | None = None) -> tuple[TokenLine, ...]:
        keys, now = self._access.keys, self._clock()
        used = Counter(self._token(worker) for worker in self._cluster.members.live())
        return tuple(
            TokenLine(one.name, one.expires_at, one.name in keys.revoked, one.expired(now), used[one.name])
            for one in keys.join_secrets
            if name in (None, one.name)
        )


def order(previous: PreviousRun, given: Order, patience_s: float = ANSWER_S) -> Obeyed:
    """Let the supervisor of the run, as read from its folder, carry out this order. Raise its ``Misuse``, or
    ``SupervisorLost`` if it does not answer."""
    try:
        frames = transport_of(previous.address).ask(previous.address, previous.keys, encode(given, ()), patience_s)
    except SupervisorLost as error:
        remedy = f"is it up, and reachable from here? `taut supervisor --recover {previous.run}` restarts one that died"
        raise SupervisorLost(f"{error}; {remedy}") from None
    answer, _ = decode(frames, Answer, limit_nbytes=ORDER_NBYTES)
    if isinstance(answer, Rejected):
        raise Misuse(answer.given, answer.expected, answer.remedy)
    assert isinstance(answer, Obeyed)
    return answer
