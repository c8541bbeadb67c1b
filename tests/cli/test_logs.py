"""Workers' output: whose is shown, from where on, and the last lines of those that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.cli.logs import ALL, Logs, failures, last_lines, wanted_logs
from taut.errors import Misuse


def test_whole_lines_are_given_once(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    logs = Logs([log, tmp_path / "worker-1.log"], ALL)
    assert list(logs.lines({})) == []
    log.write_bytes(b"one\ntw")
    assert list(logs.lines({})) == [(0, "one")]
    with log.open("ab") as more:
        more.write(b"o\nthr\xff")
    assert list(logs.lines({})) == [(0, "two")]
    assert list(logs.lines({}, last=True)) == [(0, "thr\ufffd")]
    assert list(logs.lines({}, last=True)) == []


def test_what_a_run_printed_before_it_was_resumed_is_no_news(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    log.write_text("Traceback (most recent call last):\nof the first life\n")
    size = log.stat().st_size
    with log.open("a") as more:
        more.write("resumed\n")
    assert list(Logs([log], ALL, [size]).lines({})) == [(0, "resumed")]
    assert failures([(0, log)], [size]) == [([0], ["resumed"])]


def test_worker_0_is_not_always_the_first_process(tmp_path: Path) -> None:
    paths = [tmp_path / "worker-0.log", tmp_path / "worker-1.log"]
    logs = Logs(paths, 0)
    for path in paths:
        path.write_text("reading data\n")
    assert list(logs.lines({})) == [(0, "reading data")], "nobody has joined: the first process will do"
    for rank, path in enumerate(reversed(paths)):
        path.write_text(f"reading data\nrank {rank}\n")
    assert list(logs.lines({0: 1, 1: 0})) == [(1, "rank 0")], "the same line of another process is not shown twice"
    assert logs.unseen() == [paths[0]]
    assert list(logs.lines({0: 1, 1: 0}, last=True)) == []


def test_one_other_worker_or_none_can_be_asked_for(tmp_path: Path) -> None:
    paths = [tmp_path / "worker-0.log", tmp_path / "worker-1.log"]
    for rank, path in enumerate(paths):
        path.write_text(f"rank {rank}\n")
    one, none = Logs(paths, 1), Logs(paths, None)
    assert list(one.lines({})) == [] and list(one.lines({0: 0, 1: 1})) == [(1, "rank 1")]
    assert list(none.lines({0: 0, 1: 1}, last=True)) == [] and none.unseen() == paths


@pytest.mark.parametrize("given", ["first", "-1", "0,1", ""])
def test_other_words_are_refused(given: str) -> None:
    with pytest.raises(Misuse, match="all, none, or the number of a worker"):
        wanted_logs(given)


def test_the_same_failure_is_told_once(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n  File x\nValueError: boom\n"
    texts = ["hello 0\n" + trace, "hello 1\n" + trace, "other\n"]
    logs = []
    for index, text in enumerate(texts):
        (tmp_path / f"{index}.log").write_text(text)
        logs.append((index, tmp_path / f"{index}.log"))
    assert failures(logs) == [([0, 1], trace.splitlines()), ([2], ["other"])]
    assert last_lines(tmp_path / "absent") == []
