"""Tables of a run as files of other programs: CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from taut.analysis.tables import STORED, Table, read_table
from taut.core.files import AtomicFile
from taut.errors import Misuse


def csv_text(table: Table) -> bytes:
    r"""Return the table as CSV, its column names in the first line; an unknown value is empty.

    >>> csv_text(Table("t", {"rank": [0, 1], "loss": [0.5, None]}))
    b'rank,loss\r\n0,0.5\r\n1,\r\n'
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(table.columns)
    writer.writerows(zip(*table.columns.values(), strict=True))
    return text.getvalue().encode()


def jsonl_text(table: Table) -> bytes:
    r"""Return the table as JSON lines, an object for each row.

    >>> jsonl_text(Table("t", {"rank": [0], "loss": [None]}))
    b'{"rank": 0, "loss": null}\n'
    """
    return "".join(json.dumps(row) + "\n" for row in table.rows()).encode()


def parquet_bytes(table: Table) -> bytes:
    """Return the table as a Parquet file."""
    if find_spec("pyarrow") is None:
        raise Misuse("--format parquet without pyarrow", "pyarrow", "pip install 'taut[analysis]'; or --format csv")
    import pyarrow
    import pyarrow.parquet

    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table.columns), file)
    return file.getvalue()


FORMATS: dict[str, Callable[[Table], bytes]] = {"csv": csv_text, "jsonl": jsonl_text, "parquet": parquet_bytes}


def export(run_dir: Path, folder: Path, form: str, names: Sequence[str] = tuple(STORED)) -> list[Path]:
    """Write these tables of the run into ``folder``, one file each; return the files."""
    made = [(name, FORMATS[form](read_table(run_dir, name))) for name in names]  # before anything is written
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, data in made:
        path = folder / f"{name}.{form}"
        with AtomicFile(path) as file:
            file.write(data)
        written.append(path)
    return written
