"""The tables of a run's store, with their version. docs/store.md describes them for people who read the file themselves.

``VERSION`` is SQLite's ``user_version`` of the file; 0 is a store from before versions were written. A later version only
adds tables and columns. So a writer that opens an older store adds what is missing (``migrate``). A reader must not
write: it sees empty tables and empty columns in their place (``adapt``). A store of a version after ours is refused.
"""

from __future__ import annotations

import functools
import sqlite3

from taut.core.messages import HostUse, Statistics

VERSION = 3

TABLES: dict[str, dict[str, str]] = {
    "run": {
        "name": "text primary key",
        **dict.fromkeys(("started", "ended"), "real"),
        **dict.fromkeys(("command", "settings", "versions", "outcome", "host"), "text"),
        "pid": "integer",
    },
    "worker": {
        "rank": "integer primary key",
        "host": "text",
        "pid": "integer",
        "joined": "real",
        "gone": "real",
        "reason": "text",
        "paused": "integer",
    },
    "statistic": {"time": "real", "rank": "integer", **dict.fromkeys(Statistics.__struct_fields__, "")},
    "progress": {
        "time": "real",
        "state": "text",
        **dict.fromkeys(("workers", "epoch", "epochs", "samples_done", "samples_total"), "integer"),
        **dict.fromkeys(("samples_trained", "samples_left"), "integer"),
        **dict.fromkeys(("train_s", "consensus", "rate", "slack"), "real"),
    },
    "metric": {"time": "real", "rank": "integer", "step": "integer", "name": "text", "value": "real"},
    "image": {"time": "real", "rank": "integer", "step": "integer", "name": "text", "png": "blob"},
    "host": {
        "time": "real",
        "host": "text",
        **dict.fromkeys(HostUse.__struct_fields__, ""),
    },
    "event": {"time": "real", "kind": "text", "text": "text"},
    "memory": {
        "id": "integer primary key",
        "term": "integer",
        "beat": "real",
        **dict.fromkeys(("address", "bind", "advertise"), "text"),
        "data": "blob",
    },
    "ahead": {"id": "integer primary key", "data": "blob"},
}


class NewerStore(ValueError):
    """A store that a later taut has written."""


def migrate(database: sqlite3.Connection) -> None:
    """Create the tables, and add what an older store lacks. Raise ``NewerStore``."""
    check(database)
    for table, columns in TABLES.items():
        database.execute(f"create table if not exists {table} ({_definitions(columns)})")
        for column in missing(database, table):
            database.execute(f"alter table {table} add column {column} {columns[column]}")
    database.execute(f"pragma user_version = {VERSION}")


def adapt(database: sqlite3.Connection) -> None:
    """Show this connection, which only reads, an older store as if it were of this version. Raise ``NewerStore``."""
    check(database)
    known = {name for (name,) in database.execute("select name from main.sqlite_master where type = 'table'")}
    for table, columns in TABLES.items():
        if table not in known:
            database.execute(f"create temp table {table} ({_definitions(columns)})")
        elif absent := missing(database, table):
            empty = ", ".join(f"null as {column}" for column in absent)
            database.execute(f"create temp view {table} as select rowid as rowid, *, {empty} from main.{table}")


@functools.cache
def insert(table: str) -> str:
    """Return the statement that writes a whole row, in place of one with the same key. Columns are named: in a store
    that was migrated, the last one is the newest.

    >>> insert("event")
    'insert or replace into event (time, kind, text) values (?, ?, ?)'
    """
    columns = TABLES[table]
    return f"insert or replace into {table} ({', '.join(columns)}) values ({', '.join('?' * len(columns))})"


def missing(database: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns that the file's table lacks."""
    found = {row[1] for row in database.execute(f"pragma main.table_info({table})")}
    return [column for column in TABLES[table] if column not in found]


def check(database: sqlite3.Connection) -> None:
    """Raise ``NewerStore`` if a later taut has written this store."""
    (version,) = database.execute("pragma main.user_version").fetchone()
    if version > VERSION:
        raise NewerStore(f"it is of version {version}, and this taut reads up to version {VERSION}: install a newer taut")


def _definitions(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}".strip() for name, kind in columns.items())
