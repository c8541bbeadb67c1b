"""A store of any earlier version is read as if it were of this one, and goes on being written; a later one is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from examples import some
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from taut.core.messages import MetricPoint, Statistics
from taut.errors import StorageFailed
from taut.supervisor.storage import schema
from taut.supervisor.storage.store_reader import DamagedRun, load_run
from taut.supervisor.storage.store_writer import StoreWriter

KEPT = {
    "run": set(schema.TABLES["run"]),
    "worker": set(schema.TABLES["worker"]) - {"paused"},
    "event": set(schema.TABLES["event"]),
}
LATER = sorted(
    (table, column)
    for table, columns in schema.TABLES.items()
    for column in columns
    if column not in KEPT.get(table, {"time", "rank", "id"})
)


def older(path: Path, missing: set[tuple[str, str]], tables: set[str]) -> None:
    """Write a store that lacks these columns and tables, as an earlier taut might have."""
    with closing(sqlite3.connect(path)) as database, database:
        for table, columns in schema.TABLES.items():
            if table not in tables:
                names = [name for name in columns if (table, name) not in missing]
                database.execute(f"create table {table} ({', '.join(names)})")
        database.execute(
            "insert into run (name, started, command, settings, versions, host, pid)"
            " values ('r', 1, '', '{}', '{}', 'h', 1)"
        )
        database.execute("insert into worker (rank, host, pid, joined, reason) values (0, 'h', 1, 1, '')")
        if "statistic" not in tables:
            database.execute("insert into statistic (time, rank) values (2, 0)")


@settings(max_examples=some(20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    missing=st.sets(st.sampled_from(LATER), max_size=12),
    tables=st.sets(st.sampled_from(["statistic", "progress", "metric", "image", "memory", "ahead"])),
)
def test_an_older_store_is_read_and_continued(
    tmp_path_factory: pytest.TempPathFactory, missing: set[tuple[str, str]], tables: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "r"
    folder.mkdir()
    older(folder / "run.sqlite", missing, tables)
    before = (folder / "run.sqlite").read_bytes()
    read = load_run(folder.parent, "r")
    assert (folder / "run.sqlite").read_bytes() == before, "reading changes nothing"
    assert read.latest() == ({} if "statistic" in tables else {0: Statistics()})
    assert read.progress is None
    writer = StoreWriter(folder, "r")
    writer.measured(3.0, 0, Statistics(steps=7, loss=0.5))
    writer.logged(3.0, 0, [MetricPoint(7, "accuracy", 0.25)])
    writer.close()
    assert load_run(folder.parent, "r").latest() == {0: Statistics(steps=7, loss=0.5)}
    with closing(sqlite3.connect(folder / "run.sqlite")) as database:
        assert database.execute("pragma user_version").fetchone() == (schema.VERSION,)
        assert not any(schema.missing(database, table) for table in schema.TABLES)


def test_a_store_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "r", "r")
    writer.begin(1.0, "taut run x.py", {}, {})
    writer.close()
    with closing(sqlite3.connect(tmp_path / "r" / "run.sqlite")) as database, database:
        database.execute(f"pragma user_version = {schema.VERSION + 1}")
    with pytest.raises(DamagedRun, match="install a newer taut"):
        load_run(tmp_path, "r")
    with pytest.raises(StorageFailed, match="install a newer taut"):
        StoreWriter(tmp_path / "r", "r")


def test_images_of_one_name_are_kept_up_to_a_number(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "r", "r")
    for step in range(40):
        writer.pictured(1.0, 0, step, "weights", b"png")
    writer.pictured(1.0, 1, 0, "weights", b"png")
    writer.close()
    with closing(sqlite3.connect(tmp_path / "r" / "run.sqlite")) as database:
        steps = [step for (step,) in database.execute("select step from image where rank = 0 order by step")]
    assert steps == list(range(8, 40))
