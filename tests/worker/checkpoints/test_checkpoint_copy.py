"""The copy of a checkpoint that is taken beside training is of one moment, however late it is taken; a script that does
not let it be so is found out. The supervisor and its sockets are real; the worker is this thread."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from test_checkpoint import JOBS, Job, X, Y, continued
from torch import nn
from torch.nn import functional as F

from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.supervisor.checkpoints.folder import last_good
from taut.worker.checkpoints import checkpointer, memory_copy
from taut.worker.checkpoints.checkpointer import Checkpointer
from taut.worker.checkpoints.memory_copy import Copy, CopyMemory, needed_nbytes

TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)


@st.composite
def tensors(draw: Any) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 40), min_size=0, max_size=3))
    made = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    made = made.to(draw(st.sampled_from(TYPES)))
    return made.transpose(0, -1) if draw(st.booleans()) and made.ndim else made


@given(st.lists(tensors(), max_size=5), st.integers(0, 1 << 16), st.integers(1, 999), st.integers(1, 3))
@settings(deadline=None, max_examples=some(60))
def test_a_copy_has_the_bits_of_its_sources(sources: list[torch.Tensor], room: int, piece: int, threads: int) -> None:
    """Whatever their shapes, with room for all, some or none, in pieces of any size, in any number of threads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_copy, "SMALL_NBYTES", 64)
        patch.setattr(memory_copy, "AT_ONCE_NBYTES", 128)
        patch.setattr(memory_copy, "PIECE_NBYTES", piece)
        memory = CopyMemory(room)
        beside(memory.touch)
        named = {str(index): source for index, source in enumerate(sources)}
        copy = Copy(named, memory, now=("0",))
        before = [source.clone() for source in sources]
        others = [threading.Thread(target=copy.work) for _ in range(threads)]
        for other in others:
            other.start()
        copy.finish()
        for source in sources:
            source.zero_()
        for other in others:
            other.join()
    assert copy.done.is_set() and not copy.torn
    for source, target in zip(before, copy.tensors.values(), strict=True):
        assert torch.equal(source, target) and source.dtype == target.dtype and target.is_contiguous()


def beside(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_there_is_room_for_what_was_asked_for() -> None:
    sources = {"a": torch.zeros(20_001), "b": torch.zeros(3), "c": torch.zeros(17_003, dtype=torch.float64)}
    memory = CopyMemory(needed_nbytes(sources))
    beside(memory.touch)
    slab = memory._slab
    assert slab is not None and memory.ready and not memory.failure
    storages = [memory.like(sources[name]).untyped_storage().data_ptr() for name in ("a", "c")]
    assert storages == [slab.untyped_storage().data_ptr()] * 2
    assert memory.like(sources["a"]).untyped_storage().data_ptr() != storages[0], "no room is left"
    memory.release()
    assert memory.ready, "for the next one"
    assert memory.like(sources["a"]).untyped_storage().data_ptr() == storages[0]


def lazily_free_nbytes() -> int:
    """Of this process: what the system may take when it wants to."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("LazyFree:"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says which pages it may take")
def test_between_two_checkpoints_the_system_may_have_the_pages() -> None:
    memory = CopyMemory(1 << 22)
    beside(memory.touch)
    slab = memory._slab
    assert slab is not None
    slab.fill_(7)
    before = lazily_free_nbytes()
    memory.release()
    assert lazily_free_nbytes() >= before + memory.nbytes


def test_what_is_written_to_meanwhile_is_torn() -> None:
    weights, shared = torch.ones(1_000_000), torch.ones(100_000)
    parameter = nn.Parameter(torch.empty(0))
    parameter.data = shared.view(100, 1000)
    for change in (lambda: weights.add_(0.0), lambda: parameter.grad and None, lambda: shift(parameter)):
        copy = Copy({"w": weights, "s": torch.from_numpy(shared.numpy())}, CopyMemory(0), watched=[parameter])
        before = weights._version + parameter._version
        change()
        copy.finish()
        assert copy.torn is (weights._version + parameter._version != before)


def shift(parameter: nn.Parameter) -> None:
    with torch.no_grad():
        parameter.mul_(1.0)


def test_no_memory_is_no_reason_to_die() -> None:
    memory = CopyMemory(1 << 60)
    beside(memory.touch)
    assert memory.ready and "no memory for a copy of" in memory.failure


# ------------------------------------------------------------------------------------------------------- in a run


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[Copy]:
    """Every tensor counts as large, memory is made in its own thread, and nothing is copied before the training thread
    itself must: at the last moment, that is. The copies that were made."""
    training, made = threading.current_thread(), []
    work, begin, ready = Copy.work, Copy.__init__, Checkpointer._ready

    def idle(self: Copy) -> None:
        if threading.current_thread() is training:
            work(self)

    def noted(self: Copy, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        made.append(self)

    def patient(self: Checkpointer) -> bool:
        if not ready(self) and self._memory is not None:
            memory = self._memory
            self.session.comm.wait(lambda _: memory.ready, lambda: None)
        return ready(self)

    monkeypatch.setattr(memory_copy, "SMALL_NBYTES", 1)
    monkeypatch.setattr(memory_copy, "AT_ONCE_NBYTES", 0)
    monkeypatch.setattr(checkpointer, "LARGE_NBYTES", 1)
    monkeypatch.setattr(Copy, "work", idle)
    monkeypatch.setattr(Copy, "__init__", noted)
    monkeypatch.setattr(Checkpointer, "_ready", patient)
    return made


@pytest.mark.parametrize("name", ["adamw", "threshold", "loader", "sync topk", "dpsgd", "dgc"])
def test_the_last_moment_is_early_enough(name: str, late: list[Copy], tmp_path: Path) -> None:
    job = JOBS[name]
    kill = random.Random(name).randrange(2, 40)
    assert continued(job, tmp_path / "cut", kill) == job.run(tmp_path / "whole"), f"killed after step {kill}"
    assert late and not any(copy.torn for copy in late)


class Meddling(Job):
    """A script that changes a weight before its optimizer does."""

    def _train(self, worker: Any, model: nn.Module, scheduler: Any) -> Iterator[int]:
        for x, y in worker.batches((X, Y), batch_size=20, epochs=self.epochs):
            with torch.no_grad():
                next(model.parameters()).mul_(1.0)
            worker.step(F.cross_entropy(model(x), y))
            yield worker.steps

    def _hold(self, worker: Any, folder: Path, steps: int, kill: int) -> bool:
        """Until a checkpoint is whole that came after one that was torn."""
        keeper, wait = worker._keeper, worker._session.comm.wait
        if keeper._changes_elsewhere and keeper.taken > 1:
            wait(lambda _: (folder / FOLDER / str(keeper.taken) / MANIFEST).exists(), lambda: None)
            return True
        wait(lambda _: keeper.wanted, lambda: None)
        return False


def test_a_script_that_changes_weights_at_other_times_is_found_out(late: list[Copy], tmp_path: Path) -> None:
    Meddling(epochs=400).run(tmp_path / "run", kill=1)
    assert late[0].torn and not late[-1].torn
    found = last_good(tmp_path / "run" / FOLDER)
    assert found is not None and found.manifest.number == 2
