"""The workers' output: followed while they run, and the last lines of those that failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

LAST_LINES = 20


class Follower:
    """New whole lines of several files, since the last time they were asked for."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = list(paths)
        self._offsets = [0] * len(self._paths)

    def lines(self, last: bool = False) -> Iterator[tuple[int, str]]:
        """``(index of the file, line)``; with ``last`` an unfinished line at the end counts too."""
        for index, path in enumerate(self._paths):
            try:
                with path.open("rb") as file:
                    file.seek(self._offsets[index])
                    new = file.read()
            except FileNotFoundError:
                continue
            whole = len(new) if last else new.rfind(b"\n") + 1
            self._offsets[index] += whole
            for line in new[:whole].decode("utf-8", "replace").splitlines():
                yield index, line


def last_lines(path: Path, count: int = LAST_LINES) -> list[str]:
    """The end of a log; the whole last traceback where it ends with one that fits."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            tail = list(deque((line.rstrip("\n") for line in file), maxlen=count))
    except FileNotFoundError:
        return []
    starts = [place for place, line in enumerate(tail) if line.startswith("Traceback ")]
    return tail[starts[-1] :] if starts else tail


def failures(logs: Sequence[tuple[int, Path]]) -> list[tuple[list[int], list[str]]]:
    """The last lines of failed workers, the same lines once: ``(workers, lines)``, most frequent first."""
    seen: dict[tuple[str, ...], list[int]] = {}
    for index, path in logs:
        seen.setdefault(tuple(last_lines(path)), []).append(index)
    ordered = sorted(seen.items(), key=lambda item: (-len(item[1]), item[1]))
    return [(workers, list(lines)) for lines, workers in ordered]
