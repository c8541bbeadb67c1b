"""A worker's part of a run's checkpoints: a copy in memory between two steps, then a file, both made beside training.

The copy is of the moment when the loop has asked for its next batch: everything that the script does after a step (a
scheduler's step, say) is in it then, and the batch at hand is not trained on yet. So a run that resumes from here hands
out that very batch, with the random states as they were before it was fetched.

Training stops only to copy small tensors, and before the optimizer's next step, if the copy is not complete by then:

    requested            memory for the copy is made ready, beside training       (large states; else at once)
    at the next batch    small tensors are copied, and those that a forward pass changes
    forward, backward    the rest is copied beside them (``memory_copy.py``)
    optimizer's step     waits for the end of the copy
    after that           the file is written, beside training, by a process of low priority
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from taut.core.checkpoint_names import part_name
from taut.core.messages import CheckpointBegun, CheckpointDone
from taut.errors import Misuse, TautError
from taut.worker.checkpoints.background import BackgroundThread, Task
from taut.worker.checkpoints.contents import contents
from taut.worker.checkpoints.file import part_views, write_views
from taut.worker.checkpoints.gpu_copy import new_staging
from taut.worker.checkpoints.memory_copy import Copy, CopyMemory, needed_nbytes
from taut.worker.checkpoints.resume import Resumption
from taut.worker.checkpoints.rng_states import put_back_random_states, random_states
from taut.worker.checkpoints.writer_process import WriterProcess

if TYPE_CHECKING:
    from taut.worker.model.growth import Growth
    from taut.worker.participant import Participant
    from taut.worker.session import WorkerSession

REST_S = 0.02  # between two tasks that need the interpreter, so that one step does not wait for both
LARGE_NBYTES = 1 << 20  # for smaller copies, memory is not prepared


class Checkpointer:
    """``folder``: where checkpoints go; None: there are none. ``resumed``: the checkpoint that this run continues; its
    random states, schedulers and learning rates are restored with the first batch, whatever the script did before."""

    def __init__(self, worker: Participant, session: WorkerSession, folder: Path | None, also: Mapping[str, Any]) -> None:
        self.worker, self.session, self.folder, self.also = worker, session, folder, dict(also)
        self.resumed: Resumption | None = session.resumption
        self.taken = 0  # the number of the last checkpoint
        self._member = session.member
        self._restored = self.resumed is None
        self._accumulating = False
        self._memory: CopyMemory | None = None  # for the next copy, which was requested
        self._spare: CopyMemory | None = None  # of the last copy
        self._copy: Copy | None = None  # perhaps not complete yet
        self._writing = False  # since the copy began
        self._background = BackgroundThread("taut-checkpoint") if folder is not None else None
        self._writer = WriterProcess() if folder is not None else None
        self._since_s = session.comm.clock.now()  # when the last checkpoint was written
        self._nbytes: int | None = None  # of memory that the last one needed
        self._staging = new_staging() if folder is not None and session.params.tensor.is_cuda else None
        self.pause_s = 0.0  # how long training stopped for the last one
        self._gathering_s = 0.0  # the part of it before the batch was fetched
        self._stepped = False  # the optimizer's step was called recently, and so will wait for the copy
        self._changes_elsewhere = False  # the script changes weights at other times, too: training must stop for the copy
        if self.resumed is not None:
            self.resumed.restore_worker(worker, self.also)
            self._put_back_random()

    @property
    def wanted(self) -> bool:
        """Return whether the supervisor asks for a checkpoint that was not taken yet."""
        asked = self.folder is not None and self.session.comm.status.checkpoint > self.taken
        return asked and not self._writing

    @property
    def busy(self) -> bool:
        return self._memory is not None or self._writing

    @property
    def can_take(self) -> bool:
        """Return whether a checkpoint is wanted, and no gradients are accumulated: it would not hold those."""
        return self.wanted and not self._accumulating and not self.session.exchange.gathering

    @property
    def can_take_waiting(self) -> bool:
        """Return whether to take a checkpoint while there is no data: not in an island, whose processes must agree."""
        return self._member is None and self.can_take

    def _due(self) -> bool:
        """Return whether to take a checkpoint at the next batch. The processes of an island agree on that."""
        if self.folder is None:
            return False
        due, comm = self.can_take and self._ready(), self.session.comm
        if self._member is not None:
            wanted = comm.status.checkpoint if due else 0
            number = self._member.agree_on_checkpoint(wanted, self._writing, comm.rank)
            comm.status.checkpoint = max(comm.status.checkpoint, number)  # the runs of other parts have no schedule
            due = number > 0
        return due

    def before_batch(self, accumulating: bool) -> dict[str, Any] | None:
        """Return the random states, if a checkpoint can be taken. ``accumulating``: the last batch has made no step."""
        self.before_change()  # updates may be included while the worker waits for data
        self._accumulating = accumulating
        if not self._restored:
            self._put_back_random()
        if not self._due():
            return None
        self.worker.watch.charge("data")
        states = random_states()
        self._gathering_s = self.worker.watch.charge("encode")
        return states

    def at_batch(self, states: dict[str, Any] | None) -> None:
        """Take a checkpoint, if one is wanted, before the fetched batch is handed out."""
        self._restore_schedule()
        if states is not None and self.wanted:
            self._take(states, beside=self._stepped)
        self._stepped = self._stepped and (self._accumulating or self.session.exchange.gathering)

    def while_waiting(self) -> None:
        """Take a checkpoint while there is no data, perhaps for long: no moment is better."""
        if self.can_take_waiting:
            self._restore_schedule()
            self._take(random_states(), beside=False)

    def after_exchange(self) -> None:
        """Take a checkpoint in a loop of the script's own, which has no better moment."""
        if self._due():
            self._restored = True
            self._take(random_states(), beside=self._stepped)
        self._stepped = self._stepped and self.session.exchange.gathering

    def before_step(self) -> None:
        """Finish the copy before the optimizer changes the weights and its own state."""
        self._stepped = True
        self.before_change()

    def adopt(self, growth: Growth) -> None:
        """Make the next copy of a grown model: it needs other memory."""
        self.also, self._nbytes, self._spare = dict(growth.also), None, None
        if not self._writing:
            self._memory = None

    def before_change(self) -> None:
        """Finish the copy before anything may change what is being copied."""
        copy, self._copy = self._copy, None
        if copy is not None and not copy.done.is_set():
            self.worker.watch.charge("compute")
            copy.finish()
            self.pause_s += self.worker.watch.charge("encode")

    def _restore_schedule(self) -> None:
        if not self._restored and self.resumed is not None:
            self.resumed.restore_schedule(self.worker.optimizer, self.also)
            self._restored = True

    def _put_back_random(self) -> None:
        states = self.resumed.random_states() if self.resumed is not None else None
        if states is not None:
            put_back_random_states(states)

    def _ready(self) -> bool:
        """Return whether there is memory for the copy; if not, it is being made ready."""
        if self._memory is None:
            nbytes = self._needed() if self._nbytes is None else self._nbytes
            if nbytes is None:
                return False
            self._memory, self._spare = self._room(nbytes if nbytes >= LARGE_NBYTES else 0), None
            if not self._memory.ready:
                self._submit(self._memory.touch)
        if self._memory.failure:
            self._give_up(self._memory.failure)
            return False
        return self._memory.ready

    def _room(self, nbytes: int) -> CopyMemory:
        if self._spare is not None and self._spare.nbytes >= nbytes:
            return self._spare
        weights = self.session.params.tensor
        return CopyMemory(nbytes, weights.device if weights.is_cuda else None)

    def _needed(self) -> int | None:
        """Return how much memory the first copy needs; None if there will be none. Tensors may grow later."""
        sources: dict[str, torch.Tensor] = {}
        try:
            contents(self.worker, self.session, self.also, {}, sources)
        except Misuse as error:
            self._give_up(str(error))
            return None
        return needed_nbytes(sources)

    def _give_up(self, why: str) -> None:
        """Report that this checkpoint will not be made; training goes on."""
        self.taken, self._memory = self.session.comm.status.checkpoint, None
        self.session.comm.say(CheckpointDone(self.taken, 0, "", why[:4000]))

    def _take(self, states: dict[str, Any], beside: bool) -> None:
        """Copy, or begin to: ``beside`` training, if the optimizer's step is known to wait for it."""
        watch, comm = self.worker.watch, self.session.comm
        watch.charge("data")
        memory, self._memory = self._memory or CopyMemory(0), None
        number, exchange = comm.status.checkpoint, self.session.exchange
        sources: dict[str, torch.Tensor] = {}
        try:
            document = {"number": number, **contents(self.worker, self.session, self.also, states, sources)}
            now = ["buffer.", "random."]  # names of tensors that the forward pass changes (batch-norm statistics)
            if exchange.exchanges_gradients:
                now += ["coder.", "method."]  # and the backward pass, if gradients are sent meanwhile
            copy = Copy(sources, memory, now, self.session.params.parameters, self._staging)
        except (TautError, RuntimeError, MemoryError) as error:  # something unknown in an optimizer's state; no memory
            self._give_up(str(error))
            return
        self.taken, self._nbytes = number, needed_nbytes(sources)
        holds = self.session.leases.unfinished(self.worker.progress())
        island = None if self._member is None else self._member.filed_under
        comm.say(CheckpointBegun(number, holds, self.session.phases.of_schedule, self.worker.steps, island))
        self._writing = True
        self._submit(lambda: self._write(copy, memory, document))
        self._copy = copy
        if not beside or self._changes_elsewhere:
            copy.finish()
        self.pause_s, self._gathering_s = self._gathering_s + watch.charge("encode"), 0.0

    def _submit(self, task: Task) -> None:
        assert self._background is not None
        self._background.submit(task)

    def _write(self, copy: Copy, memory: CopyMemory, document: dict[str, Any]) -> None:
        """Copy, then write, in another thread."""
        assert self.folder is not None
        own = document["rank"] if self._member is None else self._member.filed_under
        path = self.folder / str(document["number"]) / part_name(own)
        nbytes, digest, error = 0, "", ""
        now_s = self.session.comm.clock.now()
        within_s, self._since_s = now_s - self._since_s, now_s  # the next one is due after about as long
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
            whole = part_views(document, copy.tensors)
            time.sleep(REST_S)
            nbytes, digest = write_views(path, whole, self._writer, within_s)
        except (TautError, OSError, RuntimeError, MemoryError) as failure:
            error = (str(failure) or type(failure).__name__)[:4000]
        finally:
            memory.release()
            self._spare, self._writing = memory, False
        self.session.comm.say(CheckpointDone(document["number"], nbytes, digest, error, self.pause_s))
