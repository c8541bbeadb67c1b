"""The service over real sockets: small clients that speak the protocol, real files, real SQLite."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from clients import PATIENCE_S, Harness, work
from safetensors.torch import load_file, save
from scripted import digest

from taut.core.messages import (
    UPLOAD_NBYTES,
    Done,
    Drain,
    Expulsion,
    Finish,
    Heartbeat,
    Pulse,
    Refusal,
    Roster,
    Saved,
    Start,
    Statistics,
    Upload,
)
from taut.errors import Misuse, StorageFailed
from taut.supervisor.prepare import Listen
from taut.supervisor.service import Supervisor
from taut.supervisor.storage.store_reader import list_runs, load_run
from taut.transport.framing import encode


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(tmp_path)
    yield harness
    harness.close()


def test_a_whole_run_over_sockets(harness: Harness) -> None:
    supervisor = harness.supervise(workers=2)
    assert os.stat(supervisor.token_file).st_mode & 0o777 == 0o600
    assert supervisor.token_file.read_text().strip() == supervisor.token
    one, two = harness.client(11), harness.client(12)
    assert one.become_ready() == 0
    assert two.become_ready() == 1
    one.say(Heartbeat(Statistics(steps=4, loss=0.5), [0.0, 0.0]))
    two.say(Heartbeat(Statistics(steps=5, loss=0.4), [2.0, 0.0]))
    one.hear(Pulse)
    two.hear(Pulse)
    view = harness.seen(lambda view: view.consensus == 1.0)
    assert view.state == "training"
    assert [row.statistics.steps for row in view.workers] == [4, 5]
    work(one)
    work(two)
    for client in (one, two):
        client.hear(Drain)
        client.say(digest(), b"\0" * 8)
    assert one.hear(Finish) == two.hear(Finish) == Finish(identical=True, writer=0)
    tensors = {"a.weight": torch.arange(12.0).reshape(3, 4)}
    data = save(tensors)
    for offset in range(0, len(data), 64):
        one.say(Upload(offset, len(data)), data[offset : offset + 64])
    saved = one.hear(Saved)
    assert saved.error == ""
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code, outcome.identical) == ("finished", 0, True)
    assert (outcome.samples_again, outcome.samples_undone) == (0, 0)
    assert torch.equal(load_file(outcome.model)["a.weight"], tensors["a.weight"])
    supervisor.stop()
    record = load_run(harness.path / "runs", "a-run")
    assert record.summary.state == "finished"
    assert record.summary.command == "taut run x.py"
    assert record.settings == {"tau": 0.5}
    assert len(record.workers) == 2
    assert record.latest()[0].samples == 10
    assert "start" in [event.kind for event in record.events]


def test_rubbish_is_counted_and_the_loop_goes_on(harness: Harness) -> None:
    harness.supervise(workers=1)
    stranger, worker = harness.client(1), harness.client(2)
    stranger.send([b"rubbish"])
    assert "could not be read" in stranger.hear(Refusal).reason
    worker.become_ready()
    for frames in ([b"rubbish"], [b""], [b"t\x01\x90"], encode(Done())[:1] * 2):
        worker.send(frames)
    worker.say(Heartbeat(Statistics(), []))
    worker.hear(Pulse)
    view = harness.seen(lambda view: sum(event.kind == "odd" for event in view.events) >= 5)
    assert view.state == "training"
    assert view.events_since(view.events[-1].number) == ()


def test_the_engines_news_of_a_death_reach_the_others(harness: Harness) -> None:
    supervisor = harness.supervise(workers=2)
    one, two = harness.client(11), harness.client(12)
    one.become_ready()
    two.become_ready()
    one.hear(Start)
    supervisor.exited(12, "killed by SIGKILL", clean=False)
    while not (gone := one.hear(Roster).gone):
        pass
    assert [(each.rank, each.reason) for each in gone] == [(1, "killed by SIGKILL")]
    two.say(Heartbeat(Statistics(), []))
    assert two.hear(Expulsion).reason == "killed by SIGKILL"


def test_ctrl_c_drains_and_a_second_one_stops(harness: Harness) -> None:
    supervisor = harness.supervise(workers=1)
    worker = harness.client(11)
    worker.become_ready()
    supervisor.drain("interrupted")
    assert worker.hear(Drain).reason == "interrupted"
    assert supervisor.wait(0.0) is None
    supervisor.stop()
    supervisor.stop()
    assert worker.hear(Expulsion).reason == "the run was stopped"
    outcome = supervisor.wait(None)
    assert outcome is not None
    assert (outcome.state, outcome.exit_code) == ("failed", 1)
    assert supervisor.view().state == "failed"
    assert list_runs(harness.path / "runs")[0].state == "failed"


def test_a_supervisor_that_was_asleep_gives_nobody_up(harness: Harness) -> None:
    clock = JumpingClock()
    harness.supervise(workers=1, clock=clock)
    worker = harness.client(11)
    worker.become_ready()
    worker.hear(Start)
    clock.offset_s = 3600.0
    harness.seen(lambda view: view.wall_s > 3600.0)
    worker.say(Heartbeat(Statistics(), []))
    worker.hear(Pulse)
    assert [row.state for row in harness.seen(lambda view: True).workers] == ["training"]


class JumpingClock:
    """The machine's clock, and what a test adds to it."""

    offset_s = 0.0

    def now(self) -> float:
        return time.monotonic() + self.offset_s


def test_a_model_that_cannot_be_written_is_told(harness: Harness) -> None:
    supervisor = harness.supervise(workers=1)
    worker = harness.client(11)
    worker.become_ready()
    supervisor.drain("enough")
    worker.hear(Drain)
    worker.say(digest(), b"")
    worker.hear(Finish)
    worker.say(Upload(0, 7), b"rubbish")
    assert "no safetensors file" in worker.hear(Saved).error
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert outcome.exit_code == 1
    assert outcome.model is None


def test_a_bug_in_the_loop_ends_the_run_instead_of_hanging_it(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = harness.supervise(workers=1)

    def broken(reason: str, now: float) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(supervisor._cluster, "drain", broken)
    supervisor.drain("now")
    outcome = supervisor.wait(PATIENCE_S)
    assert outcome is not None
    assert "ZeroDivisionError" in outcome.error
    assert outcome.exit_code == 1


def test_bad_input_is_refused_before_anything_is_started(tmp_path: Path, harness: Harness) -> None:
    with pytest.raises(Misuse, match="at least 1"):
        Supervisor({}, tmp_path / "x", run="x", workers=0, seed=0)
    with pytest.raises(Misuse, match="4096"):
        Supervisor({"long": "x" * 5000}, tmp_path / "x", run="x", workers=1, seed=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed):
        Supervisor({}, tmp_path / "file" / "x", run="x", workers=1, seed=0)
    port = int(harness.supervise(workers=1).address.rsplit(":", 1)[1])
    with pytest.raises(Misuse, match=str(port)):
        Supervisor({}, tmp_path / "x", run="x", workers=1, seed=0, listen=Listen(port=port))


def test_stop_before_start_lets_go_of_everything(tmp_path: Path) -> None:
    supervisor = Supervisor({}, tmp_path / "x", run="x", workers=1, seed=0)
    supervisor.stop()
    outcome = supervisor.wait(0.0)
    assert outcome is not None
    assert outcome.state == "failed"


def test_neither_torch_nor_numba_is_imported_at_start() -> None:
    script = "import sys, taut.supervisor.service as s; sys.exit(bool({'torch', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_chunks_of_the_upload_fit_the_wire() -> None:
    frames = encode(Upload(0, UPLOAD_NBYTES), [b"\0" * UPLOAD_NBYTES])
    assert sum(map(len, frames)) < 2 * UPLOAD_NBYTES
