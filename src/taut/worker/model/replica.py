"""The torch model as a framework-free worker: its flat parameters, and a codec that says what to tell the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from taut.codecs import Codec, Grid, Tether, sketch, snap
from taut.codecs.wire.residual import read_residual, residual_parts
from taut.core.events import Include
from taut.errors import MalformedMessage, NonFiniteUpdate
from taut.worker.model.fragments import ENCODE_SHARE, fragment, fragments, least_fragments
from taut.worker.model.snapshot import Snapshot
from taut.worker.standalone.worker import Vector
from taut.worker.time_split import Stopwatch

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams

SKETCH_S = 5.0


class Replica:
    """``emit`` scans one fragment of the flat vector per step, in turn; the slack absorbs the wait. The number of
    fragments follows from measurement: as few as keep encoding within ``ENCODE_SHARE`` of a step."""

    def __init__(self, params: FlatParams, codec: Codec, uses_codec: bool = True, watch: Stopwatch | None = None) -> None:
        self.params, self.codec = params, codec
        self.uses_codec = (
            uses_codec  # it exchanges what the codec emits: there are shared weights beside the worker's own
        )
        watch = watch or Stopwatch()
        self.clock, self.thread_s = watch.clock, watch.thread_s
        self.codec_state: Any = None
        self.grid: Grid | None = None
        self.fragments = 1 if codec.whole else least_fragments(params.size)
        self.seed = 0  # of the codec's random numbers: the worker's rank
        self.steps = 0  # of the optimizer since the last exchange
        self._turn = 0
        self._behind = False  # the shared weights are, since no other worker holds them
        self._slack = 0.0  # as the run's owner has set it
        self._alone = False  # then nothing is measured that changes what is sent: the run repeats itself
        self._encode_s = self._step_s = 0.0
        self._emitted_s: float | None = None
        self._sketched_s = float("-inf")
        self.sketch: list[float] = []

    def found(self, workers: int, kept: Mapping[str, int] | None = None) -> None:
        """Make this worker's initial weights the run's. ``kept``: exponents, by name, of tensors that keep their grid."""
        self._alone = workers == 1
        self.grid = snap(self.params.vector, self.params.sizes, self.params.names, kept)
        self.params.masters.stale = True
        if self.uses_codec:
            self._start(workers)

    def _start(self, workers: int) -> None:
        params = self.params
        self.codec_state = self.codec.start(params.vector, workers, self.grid, shapes=params.shapes, seed=self.seed)

    def join(self, state: Snapshot, workers: int) -> None:
        """Take over the run's state."""
        self._alone = workers == 1
        self.grid, vector = self._read(state)
        self.params.load_still(state.still)
        if self.uses_codec:
            self._start(workers)
            self.codec.adopt(self.codec_state, vector)
            self.params.masters.stale = True
        else:
            self.params.load(vector)

    def _read(self, state: Snapshot) -> tuple[Grid, Vector]:
        """Return the grid and the weights in a donor's state. ``MalformedMessage`` if they are another model's."""
        try:
            grid = Grid.unpack(state.grid, self.params.names)
        except LookupError as error:
            raise MalformedMessage(f"a state whose grid has no {error}") from None
        weights = len(state.vector) / 4
        if weights != self.params.size or sum(grid.sizes) != self.params.size or len(grid.sizes) != len(grid.exponents):
            raise MalformedMessage(f"a state of {weights:g} weights; this model has {self.params.size}")
        return grid, np.frombuffer(state.vector, np.float32)

    def succeed(self, previous: Replica, state: Snapshot, returns: str) -> None:
        """Take over the run's ``state`` after a rejoin, but for what this worker brings along: what its codec has not
        sent ("sum"), its own weights ("mix"), or nothing ("take")."""
        if returns == "take":
            self.join(state, workers=2)
            return
        self.grid, vector = self._read(state)
        self._turn, self.fragments = previous._turn, previous.fragments
        if self.uses_codec:
            self.codec_state = previous.codec_state
            if returns == "sum":
                self.codec.rebase(self.codec_state, vector)
                self.params.masters.stale = True

    def resume(self, shared: Vector, grid: Grid, workers: int) -> None:
        """Take the run's weights, and the grid that they are on, from a checkpoint."""
        self.grid, self._alone = grid, workers == 1
        self.params.load(shared)
        if self.uses_codec:
            self._start(workers)

    def kept(self) -> dict[str, int]:
        """Return what a checkpoint keeps, beside the weights and the codec's state."""
        return {"turn": self._turn, "fragments": self.fragments, "steps": self.steps}

    def restore(self, kept: Mapping[str, int]) -> None:
        least = 1 if self.codec.whole else least_fragments(self.params.size)
        self._turn, self.fragments = kept["turn"], max(kept["fragments"], least)
        self.steps = kept.get("steps", 0)  # earlier checkpoints have none

    def fall_behind(self) -> bool:
        """Let the shared weights be what they were until they are asked for, since no other worker holds them; return
        whether the codec can catch up then."""
        state = self.codec_state
        self._behind = self.codec.catches_up and self.uses_codec and state is not None and state.measured
        return self._behind

    def catch_up(self) -> None:
        """Bring the shared weights to what they would be, where this worker was alone and sent nothing."""
        if self._behind:
            self._behind = False
            self.codec.catch_up(self.codec_state)

    def emit(self) -> bytes | None:
        self.catch_up()
        begun = self.thread_s()
        lo, hi = fragment(self._turn % self.fragments, self.fragments, self.params.size)
        self.codec_state.steps, self.steps = max(1, self.steps), 0
        try:
            payload = self.codec.emit(self.codec_state, lo, hi)
        except NonFiniteUpdate as error:
            raise self.params.blame(error) from None
        self.params.masters.stale = True  # a codec with a residual takes back what it has not sent
        self._turn += 1
        self._measure(self.thread_s() - begun, self.clock.now())
        return payload

    def check(self, payload: bytes) -> object:
        """Return what ``absorb`` takes with a payload, in the communication thread. Raises ``MalformedMessage``."""
        if self.codec_state is None or not self.uses_codec:
            return None  # in between two phases: ``absorb`` looks at it
        return self.codec.check(self.codec_state, payload)

    def absorb(self, payload: bytes, sender: int, checked: object = None) -> None:
        self.catch_up()
        self.codec.absorb(self.codec_state, payload, checked)  # type: ignore[arg-type]
        self.params.masters.stale = True

    def absorb_together(self, items: Sequence[Include]) -> Sequence[Include]:
        """Include those of the updates that one launch on a GPU can add; return the others."""
        state = self.codec_state
        if state is None or not state.kernels.MERGES or not items:
            return items
        self.catch_up()
        words = [(item, self.codec.words_of(item.payload, cast(Any, item.checked))) for item in items]
        state.kernels.add_all_words(state.w, state.b, [one for _, one in words if one is not None])
        others = [item for item, one in words if one is None]
        entries = [(item, self.codec.entries_of(item.payload, cast(Any, item.checked))) for item in others]
        state.kernels.add_all_entries((state.w, state.b), [one for _, one in entries if one is not None])
        self.params.masters.stale = True
        return [item for item, one in entries if one is None]

    def retune(self, workers: int, staleness: float) -> None:
        self._alone = workers == 1
        if self.uses_codec:
            self.codec.retune(self.codec_state, workers, staleness)

    def fix_slack(self, slack: float) -> None:
        """Fix the slack of ``tether`` from now on; 0, and another codec, change nothing."""
        if slack and slack != self._slack and self.uses_codec and isinstance(self.codec, Tether):
            self._slack = slack
            self.codec = self.codec.fixed(self.codec_state, slack)

    def flush(self) -> list[bytes]:
        self.catch_up()
        return self.codec.flush(self.codec_state)

    def residual_parts(self) -> Iterator[bytes]:
        """Return what the codec has not sent, for another worker to take over: dense payloads."""
        if self.uses_codec:
            self.catch_up()
            yield from residual_parts(self.codec, self.codec_state)

    def inherit(self, payload: bytes) -> None:
        """Take over what another worker left. Raises ``MalformedMessage``."""
        self.codec.inherit(self.codec_state, *read_residual(payload, self.params.size))

    def shared(self) -> Any:
        """Return the weights that this replica stands for: the shared ones, or its own where nothing is sent."""
        self.catch_up()
        return self.codec.shared(self.codec_state) if self.uses_codec else self.params.vector

    def take_shared(self) -> None:
        """Give the model the shared weights, on which all replicas agree at the end."""
        shared = self.shared()
        if shared is not self.params.vector:
            self.params.vector[:] = shared
            self.params.masters.stale = True
        self.params.masters.refresh()

    def retire(self) -> None:
        """Drop the codec at the end of the run: the model's weights are all there is from now on."""
        self.take_shared()
        self.uses_codec = False

    def state(self, shown: Any = None) -> Snapshot:
        """Return what a newcomer begins with: the shared weights, or others that the method ``shown``."""
        vector = self.params.host(self.shared()).tobytes() if shown is None else shown.tobytes()
        assert self.grid is not None
        return Snapshot(vector, self.params.still_bytes(), self.grid.pack())

    def digest(self) -> str:
        """Return the hash of the shared weights, to the last bit."""
        shared: Any = self.params.host(self.shared())
        return hashlib.blake2b(shared.view(np.uint8), digest_size=16).hexdigest()

    def update_sketch(self) -> None:
        """Renew the sketch of the weights if it is time; its cost stays under half a percent."""
        begun = self.clock.now()
        if begun < self._sketched_s:
            return
        self.sketch = sketch(self.params.vector)
        ended = self.clock.now()
        self._sketched_s = ended + max(SKETCH_S, 200 * (ended - begun))

    def _measure(self, encode_s: float, ended: float) -> None:
        """Choose the number of fragments. ``encode_s``: this thread's own time: a busy machine changes nothing."""
        if self._emitted_s is not None:
            self._encode_s += 0.1 * (encode_s * self.fragments - self._encode_s)  # of the whole vector
            self._step_s += 0.1 * ((ended - self._emitted_s) - self._step_s)
            if self._turn % 32 == 0 and self._step_s > 0 and not (self.codec.whole or self._alone):
                wanted = fragments(self._encode_s, self.params.size, self._step_s)
                if wanted > self.fragments or 4 * self._encode_s / (ENCODE_SHARE * self._step_s) < self.fragments:
                    self.fragments = wanted
        self._emitted_s = ended
