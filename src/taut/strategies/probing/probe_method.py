"""The method of ``taut probe``: each worker trains alone for some steps, then the links are measured, one at a time.

No training strategy: workers exchange only measurements, so it is not in the list of strategies (``INTERNAL`` in
``registry.py``). A worker times ``steps`` steps, then watches codecs for some more (``worker/codec_costs/shadow.py``),
and says that it is ready. When all are, the lowest rank asks them in turn to measure their links
(``link_measurement.py``), so that no two measurements share a wire. Then all train on until the run is drained.

When the members change, a measuring worker begins its link again, each worker says again what it has measured, and the
lowest remaining rank goes on from there. Messages carry the version of the members; those of an older one are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import cast

import numpy as np

from taut.errors import MalformedMessage, Misuse
from taut.specs import check_whole
from taut.strategies import api as m
from taut.strategies.probing import WATCHED
from taut.strategies.probing.link_measurement import BULK, PING, PONG, PULL, Measurement, answer, pairs
from taut.strategies.probing.probe_state import Probed, ProbeState

MOST_TIMES = 25
LEAST_CODEC_STEPS = 16
MOST_TIMES_LONGER = 5
IDLE_TURNS = 8  # in a row without data: its next leases may be with a worker that is ready
MOST_CODECS = 5  # so many fit into a worker's statistics, beside the links
READY, MEASURE, OVER = "ready", "measure", "over"


@dataclass(frozen=True)
class Probing(m.Method):
    """Times at least ``steps`` steps, and short ones for ``seconds`` (but not over 25 times as many); then watches codecs
    for ``codec_steps`` (0: not at all), fewer if this takes too long. ``watch``: names of codecs, joined by +.

    >>> from taut.testing.checks.method_check import check_method
    >>> world = check_method(Probing(steps=2, codec_steps=0, seconds=0.0), seed=3, workers=3)
    >>> all(actor.method_state.over for actor in world.actors.values())
    True
    """

    steps: int = 40
    codec_steps: int = 160
    seconds: float = 1.0
    watch: str = WATCHED

    name = "probe"

    def __post_init__(self) -> None:
        check_whole(self, "steps", 1)
        check_whole(self, "codec_steps", 0)
        if not 1 <= len(set(self._watched)) == len(self._watched) <= MOST_CODECS or not all(self._watched):
            raise Misuse(f"probe: watch={self.watch}", f"one to {MOST_CODECS} names, joined by +", f"try {WATCHED}")

    @property
    def _watched(self) -> list[str]:
        return self.watch.split("+")

    def start(self, membership: m.Membership, local: m.Local) -> ProbeState:
        return ProbeState(cast(Probed, local), membership)

    def on(self, state: ProbeState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        actions: list[m.MethodAction] = []
        match event:
            case m.Stepped(samples):
                state.held = True
                self._stepped(state, samples, now)
                if state.ready and not state.over:
                    self._tell_ready(state, state.membership.others, actions)
            case m.Heard(_, m.Note(kind="over", numbers=numbers)):
                state.over = True
                state.complete = state.complete or numbers == [1.0]
            case m.Heard():
                self._hear(state, event, now, actions)
            case m.MembersChanged(membership):
                self._move(state, membership, now, actions)
            case m.Ended():
                state.ended = True
            case m.Draining():
                state.over = True
                actions += self._tell_over(state)
                actions.append(m.Finished())
        self._conduct(state, now, actions)
        if state.held and (state.over or not state.ready):
            state.held = False
            actions.insert(0, m.Proceed()) if isinstance(event, m.Draining) else actions.append(m.Proceed())
        return actions

    # Steps.

    def _stepped(self, state: ProbeState, samples: int, now: float) -> None:
        if state.ready or state.over:
            return
        if not samples:
            state.idle += 1
            state.times.interrupted()
            state.ready = state.ended or (state.idle >= IDLE_TURNS and bool(state.done))
            return
        state.idle = 0
        if not self._timed(state):
            state.times.stepped(samples, now)
        if self._timed(state) and self._codecs_done(state, now):
            state.ready = True
            state.shadows.clear()

    def _timed(self, state: ProbeState) -> bool:
        made = len(state.times)
        return made >= self.steps and (made >= MOST_TIMES * self.steps or sum(state.times.step_s) >= self.seconds)

    def _codecs_done(self, state: ProbeState, now: float) -> bool:
        """Let all codecs follow the real steps, and return whether there were enough, or it took too long."""
        if self.codec_steps == 0:
            return True
        if not state.shadows:
            workers, step_s = len(state.membership.members), max(1e-6, median(state.times.step_s))
            state.shadows = [state.local.shadow(name, workers, step_s) for name in self._watched]
            state.watched_s = now
            return False
        for shadow in state.shadows:
            shadow.follow(state.local.x)
        steps = len(state.shadows[0].nbytes)
        late = steps >= LEAST_CODEC_STEPS and now - state.watched_s > MOST_TIMES_LONGER * self.seconds
        if steps < self.codec_steps and not late:
            return False
        found = {shadow.name: shadow.figures() for shadow in state.shadows}
        state.codecs = {name: figures for name, figures in found.items() if figures is not None}
        return True

    # Links.

    def _tell_ready(self, state: ProbeState, receivers: tuple[int, ...], actions: list[m.MethodAction]) -> None:
        mine = set(state.links)
        state.done[state.membership.rank] = mine
        ranks = np.array(sorted(mine), np.int32).tobytes()
        actions += [m.Tell(other, m.Note(READY, 0, state.membership.version), ranks) for other in receivers]

    def _hear(self, state: ProbeState, heard: m.Heard, now: float, actions: list[m.MethodAction]) -> None:
        sender, note = heard.sender, heard.note
        if note.part > state.membership.version:
            state.early.append(heard)
        elif note.part < state.membership.version:
            pass
        elif note.kind == READY:
            if len(heard.payload) % 4:
                raise MalformedMessage(f"a list of ranks in {len(heard.payload)} bytes")
            state.done[sender] = set(np.frombuffer(heard.payload, np.int32).tolist())
            if state.over:
                actions += [tell for tell in self._tell_over(state) if tell.to == sender]
        elif note.kind == MEASURE:
            self._measure(state, note, now, actions)
        elif note.kind not in (PING, PONG, BULK, PULL):
            raise MalformedMessage(f"{note.kind!r} is no message of a probe")
        else:
            self._exchange(state, sender, note, now, actions)

    def _measure(self, state: ProbeState, note: m.Note, now: float, actions: list[m.MethodAction]) -> None:
        partner = note.numbers[0] if len(note.numbers) == 1 else -1
        if partner not in state.membership.others:
            raise MalformedMessage(f"measure the link to {note.numbers}, which is no member")
        state.measurement = Measurement(int(partner), state.membership.version)
        actions += state.measurement.ask(now)

    def _exchange(self, state: ProbeState, sender: int, note: m.Note, now: float, actions: list[m.MethodAction]) -> None:
        measurement = state.measurement
        if measurement is None or not measurement.awaits(sender, note):
            actions += answer(sender, note)
            return
        actions += measurement.heard(note, now)
        if measurement.figures is not None:
            state.links[measurement.partner] = measurement.figures
            state.measurement = None
            conductor = state.membership.members[0]
            self._tell_ready(state, (conductor,) if conductor != state.membership.rank else (), actions)

    def _move(self, state: ProbeState, membership: m.Membership, now: float, actions: list[m.MethodAction]) -> None:
        if membership.version == state.membership.version:
            return
        state.membership, state.measurement, state.asked = membership, None, None
        state.done.clear()
        if state.ready and not state.over:
            self._tell_ready(state, membership.others, actions)
        early, state.early = state.early, []
        for heard in early:
            self._hear(state, heard, now, actions)

    def _conduct(self, state: ProbeState, now: float, actions: list[m.MethodAction]) -> None:
        """Ask for the next link, at the lowest rank, when the last one has been measured."""
        membership = state.membership
        if state.over or membership.rank != membership.members[0] or not set(membership.members) <= set(state.done):
            return
        for one, other in pairs(membership.members):
            if other in state.done[one]:
                continue
            task = one * (1 << 31) + other
            if state.asked == task:
                return  # it is being measured
            state.asked = task
            note = m.Note(MEASURE, 0, membership.version, [float(other)])
            if one == membership.rank:
                self._measure(state, note, now, actions)
            else:
                actions.append(m.Tell(one, note))
            return
        state.over = state.complete = True
        actions += self._tell_over(state)

    def _tell_over(self, state: ProbeState) -> list[m.Tell]:
        """Return messages that end the waiting: all links are measured (1), or the run ends before that."""
        return [m.Tell(other, m.Note(OVER, 0, 0, [float(state.complete)])) for other in state.membership.others]

    def figures(self, state: ProbeState) -> dict[str, float]:
        """Return the figures, short enough for the 1024 characters of ``Statistics.counted``."""
        found = {"measured": state.complete, "size": float(len(state.local.x)), **state.times.figures()}
        for name, codec in state.codecs.items():
            found[f"encode.{name}"] = codec.encode_s_per_element
            found[f"absorb.{name}"] = codec.absorb_s_per_byte
            found[f"bits.{name}"] = codec.bits_per_element
        for rank, link in sorted(state.links.items()):
            found[f"trip.{rank}"] = link.round_trip_s
            found[f"typical.{rank}"] = link.typical_trip_s
            found[f"out.{rank}"] = link.out_bytes_per_s
            found[f"back.{rank}"] = link.back_bytes_per_s
        return {name: value if name == "size" else float(f"{value:.4g}") for name, value in found.items()}
