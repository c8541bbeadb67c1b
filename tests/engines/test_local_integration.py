"""Worker processes of scripts that do not join: both starts, how they end, and that none is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from forked_zygotes import ForkedEngine

from taut.engines.base import Exit
from taut.engines.local import LocalEngine
from taut.errors import StorageFailed

PATIENCE_S = 60.0


def written(folder: Path, text: str) -> Path:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(text))
    return script


@contextmanager
def running(engine: LocalEngine) -> Iterator[LocalEngine]:
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def exits(engine: LocalEngine) -> list[Exit]:
    """Wait for the end of all workers."""
    found: list[Exit] = []
    while engine.running:
        news = engine.poll(PATIENCE_S)
        assert news or engine.pids, "nothing happened for a long time"
        found += news
    return sorted(found, key=lambda each: each.index)


def until_started(engine: LocalEngine, workers: int) -> None:
    while len(engine.pids) < workers:
        before = len(engine.pids)
        assert not engine.poll(PATIENCE_S)
        assert len(engine.pids) > before, "no worker was started for a long time"


def until_gone(pids: list[int]) -> None:
    """Wait for processes of others to end."""
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=PATIENCE_S)
    assert not alive


TELL = """
    import json, os, sys, random
    import numpy, torch
    print(json.dumps({
        "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "name": __name__, "file": __file__,
        "main": sys.modules["__main__"].__file__, "threads": torch.get_num_threads(), "pid": os.getpid(),
        "token": os.environ["TAUT_TOKEN_FILE"], "stdin": sys.stdin.read(),
        "random": [random.random(), float(numpy.random.rand()), float(torch.rand(()))],
    }))
    print("to stderr", file=sys.stderr)
"""


PRINT = """
    import sys
    for line in range(1000):
        print("loss", line, "of a script that prints" * 10)
        print("to stderr", file=sys.stderr)
    sys.stdout.flush()
    open(sys.argv[1], "w").write("trained to its end")
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_a_full_disk_does_not_end_a_script_that_prints(tmp_path: Path, start: str) -> None:
    (tmp_path / "worker-0.log").symlink_to("/dev/full")
    (tmp_path / "worker-1.log").mkdir()  # it cannot even be opened
    script, done = written(tmp_path, PRINT), tmp_path / "done"
    with running(ForkedEngine(script, [str(done)], 2, {}, log_dir=tmp_path, start=start)) as engine:
        assert [each.reason for each in exits(engine)] == ["finished", "finished"]
    assert done.read_text() == "trained to its end"
    assert "worker-1.log cannot be written" in (tmp_path / "zygote.log").read_text()


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_a_worker_is_what_python_script_would_be(tmp_path: Path, start: str) -> None:
    script = written(tmp_path, TELL)
    engine = LocalEngine(
        script, ["--lr", "0.1"], 2, {"TAUT_TOKEN_FILE": "/a/token"}, log_dir=tmp_path, threads=1, start=start
    )
    with running(engine):
        ended = exits(engine)
    assert [(each.index, each.clean, each.code, each.reason) for each in ended] == [
        (0, True, 0, "finished"),
        (1, True, 0, "finished"),
    ]
    told = []
    for log, each in zip(engine.logs, ended, strict=True):
        lines = log.read_text().splitlines()
        assert lines[-1] == "to stderr"
        told.append(json.loads(lines[0]))
        assert told[-1]["pid"] == each.pid
    for one in told:
        assert one["argv"] == [str(script), "--lr", "0.1"]
        assert one["path"] == str(tmp_path)
        assert one["cwd"] == os.getcwd()
        assert one["name"] == "__main__"
        assert one["file"] == one["main"] == str(script)
        assert one["threads"] == 1
        assert one["token"] == "/a/token"
        assert one["stdin"] == ""
    assert all(a != b for a, b in zip(told[0]["random"], told[1]["random"], strict=True))


FAIL = """
    import os, signal, sys
    def deep(): raise ValueError("boom")
    def mine(how):  # each worker does another thing: whoever makes the folder does it
        try: os.mkdir(os.path.join(sys.argv[1], how))
        except FileExistsError: return False
        return True
    if mine("raise"): deep()
    if mine("code"): sys.exit(7)
    if mine("kill"): os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_how_a_worker_ended_is_told(tmp_path: Path, start: str) -> None:
    engine = ForkedEngine(written(tmp_path, FAIL), [str(tmp_path)], 4, {}, log_dir=tmp_path, start=start)
    with running(engine):
        ended = {each.code: each for each in exits(engine)}
    reasons = {1: "exit code 1", 7: "exit code 7", -9: "killed by SIGKILL", 0: "finished"}
    assert {code: each.reason for code, each in ended.items()} == reasons
    assert [code for code, each in ended.items() if each.clean] == [0]
    lines = engine.logs[ended[1].index].read_text().splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "script.py" in lines[1]  # the user's code comes first, not ours
    assert lines[-1] == "ValueError: boom"


WAIT = """
    import signal, sys
    if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waiting", flush=True)
    while True: signal.pause()
"""


@pytest.mark.parametrize(("start", "how"), [("zygote", "TERM"), ("spawn", "TERM"), ("spawn", "KILL")])
def test_terminate_asks_and_kill_ends(tmp_path: Path, start: str, how: str) -> None:
    args = ["stubborn"] if how == "KILL" else []
    engine = ForkedEngine(written(tmp_path, WAIT), args, 2, {}, log_dir=tmp_path, start=start)
    with running(engine):
        until_started(engine, 2)
        engine.terminate() if how == "TERM" else engine.kill()
        assert {each.reason for each in exits(engine)} == {f"killed by SIG{how}"}


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_closing_leaves_no_process_behind(tmp_path: Path, start: str) -> None:
    engine = LocalEngine(written(tmp_path, WAIT), ["stubborn"], 2, {}, log_dir=tmp_path, start=start)
    with running(engine):
        until_started(engine, 2)
        pids = list(engine.pids)
    until_gone(pids)


def test_closing_at_once_ends_a_zygote_that_still_imports(tmp_path: Path) -> None:
    engine = LocalEngine(written(tmp_path, WAIT), ["stubborn"], 2, {}, log_dir=tmp_path)
    before = psutil.Process().children(recursive=True)
    with running(engine):
        children = [child.pid for child in psutil.Process().children(recursive=True) if child not in before]
    assert children
    until_gone(children)


LAUNCHER = """
    import sys
    from taut.engines.local import LocalEngine
    engine = LocalEngine(sys.argv[1], [], 2, {}, log_dir=sys.argv[2], start=sys.argv[3])
    engine.start()
    while len(engine.pids) < 2: engine.poll(10)
    print(*engine.pids, flush=True)
    engine.poll(1000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers notice by themselves")
@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_workers_do_not_outlive_a_killed_launcher(tmp_path: Path, start: str) -> None:
    script = written(tmp_path, WAIT)
    launcher = tmp_path / "launcher.py"
    launcher.write_text(textwrap.dedent(LAUNCHER))
    command = [sys.executable, str(launcher), str(script), str(tmp_path), start]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    until_gone(pids)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does it on Linux")
def test_workers_do_not_outlive_a_killed_zygote(tmp_path: Path) -> None:
    engine = LocalEngine(written(tmp_path, WAIT), ["stubborn"], 2, {}, log_dir=tmp_path)
    with running(engine):
        until_started(engine, 2)
        pids = list(engine.pids)
        os.kill(psutil.Process(pids[0]).ppid(), signal.SIGKILL)
        ended = exits(engine)
    assert {each.pid for each in ended} == set(pids)
    assert not any(each.clean for each in ended)
    assert "zygote.log" in ended[0].reason
    until_gone(pids)


def test_a_zygote_that_cannot_start_is_told(tmp_path: Path) -> None:
    engine = LocalEngine(written(tmp_path, WAIT), [], 2, {"PYTHONHOME": "/nowhere"}, log_dir=tmp_path)
    with running(engine):
        ended = exits(engine)
    assert [each.pid for each in ended] == [0, 0]
    assert sorted(each.index for each in ended) == [0, 1]
    assert engine.own_log.stat().st_size > 0


def test_a_preloaded_module_that_starts_threads_falls_back_to_fresh_processes(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    script = written(tmp_path, "import sys\nprint('threaded' in sys.modules)\n")
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    engine = LocalEngine(script, [], 1, {"PYTHONPATH": paths}, log_dir=tmp_path, preload=["threaded"])
    with running(engine):
        assert [each.clean for each in exits(engine)] == [True]
    assert engine.logs[0].read_text() == "False\n"
    assert "started threads" in engine.own_log.read_text()


def test_a_missing_preload_is_noted_and_the_script_runs(tmp_path: Path) -> None:
    engine = ForkedEngine(written(tmp_path, "print('ran')"), [], 1, {}, log_dir=tmp_path, preload=["no_such_module"])
    with running(engine):
        assert [each.clean for each in exits(engine)] == [True]
    assert engine.logs[0].read_text() == "ran\n"
    assert "no_such_module" in engine.own_log.read_text()


LEFT_OPEN = """
    import atexit, io, sys, threading, zipfile
    from pathlib import Path
    folder = Path(sys.argv[1])
    held = open(folder / "held.txt", "w")
    held.write("never closed, ")
    sys.modules["another"] = type(sys)("another")  # as a module of the user's would hold it
    sys.modules["another"].log = open(folder / "log.txt", "w")
    sys.modules["another"].log.write("of a module")
    archive = zipfile.ZipFile(folder / "archive.zip", "w")
    archive.writestr("name", "data")
    def cycle(): return archive  # so that only the collector finds it
    def last(): held.write("but at exit, ")
    def slow():
        started.wait()
        held.write("by a thread, ")
    started = threading.Event()
    atexit.register(last)
    threading.Thread(target=slow).start()
    started.set()
    print("printed", end="")
    sys.exit(3)
"""


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_what_a_script_left_open_is_written_although_the_process_ends_at_once(tmp_path: Path, start: str) -> None:
    engine = ForkedEngine(written(tmp_path, LEFT_OPEN), [str(tmp_path)], 1, {}, log_dir=tmp_path, start=start)
    with running(engine):
        (ended,) = exits(engine)
    assert ended.code == 3
    assert engine.logs[0].read_text() == "printed"
    assert (tmp_path / "held.txt").read_text() == "never closed, by a thread, but at exit, "
    assert (tmp_path / "log.txt").read_text() == "of a module"
    assert zipfile.ZipFile(tmp_path / "archive.zip").read("name") == b"data"


NOT_TAKEN = """
    from torch.nn import Identity  # what raises is called by torch, as taut is by an optimizer
    from taut.errors import Refused
    def refused(*_): raise Refused("the supervisor does not take this token")
    refused.__code__ = refused.__code__.replace(co_filename="/elsewhere/site-packages/another.py")
    layer = Identity()
    layer.forward = refused
    layer(1)
"""


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_an_error_of_taut_is_one_line_with_the_place_in_the_script(tmp_path: Path, start: str) -> None:
    script = written(tmp_path, NOT_TAKEN)
    engine = ForkedEngine(script, [], 1, {}, log_dir=tmp_path, start=start)
    with running(engine):
        (ended,) = exits(engine)
    assert ended.code == 2
    assert engine.logs[0].read_text() == f"error: {script}, line 8: the supervisor does not take this token\n"


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    engine = LocalEngine(written(tmp_path, WAIT), [], 1, {}, log_dir=tmp_path / "absent")
    with pytest.raises(StorageFailed, match=r"absent/zygote\.log could not be written: No such file"):
        engine.start()
    engine.close()
