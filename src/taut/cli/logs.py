"""The output of the local workers: followed while they run, and the last lines of those that failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from taut.errors import Misuse

LAST_LINES = 20
ALL: Final = "all"
Wanted = int | Literal["all"] | None  # the rank of the worker whose output is shown, all of them, or none


def wanted_logs(given: str | None, *, verbose: bool = False, quiet: bool = False) -> Wanted:
    """Return the workers to show the output of: as ``--logs`` says, else all with ``--verbose``, else worker 0.

    >>> wanted_logs(None), wanted_logs(None, verbose=True), wanted_logs(None, quiet=True), wanted_logs("3", quiet=True)
    (0, 'all', None, 3)
    """
    if given is None:
        return ALL if verbose else None if quiet else 0
    if given == ALL:
        return ALL
    if given == "none":
        return None
    if not given.isdecimal():
        raise Misuse(f"--logs {given}", "all, none, or the number of a worker", "for example: --logs 0")
    return int(given)


class Logs:
    """The log files of the workers that this process starts, read from the bytes ``starts`` on.

    A worker's rank is known when it has joined. Until then the first process's output is taken for worker 0's.
    """

    def __init__(self, paths: Sequence[Path], wanted: Wanted = None, starts: Sequence[int] = ()) -> None:
        self.paths, self.wanted = list(paths), wanted
        self._offsets = list(starts) or [0] * len(self.paths)
        self._shown: list[str] = []  # lines of the file that was taken for worker 0's
        self._chosen: int | None = 0 if wanted == 0 else None
        self._settled = wanted in (ALL, None)

    def lines(self, ranks: Mapping[int, int], last: bool = False) -> Iterator[tuple[int, str]]:
        """Give the new whole lines that are wanted, as ``(index of the file, line)``.

        ``ranks``: the index of the file of each worker that is known. With ``last`` an unfinished line counts too.
        """
        if not self._settled:
            assert isinstance(self.wanted, int)
            self._settled = self.wanted in ranks
            self._chosen = ranks.get(self.wanted, self._chosen)
        for index in sorted(self.shown()):
            for line in self._new(index, last):
                if self.wanted == 0 and not self._settled:
                    self._shown.append(line)
                elif self._shown and index != 0 and self._shown.pop(0) == line:
                    continue  # another process was taken for worker 0, and has printed the same
                yield index, line

    def _new(self, index: int, last: bool) -> list[str]:
        new = _read(self.paths[index], self._offsets[index])
        whole = len(new) if last else new.rfind(b"\n") + 1
        self._offsets[index] += whole
        return _lines(new[:whole])

    def shown(self) -> set[int]:
        """Return the indices of the files that are followed."""
        if self.wanted == ALL:
            return set(range(len(self.paths)))
        return set() if self._chosen is None else {self._chosen}

    def unseen(self) -> list[Path]:
        """Return the logs that hold something and were not shown whole."""
        return [
            path
            for path, offset in zip(self.paths, self._offsets, strict=True)
            if path.exists() and path.stat().st_size > offset
        ]


def _read(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""


def _lines(text: bytes) -> list[str]:
    """Return the lines as a terminal would show them: of those that a progress bar redraws, the last state.

    >>> _lines(b"one\\n10%\\r50%\\r\\ntwo")
    ['one', '50%', 'two']
    """
    lines = text.decode("utf-8", "replace").removesuffix("\n").split("\n") if text else []
    return [line.rstrip("\r").rpartition("\r")[2] for line in lines]


def last_lines(path: Path, count: int = LAST_LINES, start: int = 0) -> list[str]:
    """Return the end of a log, from byte ``start`` on; the whole last traceback where it ends with one that fits."""
    tail = list(deque(_lines(_read(path, start)), maxlen=count))
    starts = [index for index, line in enumerate(tail) if line.startswith("Traceback ")]
    return tail[starts[-1] :] if starts else tail


def failures(logs: Sequence[tuple[int, Path]], starts: Sequence[int] = ()) -> list[tuple[list[int], list[str]]]:
    """Return the last lines of the logs, the same lines once: ``(numbers, lines)``, most frequent first. Log number k is
    read from byte ``starts[k]`` on."""
    seen: dict[tuple[str, ...], list[int]] = {}
    for index, path in logs:
        seen.setdefault(tuple(last_lines(path, start=starts[index] if starts else 0)), []).append(index)
    ordered = sorted(seen.items(), key=lambda item: (-len(item[1]), item[1]))
    return [(workers, list(lines)) for lines, workers in ordered]
