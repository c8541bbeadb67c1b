"""The store with real SQLite files: what is written is read again, and a disk that fails costs nothing
else."""

from __future__ import annotations

import math
import shutil
import sqlite3
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from taut.core.messages import Statistics
from taut.errors import Misuse, StorageFailed, Superseded
from taut.supervisor.service import Supervisor
from taut.supervisor.standby import Standby
from taut.supervisor.storage.journal import Journal
from taut.supervisor.storage.previous_run import KEYS_FILE
from taut.supervisor.storage.store_reader import list_runs, load_run
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import Outcome
from taut.testing import FakeClock
from taut.transport.keys import RunKeys, write_token_file

OUTCOME = Outcome("finished", 0, True, True, "abc", Path("x/model.safetensors"), {}, ("worker 1: killed",), wall_s=3.5)


def a_run(runs: Path, name: str = "20261115-031822-quiet-otter") -> StoreWriter:
    store = StoreWriter(runs / name, name)
    store.begin(100.0, "taut run x.py", {"tau": 0.5}, {"python": "3.11"})
    return store


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    store.joined(101.0, 0, "here", 42)
    store.joined(101.5, 1, "there", 43)
    store.measured(102.0, 0, Statistics(steps=3, loss=0.25, tau=0.125))
    store.departed(103.0, 1, "killed by SIGKILL")
    store.event(103.0, "gone", "worker 1")
    store.finished(104.0, OUTCOME)
    store.close()
    record = load_run(tmp_path, "20261115-031822-quiet-otter")
    assert record.settings == {"tau": 0.5}
    assert record.versions == {"python": "3.11"}
    assert [(one.rank, one.host, one.gone, one.reason) for one in record.workers] == [
        (0, "here", None, ""),
        (1, "there", 103.0, "killed by SIGKILL"),
    ]
    assert record.latest() == {0: Statistics(steps=3, loss=0.25, tau=0.125)}
    assert [(one.kind, one.text) for one in record.events] == [("gone", "worker 1")]
    assert record.outcome is not None
    assert record.outcome["failures"] == ["worker 1: killed"]
    summary = record.summary
    assert (summary.state, summary.started, summary.ended, summary.workers) == ("finished", 100.0, 104.0, 2)
    assert (summary.model, summary.exit_code, summary.identical) == ("x/model.safetensors", 0, True)
    assert list_runs(tmp_path) == [summary]


def test_statistics_are_thinned_and_the_last_is_kept(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    for step in range(103):
        store.measured(100.0 + 0.1 * step, 0, Statistics(steps=step))
    store.finished(111.0, OUTCOME)
    store.close()
    kept = [one.statistics.steps for one in load_run(tmp_path, "quiet-otter").statistics]
    assert kept[0] == 0
    assert kept[-1] == 102
    assert len(kept) <= 23


def test_what_is_not_finite_is_kept_as_nothing(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    store.measured(102.0, 0, Statistics(loss=math.nan, staleness=math.inf))
    store.close()
    assert load_run(tmp_path, "quiet-otter").latest()[0] == Statistics()


def test_a_run_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    store.measured(102.0, 0, Statistics(steps=1))
    store.flush()
    store.measured(104.0, 0, Statistics(steps=2))
    record = load_run(tmp_path, "quiet-otter")
    assert record.summary.state == "running"
    assert record.outcome is None
    assert [one.statistics.steps for one in record.statistics] == [1]
    store.close()


def test_a_run_whose_supervisor_vanished_is_interrupted(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    store._database.execute("update run set pid = ?", (process.pid,))
    store.close()
    assert list_runs(tmp_path)[0].state == "interrupted"


def test_an_unknown_run_names_the_nearest(tmp_path: Path) -> None:
    a_run(tmp_path).close()
    a_run(tmp_path, "20261116-000000-quiet-otter").close()
    with pytest.raises(Misuse, match="did you mean '20261115-031822-quiet-otter'"):
        load_run(tmp_path, "20261115-031822-quiet-oter")
    with pytest.raises(Misuse, match="20261115-031822-quiet-otter or 20261116-000000-quiet-otter"):
        load_run(tmp_path, "quiet-otter")
    with pytest.raises(Misuse, match="taut runs"):
        load_run(tmp_path / "nowhere", "x")
    with pytest.raises(Misuse, match="runs in"):
        load_run(tmp_path, "")


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    a_run(tmp_path).close()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.sqlite").write_bytes(b"this is no database" * 100)
    assert [one.state for one in list_runs(tmp_path)] == ["running", "unreadable"]
    with pytest.raises(Misuse, match="damaged"):
        load_run(tmp_path, "broken")


def test_a_file_in_the_way_is_a_storage_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="file"):
        StoreWriter(tmp_path / "file" / "run", "run")


FULL_DISK = """
    import resource, sys
    from functools import partial
    from pathlib import Path
    from taut.core.messages import Statistics
    from taut.supervisor.storage.journal import Journal
    from taut.supervisor.storage.store_writer import StoreWriter

    store = StoreWriter(Path(sys.argv[1]), "run")
    store.begin(100.0, "", {}, {})
    journal = Journal(store, 0.0, 100.0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    for step in range(3000):
        statistics = Statistics(steps=step)
        journal.write(float(step), partial(StoreWriter.measured, rank=step % 50, statistics=statistics, final=True))
        journal.record("note", "x" * 500, float(step))
        journal.flush(float(step))
    warnings = [event for event in journal.events if event.kind == "storage"]
    assert journal.broken
    kept = len(journal.events)
    journal.close()
    print(kept, len(warnings))
"""


def test_a_full_disk_stops_the_statistics_but_nothing_else(tmp_path: Path) -> None:
    run = tmp_path / "run"
    script = textwrap.dedent(FULL_DISK)
    done = subprocess.run(
        [sys.executable, "-c", script, str(run)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "500", "events are still kept for the display"
    assert 0 < len(load_run(tmp_path, "run").statistics) < 3000, "what was written before is whole"


class FailingStore(StoreWriter):
    """A store whose disk is full for a while."""

    full = False

    def _run(self, statement: str, values: tuple[object, ...]) -> None:
        if self.full:
            raise StorageFailed("disk full")
        super()._run(statement, values)


def test_one_warning_is_given_and_the_outcome_is_tried_again(tmp_path: Path) -> None:
    store = FailingStore(tmp_path / "run", "run")
    store.begin(100.0, "", {}, {})
    journal = Journal(store, 0.0, 100.0)
    store.full = True
    for step in range(10):
        statistics = Statistics(steps=step)
        journal.write(float(step), partial(StoreWriter.measured, rank=0, statistics=statistics, final=True))
    assert [event.kind for event in journal.events] == ["storage"]
    assert "disk full" in journal.events[0].text
    store.full = False
    journal.finished(OUTCOME, 11.0)
    journal.close()
    assert load_run(tmp_path, "run").summary.state == "finished"


def test_the_file_is_in_write_ahead_mode(tmp_path: Path) -> None:
    store = a_run(tmp_path)
    assert store._database.execute("pragma journal_mode").fetchone() == ("wal",)
    store.close()
    with pytest.raises(sqlite3.ProgrammingError):
        store._database.execute("select 1")


def test_of_all_who_take_over_at_once_one_does(tmp_path: Path) -> None:
    a_run(tmp_path).close()
    folder = tmp_path / "20261115-031822-quiet-otter"
    previous = StoreWriter(folder, folder.name)
    previous.remember(101.0, 3, ("tcp://127.0.0.1:1", "127.0.0.1", ""), b"all")
    previous.flush()
    with sqlite3.connect(folder / "run.sqlite") as database:
        database.execute("update run set pid = 0")  # as of a process that is gone
    together = threading.Barrier(8)

    def take_over(_: int) -> bool:
        store = StoreWriter(folder, folder.name)
        together.wait(30)
        try:
            store.claim(3)
        except Superseded:
            return False
        finally:
            store.close()
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(take_over, range(8))) == [False] * 7 + [True]
    watch = Standby(folder, FakeClock())
    assert (watch.look(), watch.term) == ("living", 4), "the others must not take over from the one that did"
    with pytest.raises(Superseded, match="of term 4"):
        previous.append(3, b"and more")
    write_token_file(folder / KEYS_FILE, RunKeys.generate().text)
    with pytest.raises(Superseded, match="of term 4"):
        Supervisor.recover(folder, term=3)
    previous.close()


def test_a_supervisor_on_a_machine_that_is_gone_beats_no_more_and_one_that_writes_does(tmp_path: Path) -> None:
    folder = tmp_path / "owl"
    store = StoreWriter(folder, folder.name)
    store.begin(1.0, "", {}, {})
    assert not Standby(folder, FakeClock()).beats(), "it never wrote"
    index = ("tcp://127.0.0.1:1", "127.0.0.1", "")
    store.remember(101.0, 0, index, b"all")
    store.flush()
    with sqlite3.connect(folder / "run.sqlite") as database:
        database.execute("update run set host = 'elsewhere'")
    database.close()
    clock = FakeClock()
    assert not Standby(folder, clock).beats(clock.advance)
    assert 3.0 < clock.now() < 20.0, "by its rhythm of a second"

    def writes(seconds: float) -> None:
        clock.advance(seconds)
        store.remember(clock.now(), 0, index, b"all")
        store.flush()

    assert Standby(folder, clock).beats(writes)
    store.close()


@pytest.mark.parametrize("deleted", ["run.sqlite", "run.sqlite*"])
def test_a_store_that_is_deleted_during_the_run_is_written_again(tmp_path: Path, deleted: str) -> None:
    store, clock = a_run(tmp_path), FakeClock()
    journal = Journal(store, clock.now(), 100.0)
    journal.record("joined", "worker 0", clock.now())
    journal.flush(clock.now(), at_once=True)
    for path in (tmp_path / store.name).glob(deleted):
        path.unlink()
    journal.record("joined", "worker 1", clock.now())
    journal.flush(clock.now(), at_once=True)
    journal.record("joined", "worker 2", clock.now())
    journal.flush(clock.now(), at_once=True)
    assert not journal.broken
    told = [event.text for event in journal.events]
    assert [text for text in told if "nothing is lost" in text] == [
        f"{store.path} was deleted: it is written again, and nothing is lost"
    ]
    journal.finished(OUTCOME, clock.now())
    journal.close()
    record = load_run(tmp_path, store.name)
    assert [event.text for event in record.events] == told and record.outcome is not None


def test_a_run_folder_that_is_deleted_ends_the_store_with_a_word(tmp_path: Path) -> None:
    store, clock = a_run(tmp_path), FakeClock()
    journal = Journal(store, clock.now(), 100.0)
    shutil.rmtree(tmp_path / store.name)
    journal.flush(clock.now(), at_once=True)
    assert journal.broken and "could not be written" in journal.events[-1].text
    journal.close()
