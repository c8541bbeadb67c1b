"""The process that writes checkpoints: what it writes has the bits that a thread of ours would write, whole or not at
all, whatever happens to the disk, to it, or to the worker."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from examples import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_checkpoint import Job
from torch import nn

from taut.core.checkpoint_names import DIGEST_NBYTES, FOLDER
from taut.errors import StorageFailed
from taut.supervisor.checkpoints.folder import last_good
from taut.worker.checkpoints import gpu_copy
from taut.worker.checkpoints.background import BackgroundThread
from taut.worker.checkpoints.file import part_views, read_part, write_views
from taut.worker.checkpoints.writer_process import PROGRAM, WriterProcess, WriterProcessLost
from taut.worker.checkpoints.writer_program import PIECE_NBYTES

PATIENCE_S = 30.0


@pytest.fixture(scope="module")
def writer() -> Iterator[WriterProcess]:
    one = WriterProcess()
    yield one
    one.close()


SIZES = st.lists(st.sampled_from([0, 1, 7, 4096, 65_537, PIECE_NBYTES - 1, PIECE_NBYTES, PIECE_NBYTES + 1]), max_size=5)


@given(SIZES, st.sampled_from([None, 0.0, 0.001, 60.0]))
@settings(deadline=None, max_examples=some(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_bits_are_those_of_a_thread(
    writer: WriterProcess, tmp_path: Path, sizes: list[int], hurry: float | None
) -> None:
    """In whatever hurry, order after order."""
    tensors = {str(index): torch.randint(0, 256, (size,), dtype=torch.uint8) for index, size in enumerate(sizes)}
    by_thread = write_views(tmp_path / "thread", part_views({"steps": 1}, tensors))
    by_process = write_views(tmp_path / "new" / "writer", part_views({"steps": 1}, tensors), writer, hurry)
    assert by_process == by_thread
    assert (tmp_path / "new" / "writer").read_bytes() == (tmp_path / "thread").read_bytes()
    assert all(torch.equal(read_part(tmp_path / "thread", by_thread[1]).tensor(name), tensors[name]) for name in tensors)


def test_what_the_disk_does_not_let_us_is_said_and_the_next_is_written(writer: WriterProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    body = memoryview(bytes(3 * PIECE_NBYTES))
    for _ in range(2):
        with pytest.raises(StorageFailed, match="part could not be written: File exists"):
            writer.write(tmp_path / "file" / "part", [body], DIGEST_NBYTES)
        assert writer.write(tmp_path / "part", [body], DIGEST_NBYTES)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "part"]


def test_without_a_scribe_the_worker_writes(tmp_path: Path) -> None:
    writer, views = WriterProcess(), [memoryview(b"x")]
    assert writer._process is not None
    writer._process.kill()
    writer._process.wait()
    for _ in range(2):
        with pytest.raises(WriterProcessLost):
            writer.write(tmp_path / "part", views, DIGEST_NBYTES)
        write_views(tmp_path / "part", part_views({"steps": 2}, {"w": torch.ones(3)}), writer)
        assert read_part(tmp_path / "part").document["steps"] == 2
    writer.close()
    with mock.patch.object(sys, "executable", ""):
        nowhere = WriterProcess()
    with pytest.raises(WriterProcessLost):
        nowhere.write(tmp_path / "part", views, DIGEST_NBYTES)


@pytest.mark.parametrize("end", ["the worker is killed", "the writer is killed"])
def test_half_a_file_never_takes_the_name(end: str, tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_text("the last good one")
    nbytes = 2 * PIECE_NBYTES
    order = {"path": str(path), "nbytes": nbytes, "digest_nbytes": DIGEST_NBYTES, "within_s": None}
    written = json.dumps(order).encode()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        program.stdin.write(len(written).to_bytes(8, "little") + written + bytes(nbytes - 1))
        program.stdin.flush()  # more than the pipe holds: so it is at work
        if end == "the writer is killed":
            program.kill()
        program.stdin.close()
        program.wait(PATIENCE_S)
    assert path.read_text() == "the last good one"
    if end == "the worker is killed":
        assert [each.name for each in tmp_path.iterdir()] == ["part"]


class Robbed(Job):
    """Its writer is gone from the start."""

    def _train(self, worker: Any, model: nn.Module, scheduler: Any) -> Iterator[int]:
        worker._keeper._writer._process.kill()
        return super()._train(worker, model, scheduler)


def test_a_run_without_its_scribe_has_checkpoints_all_the_same(tmp_path: Path) -> None:
    Robbed().run(tmp_path / "run", kill=2)
    found = last_good(tmp_path / "run" / FOLDER)
    assert found is not None and not found.damaged


# ------------------------------------------------------------------------------------------------------- the thread


def test_errands_are_done_in_order_and_a_fault_ends_none_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    faults: list[object] = []
    over = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: faults.append(args.exc_value))
    background = BackgroundThread("background")

    def fail() -> None:
        raise KeyError("a fault")

    for index in range(5):
        background.submit(fail if index == 2 else lambda index=index: done.append(index))  # type: ignore[misc]
    background.submit(over.set)
    assert over.wait(PATIENCE_S) and done == [0, 1, 3, 4]
    assert [repr(fault) for fault in faults] == ["KeyError('a fault')"]


def test_the_thread_ends_when_nobody_holds_it() -> None:
    background = BackgroundThread("held")
    thread = next(each for each in threading.enumerate() if each.name == "held")
    background.submit(lambda held=background: held.submit(int))  # type: ignore[misc]  # a task that holds it does not count
    del background
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


# ------------------------------------------------------------------------------------------------- on the GPU, first


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.sampled_from(["f4", "f2", "i8", "?"])), max_size=6))
@settings(deadline=None, max_examples=40)
def test_copies_in_one_piece_of_memory_have_the_bits(shapes: list[tuple[int, int, str]]) -> None:
    kinds = {"f4": torch.float32, "f2": torch.bfloat16, "i8": torch.int64, "?": torch.bool}
    sources = [torch.randint(0, 2, (a, b)).to(kinds[kind]).T for a, b, kind in shapes] + [torch.tensor(3.0)]
    pairs = [(torch.empty(0), source) for source in sources]
    with mock.patch.object(gpu_copy, "free_nbytes", return_value=1 << 20):
        there = gpu_copy.cloned(torch.device("cpu"), pairs)
    assert there is not None
    before = [source.clone() for source in sources]
    for source in sources:
        source.zero_()
    for (target, copy), (host, _), source in zip(there, pairs, before, strict=True):
        assert target is host and torch.equal(copy, source) and copy.dtype == source.dtype and copy.is_contiguous()
    with mock.patch.object(gpu_copy, "free_nbytes", return_value=1):
        assert gpu_copy.cloned(torch.device("cpu"), pairs) is None
