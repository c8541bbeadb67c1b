"""A trace of what happened when, to diff, to replay and to look at: the trace event format of Chrome and Perfetto.

One event per line, in the order in which they were recorded; times are written from whole nanoseconds, so that equal runs
give equal bytes. The header is the first event: a viewer skips it, ``read_header`` returns it.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.core.files import AtomicFile
from taut.errors import Misuse, StorageFailed

FIRST_LINE = '{"displayTimeUnit":"ms","traceEvents":['
LAST_LINE = "]}"
HEADER = "taut scenario"
RECENT = 4096  # events are written in batches: a call of the file for each would take longer than all the rest
MEMORY_NBYTES = 64 << 20  # a longer trace goes to a temporary file


class Trace:
    """Rows are workers: rank 3 is "worker 3", -1 the supervisor. ``args`` must be plain JSON.

    >>> trace = Trace({"workers": 2})
    >>> trace.span(0, "compute", 0, 1_500_000, step=1)
    >>> trace.instant(1, "fails", 1_500_001)
    >>> for line in trace.lines():
    ...     print(line)
    {"displayTimeUnit":"ms","traceEvents":[
    {"name":"taut scenario","ph":"M","pid":0,"tid":0,"args":{"workers":2}},
    {"name":"thread_name","ph":"M","pid":0,"tid":1,"args":{"name":"worker 0"}},
    {"name":"thread_sort_index","ph":"M","pid":0,"tid":1,"args":{"sort_index":1}},
    {"name":"compute","ph":"X","pid":0,"tid":1,"ts":0.000,"dur":1500.000,"args":{"step":1}},
    {"name":"thread_name","ph":"M","pid":0,"tid":2,"args":{"name":"worker 1"}},
    {"name":"thread_sort_index","ph":"M","pid":0,"tid":2,"args":{"sort_index":2}},
    {"name":"fails","ph":"i","pid":0,"tid":2,"ts":1500.001,"s":"t"}
    ]}
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.header = dict(header)
        self.events = 0
        self._named: set[int] = set()
        self._names: dict[str, str] = {}  # names as JSON: there are few of them, and each is written often
        self._recent = [f'{{"name":"{HEADER}","ph":"M","pid":0,"tid":0,"args":{_json(self.header)}}}']
        self._file = tempfile.SpooledTemporaryFile(MEMORY_NBYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # closed with the trace

    def span(self, rank: int, name: str, begin_ns: int, end_ns: int, **args: Any) -> None:
        """Record that ``rank`` did ``name`` from ``begin_ns`` to ``end_ns``. Spans may lie within each other."""
        assert 0 <= begin_ns <= end_ns, (name, begin_ns, end_ns)
        self._event(rank, name, "X", f'"ts":{_us(begin_ns)},"dur":{_us(end_ns - begin_ns)}', args)

    def instant(self, rank: int, name: str, at_ns: int, **args: Any) -> None:
        """Record that something happened to ``rank`` at one moment."""
        self._event(rank, name, "i", f'"ts":{_us(at_ns)},"s":"t"', args)

    def lines(self) -> Iterator[str]:
        """Yield the file's lines, without their ends. Do not add events meanwhile."""
        yield FIRST_LINE
        self._file.seek(0)
        try:
            for line in self._file:
                yield line[:-1].decode()
        finally:
            self._file.seek(0, os.SEEK_END)
        yield from (f"{line}," for line in self._recent[:-1])
        yield self._recent[-1]
        yield LAST_LINE

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write all of it or, if the disk is full, nothing: the old file at ``path`` stays."""
        final = Path(path)
        try:
            with AtomicFile(final) as file:
                file.file.writelines(f"{line}\n".encode("ascii") for line in self.lines())
        except OSError as error:
            raise StorageFailed(f"the trace {final} could not be written: {error.strerror}") from error

    def _event(self, rank: int, name: str, phase: str, times: str, args: Mapping[str, Any]) -> None:
        row = rank + 1
        if rank not in self._named:
            self._named.add(rank)
            title = f"worker {rank}" if rank >= 0 else "supervisor"
            start = f'"ph":"M","pid":0,"tid":{row},"args"'
            self._recent.append(f'{{"name":"thread_name",{start}:{{"name":"{title}"}}}}')
            self._recent.append(f'{{"name":"thread_sort_index",{start}:{{"sort_index":{row}}}}}')
        quoted = self._names.get(name) or self._names.setdefault(name, _json(name))
        rest = f',"args":{_json(args)}' if args else ""
        self._recent.append(f'{{"name":{quoted},"ph":"{phase}","pid":0,"tid":{row},{times}{rest}}}')
        self.events += 1
        if len(self._recent) > RECENT:
            self._spill()

    def _spill(self) -> None:
        """Move all but the last line to the file; the last one has no comma after it if nothing follows."""
        last = self._recent.pop()
        self._file.write("".join(f"{line},\n" for line in self._recent).encode())
        self._recent = [last]


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the header that ``Trace`` was given, from a file that it wrote.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "trace.json"
    >>> Trace({"seed": 7}).write(path)
    >>> read_header(path)
    {'seed': 7}
    """
    try:
        with Path(path).open(encoding="utf-8") as file:
            first, second = file.readline(), file.readline(1 << 26)
        event = json.loads(second.strip().removesuffix(","))
        if first.strip() == FIRST_LINE and event["name"] == HEADER:
            return dict(event["args"])
    except OSError as error:
        raise Misuse(f"trace {path} ({error.strerror})", "a file that taut simulate --trace wrote") from None
    except (UnicodeDecodeError, ValueError, LookupError, TypeError):
        pass
    raise Misuse(f"trace {path}", "a file that taut simulate --trace wrote", "another program's trace has no scenario")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first line (from 1) on which two traces differ; empty for a trace that has ended."""

    line: int
    one: str
    other: str


def first_difference(path_a: str | os.PathLike[str], path_b: str | os.PathLike[str]) -> Difference | None:
    """Return the first difference of two files, None if they are the same to the byte."""
    try:
        with Path(path_a).open("rb") as a, Path(path_b).open("rb") as b:
            for number, (one, other) in enumerate(itertools.zip_longest(a, b, fillvalue=b""), 1):
                if one != other:
                    texts = (line.decode(errors="replace").rstrip("\n") for line in (one, other))
                    return Difference(number, *texts)
    except OSError as error:
        raise Misuse(f"trace {error.filename} ({error.strerror})", "two traces that can be read") from None
    return None


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


_json = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode
