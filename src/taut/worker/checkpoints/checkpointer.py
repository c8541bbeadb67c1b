"""A worker's part of a run's checkpoints: a copy in memory between two steps, then a file, both made beside training.

The copy is of the moment when the loop has asked for its next batch: everything that the script does after a step (a
scheduler's step, say) is in it then, and the batch at hand is not trained on yet. So a run that is continued from here
hands out that very batch, with the random states as they were before it was fetched.

Training stands still for what is small, and before the optimizer's next step, if the copy is not complete by then:

    asked                memory for the copy is made ready, beside training       (large states; else at once)
    at the next batch    what is small is copied, and what a forward pass changes
    forward, backward    the rest is copied beside them (``memory_copy.py``)
    optimizer's step     waits for the end of the copy
    after that           the file is written, beside training, by a process that lets others go first
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.core.checkpoint_names import part_name
from taut.core.messages import CheckpointBegun, CheckpointDone
from taut.errors import Misuse, TautError
from taut.worker.checkpoints.background import BackgroundThread, Errand
from taut.worker.checkpoints.contents import contents, unsteady
from taut.worker.checkpoints.file import part_views, write_views
from taut.worker.checkpoints.gpu_copy import new_staging
from taut.worker.checkpoints.memory_copy import Copy, Memory, needed_nbytes
from taut.worker.checkpoints.resume import Resumption
from taut.worker.checkpoints.rng_states import put_back_random_states, random_states
from taut.worker.checkpoints.tree import fold
from taut.worker.checkpoints.writer_process import WriterProcess

if TYPE_CHECKING:
    import torch

    from taut.worker.session import WorkerSession
    from taut.worker.torch_worker import TorchWorker

Views = Callable[[], list[memoryview]]
REST_S = 0.02  # between two things that need the interpreter: so that the same step does not wait for both
LARGE_NBYTES = 1 << 20  # for less, memory is not worth waiting for


def check_also(also: Mapping[str, Any]) -> None:
    """``Misuse`` unless everything in it can be saved and restored.

    >>> check_also({"step": 3})
    Traceback (most recent call last):
    taut.errors.Misuse: join(also={'step': 3}): expected objects with state_dict and load_state_dict
    """
    for name, each in also.items():
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise Misuse(f"join(also={{{name!r}: {each!r}}})", "objects with state_dict and load_state_dict")
        fold(each.state_dict(), name, {}, blame=f"join(also={{{name!r}: ...}})")


class Checkpointer:
    """``folder``: where checkpoints go; None: there are none. ``resumed``: the checkpoint that this run continues; its
    random states, schedulers and learning rates are put back when the first batch is handed out, so that what the script
    did before does not matter."""

    def __init__(self, worker: TorchWorker, seat: WorkerSession, folder: Path | None, also: Mapping[str, Any]) -> None:
        self.worker, self.seat, self.folder, self.also = worker, seat, folder, dict(also)
        self.resumed: Resumption | None = seat.resumption
        self.taken = 0  # the number of the last one
        self._settled = self.resumed is None
        self._accumulating = False
        self._memory: Memory | None = None  # for the next copy, which has been asked for
        self._spare: Memory | None = None  # of the last one
        self._copy: Copy | None = None  # which may not be complete yet
        self._writing = False  # from the copy's beginning on
        self._errands = BackgroundThread("taut-checkpoint") if folder is not None else None
        self._scribe = WriterProcess() if folder is not None else None
        self._since_s = seat.node.clock.now()  # of the last one
        self._nbytes: int | None = None  # of memory that the last one needed
        self._staging = new_staging() if folder is not None and seat.arena.tensor.is_cuda else None
        self.pause_s = 0.0  # so long did training stop for the last one
        self._gathering_s = 0.0  # of that, before its batch was fetched
        self._stepped = False  # the optimizer's step was called of late, and so will wait for the copy
        self._changes_elsewhere = False  # the script changes weights at other times too: training must stop for the copy
        if self.resumed is not None:
            self.resumed.restore_worker(worker, self.also)
            self._put_back_random()

    @property
    def wanted(self) -> bool:
        """The supervisor asks for a checkpoint that was not taken yet."""
        asked = self.folder is not None and self.seat.node.facts.checkpoint > self.taken
        return asked and not self._writing

    @property
    def busy(self) -> bool:
        """One is being made."""
        return self._memory is not None or self._writing

    @property
    def can_take(self) -> bool:
        """It is wanted, and no gradients are being gathered over several batches: they are not in it."""
        return self.wanted and not self._accumulating and not self.seat.talk.gathering

    def before_batch(self, accumulating: bool) -> dict[str, Any] | None:
        """A batch is about to be fetched: the random states, where a checkpoint can be taken. ``accumulating``: no step
        was made with the last one."""
        self.before_change()  # updates may be included while the worker waits for data
        self._accumulating = accumulating
        if not self._settled:
            self._put_back_random()
        if not self.can_take or not self._ready():
            return None
        self.worker.watch.charge("data")
        states = random_states()
        self._gathering_s = self.worker.watch.charge("encode")
        return states

    def at_batch(self, states: dict[str, Any] | None) -> None:
        """The batch is here, and is handed out next."""
        self._settle()
        if states is not None and self.wanted:
            self._take(states, beside=self._stepped)
        self._stepped = self._stepped and (self._accumulating or self.seat.talk.gathering)

    def while_waiting(self) -> None:
        """No data at hand, for who knows how long: now is as good a moment as any."""
        if self.can_take:
            self._settle()
            self._take(random_states(), beside=False)

    def after_exchange(self) -> None:
        """In a loop of the script's own: there is no better moment."""
        if self.can_take and self._ready():
            self._settled = True
            self._take(random_states(), beside=self._stepped)
        self._stepped = self._stepped and self.seat.talk.gathering

    def before_step(self) -> None:
        """The optimizer is about to change the weights, and its own state."""
        self._stepped = True
        self.before_change()

    def before_change(self) -> None:
        """Somebody may be about to change what is being copied."""
        copy, self._copy = self._copy, None
        if copy is not None and not copy.done.is_set():
            self.worker.watch.charge("compute")
            copy.finish()
            self.pause_s += self.worker.watch.charge("encode")

    def _settle(self) -> None:
        if not self._settled and self.resumed is not None:
            self.resumed.restore_schedule(self.worker.optimizer, self.also)
            self._settled = True

    def _put_back_random(self) -> None:
        states = self.resumed.random_states() if self.resumed is not None else None
        if states is not None:
            put_back_random_states(states)

    # --------------------------------------------------------------------------------------------------- one

    def _ready(self) -> bool:
        """Whether there is memory for the copy; if not, it is being made ready."""
        if self._memory is None:
            nbytes = self._needed() if self._nbytes is None else self._nbytes
            if nbytes is None:
                return False
            self._memory, self._spare = self._room(nbytes if nbytes >= LARGE_NBYTES else 0), None
            if not self._memory.ready:
                self._hand(self._memory.touch)
        if self._memory.failure:
            self._give_up(self._memory.failure)
            return False
        return self._memory.ready

    def _room(self, nbytes: int) -> Memory:
        """That of the last checkpoint, if it is large enough."""
        if self._spare is not None and self._spare.nbytes >= nbytes:
            return self._spare
        return Memory(nbytes, self.seat.arena.tensor.device if self.seat.arena.tensor.is_cuda else None)

    def _needed(self) -> int | None:
        """How much memory the first one needs; None: there will be none. (What grows later gets its room when it is
        copied.)"""
        sources: dict[str, torch.Tensor] = {}
        try:
            contents(self.worker, self.seat, self.also, {}, sources)
        except Misuse as error:
            self._give_up(str(error))
            return None
        return needed_nbytes(sources)

    def _give_up(self, why: str) -> None:
        """This one will not be; training goes on."""
        self.taken, self._memory = self.seat.node.facts.checkpoint, None
        self.seat.node.say(CheckpointDone(self.taken, 0, "", why[:4000]))

    def _take(self, states: dict[str, Any], beside: bool) -> None:
        """Copy, or begin to: ``beside`` training, where the optimizer's step is known to wait for it."""
        watch, node = self.worker.watch, self.seat.node
        watch.charge("data")
        memory, self._memory = self._memory or Memory(0), None
        number = node.facts.checkpoint
        sources: dict[str, torch.Tensor] = {}
        try:
            document = {"number": number, **contents(self.worker, self.seat, self.also, states, sources)}
            copy = Copy(sources, memory, unsteady(self.seat), self.seat.arena.parameters, self._staging)
        except (TautError, RuntimeError, MemoryError) as error:  # something odd in an optimizer's state; no memory
            self._give_up(str(error))
            return
        self.taken, self._nbytes = number, needed_nbytes(sources)
        holds = self.seat.leases.unfinished(self.worker.progress())
        node.say(CheckpointBegun(number, holds, self.seat.phases.number, self.worker.steps))
        self._start(copy, memory, number, lambda: part_views(document, copy.tensors))
        self._copy = copy
        if not beside or self._changes_elsewhere:
            copy.finish()
        self.pause_s, self._gathering_s = self._gathering_s + watch.charge("encode"), 0.0

    def _start(self, copy: Copy, memory: Memory, number: int, views: Views) -> None:
        """Copy, then write, in another thread."""
        assert self.folder is not None
        path = self.folder / str(number) / part_name(self.seat.node.rank)
        self._writing = True
        self._hand(lambda: self._write(copy, memory, path, number, views))

    def _hand(self, errand: Errand) -> None:
        assert self._errands is not None
        self._errands.hand(errand)

    def _write(self, copy: Copy, memory: Memory, path: Path, number: int, views: Views) -> None:
        nbytes, digest, error = 0, "", ""
        now_s = self.seat.node.clock.now()
        within_s, self._since_s = now_s - self._since_s, now_s  # before the next one, most likely
        try:
            for _ in range(copy.copiers() - 1):
                threading.Thread(target=copy.work, name="taut-checkpoint-copy", daemon=True).start()
            copy.collect()
            if copy.torn:
                self._changes_elsewhere = True
                raise TautError(
                    "the script changed tensors before its optimizer's step; from now on, training is stopped"
                )
            time.sleep(REST_S)
            whole = views()
            time.sleep(REST_S)
            nbytes, digest = write_views(path, whole, self._scribe, within_s)
        except (TautError, OSError, RuntimeError, MemoryError) as failure:
            error = (str(failure) or type(failure).__name__)[:4000]
        finally:
            memory.release()
            self._spare, self._writing = memory, False
        self.seat.node.say(CheckpointDone(number, nbytes, digest, error, self.pause_s))
