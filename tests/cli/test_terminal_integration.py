"""The command line in a real terminal of 80 and of 140 columns: what is on the screen at the end, and what keys do."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from forked_zygotes import taut_command

from taut.testing.terminal import CTRL_C, Terminal

TESTS = Path(__file__).parents[1]
JOB, TINY = TESTS / "integration" / "job.py", TESTS / "simulator" / "tiny_job.py"
ENDLESS = ("--epochs", 10**6)

# Several commands in one process, so that imports are paid for once; each with its exit code.
SEVERAL = """
import json, sys
from taut.cli.main import main
for words in json.loads(sys.argv[1]):
    print("$ taut", *words, flush=True)
    try:
        main(words)
    except SystemExit as end:
        print("exit code", end.code, flush=True)
"""


def taut(folder: Path, *words: object, columns: int = 80, **variables: str) -> Terminal:
    return Terminal([*taut_command(), *map(str, words)], columns=columns, cwd=folder, environment=variables)


def check_left_in_order(terminal: Terminal) -> None:
    """Assert that the terminal is as a shell expects it, and that only what cannot be broken was too long for a line."""
    text = terminal.text
    assert not terminal.screen.cursor.hidden, "the cursor is still hidden"
    assert "Traceback" not in text, text
    assert not re.search(r"\d of \d+ here", text), f"a line of the display is left:\n{text}"
    assert [line for line in terminal.wrapped if "/" not in line and not line.startswith(("error: ", "$ taut "))] == []


def check_table(terminal: Terminal, *last_cells: str) -> None:
    """Assert that the table of workers is whole: below each heading end the cells of its column."""
    lines = terminal.lines
    heading = next(number for number, line in enumerate(lines) if line.startswith("worker state "))
    ends = [found.end() for found in re.finditer(r"\S+", lines[heading])][2:]
    rows = [line for line in lines[heading + 1 :] if re.match(r" +(\d+|all) ", line)]
    assert len(rows) >= 2 and lines[heading + 1 : heading + 1 + len(rows)] == rows
    for row in rows:
        # A line may end early: the last row has no score.
        assert all(row[end - 1].isalnum() or row[end - 1] in "%B-" for end in ends if end <= len(row)), "\n".join(lines)
        assert all(row[end : end + 1] in ("", " ") for end in ends), "\n".join(lines)
    assert lines[heading].split()[-len(last_cells) :] == list(last_cells)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Terminal]:
    """A run that is finished: its folder, and the terminal in which it was made."""
    folder = tmp_path_factory.mktemp("trained")
    with taut(folder, "run", "-n", 2, TINY) as terminal:
        assert terminal.exit_code() == 0, terminal.text
    return folder, terminal


def test_a_run_ends_with_its_table_its_verdict_and_its_model(trained: tuple[Path, Terminal]) -> None:
    _, terminal = trained
    check_left_in_order(terminal)
    check_table(terminal, "wait", "data", "score")
    end = terminal.text.partition(": finished, ")[2]
    starts = [end.index(f"\n{word}") for word in ("exchange: sent", "replicas: identical", "finish: ", "model: ")]
    assert starts == sorted(starts)
    assert re.findall(r"^worker \d made", terminal.text, re.M) == ["worker 0 made"], "only worker 0's output is shown"
    assert re.search(r"output of the other workers: taut-runs/\S+/worker-[01].log", terminal.text)


READING = (
    (["--help"], 0, "codecs"),
    (["runs"], 0, "identical"),
    (["show", "latest"], 0, "finished: the model is in"),
    (["drain", "latest"], 2, "which is over"),
    (["token", "list", "latest"], 2, "which is over"),
    (["resume", "latest"], 2, "expected one that is not finished"),
    (["strategies"], 0, "for example: taut run"),
    (["codecs", "--no-measure"], 0, "tether"),
    (["topology", "ring", "--workers", "6"], 0, "spectral gap"),
    (["simulate", "-n", "4", "--timing-only", "--steps", "20", "resnet50"], 0, "virtual seconds"),
    (["runs", "--runs-dir", "none"], 0, "no runs in none"),
    (["worker", "--join", "nowhere", str(TINY)], 2, "HOST:PORT"),
)


def parts(text: str) -> list[str]:
    """Return what each of several commands has written."""
    return text.split("$ taut ")[1:]


@pytest.mark.parametrize("columns", [80, 140])
def test_commands_that_read_show_whole_lines(trained: tuple[Path, Terminal], columns: int) -> None:
    words = json.dumps([words for words, _, _ in READING])
    with Terminal([*taut_command(SEVERAL), words], columns=columns, rows=40, cwd=trained[0]) as terminal:
        assert terminal.exit_code() == 0, terminal.text
    assert not terminal.screen.cursor.hidden
    for (command, code, end), said in zip(READING, parts(terminal.text), strict=True):
        joined = said.replace("\n", "") + " ".join(said.split("\n"))  # errors are broken anywhere
        assert end in joined, said
        assert said.rstrip().endswith(f"exit code {code}"), said
        assert "Traceback" not in said and command[0] in said


def test_force_color_without_a_terminal_colours_and_redraws_nothing(trained: tuple[Path, Terminal]) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    done = subprocess.run(
        [*taut_command(SEVERAL), json.dumps([*(words for words, _, _ in READING), ["run", str(TINY)]])],
        cwd=trained[0],
        env={**variables, "FORCE_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    for (_, code, _), said in zip(READING, parts(done.stdout), strict=False):
        assert said.rstrip().endswith(f"exit code {code}"), said
    assert "replicas: identical" in parts(done.stdout)[-1] and "exit code 0" in parts(done.stdout)[-1]
    assert "\x1b[" in done.stdout and "\x1b[" in done.stderr, "no colours"
    moves = re.findall(r"\x1b\[[0-9;?]*[A-Zhl]", done.stdout + done.stderr)  # a colour ends with m
    assert moves == []


def test_ctrl_c_before_any_worker_is_there_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "stuck.py").write_text("import sys\nsys.stdin.read() or open('never').close()\n")
    os.mkfifo(tmp_path / "never")
    for keys in (CTRL_C, CTRL_C + CTRL_C):
        with taut(tmp_path, "run", "-n", 2, "--start", "spawn", "stuck.py") as terminal:
            terminal.wait_for("0 of 2 here")
            terminal.press(keys)
            assert terminal.exit_code() in (1, 130), terminal.text
        check_left_in_order(terminal)
        assert "stopping: draining" in terminal.text or keys != CTRL_C


HALF = f"""
import os, runpy, sys
try:
    os.close(os.open("first", os.O_CREAT | os.O_EXCL))
except FileExistsError:
    open("never").close()
runpy.run_path({str(JOB)!r}, run_name="__main__")
"""


def test_ctrl_c_while_workers_are_waited_for_does_not_wait_for_them(tmp_path: Path) -> None:
    (tmp_path / "half.py").write_text(HALF)
    os.mkfifo(tmp_path / "never")
    for keys in (CTRL_C, CTRL_C + CTRL_C):
        (tmp_path / "first").unlink(missing_ok=True)
        with taut(tmp_path, "run", "-n", 2, "half.py") as terminal:
            terminal.wait_for("1 of 2 here")
            terminal.wait_for(" ready ")
            terminal.press(keys)
            code = terminal.exit_code()
        check_left_in_order(terminal)
        if keys == CTRL_C:
            assert code == 0 and "drain: Ctrl-C" in terminal.text and "replicas: identical" in terminal.text
        else:  # the second one stops at once, unless the run has ended by then
            assert code in (0, 130), terminal.text


def test_ctrl_c_while_it_trains_saves_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    words = ("--checkpoint-every", "50steps", JOB, "--gate", tmp_path / "gate")
    with taut(tmp_path, "run", "-n", 2, *words, columns=140) as terminal:
        terminal.wait_for("checkpoint 1:")
        terminal.wait_for("samples/s  loss")
        assert re.search(r"training  .* epoch \d+ +\d+%", terminal.text), terminal.text
        terminal.press(CTRL_C)
        assert terminal.exit_code() == 0, terminal.text
    check_left_in_order(terminal)
    check_table(terminal, "compute", "talk", "wait", "data")
    assert "draining, Ctrl-C again to stop now" in terminal.text
    assert terminal.text.count("accuracy") == 1
    with taut(tmp_path, "resume", "latest", "-v") as resumed:
        resumed.wait_for("samples/s  loss")
        resumed.press(CTRL_C)
        assert resumed.exit_code() == 0, resumed.text
    check_left_in_order(resumed)
    assert "continuing" in resumed.text and "drain: Ctrl-C" in resumed.text
    assert [resumed.text.count(f"[{worker}] accuracy") for worker in (0, 1)] == [1, 1], "old output is no news"


def test_sigterm_drains_and_ctrl_c_while_it_drains_stops_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hold")
    with taut(tmp_path, "run", "-n", 2, JOB, *ENDLESS, HOLD=str(tmp_path / "hold")) as terminal:
        terminal.wait_for("training starts with 2 of 2")
        terminal.kill(signal.SIGTERM)
        terminal.wait_for("Ctrl-C again to stop now")
        terminal.wait_for("drain: SIGTERM")
        terminal.press(CTRL_C)
        assert terminal.exit_code() == 130, terminal.text
    check_left_in_order(terminal)
    assert terminal.lines[-1] == "stopped"


def test_workers_join_by_hand_say_how_they_fare_and_leave_by_ctrl_c(tmp_path: Path) -> None:
    with taut(tmp_path, "supervisor", "-n", 2, "--bind", "127.0.0.1", "--name", "r") as supervisor:
        supervisor.wait_for("0 of 2 here")
        address = re.findall(r"supervisor: (tcp://\S+)", supervisor.text)[0]
        join = (
            "worker",
            "--join",
            address,
            "--token-file",
            tmp_path / "taut-runs/r/token",
            JOB,
            "--gate",
            tmp_path / "gate",
        )
        with taut(tmp_path, *join) as first, taut(tmp_path, *join, columns=140) as second:
            first.wait_for("joined run r as worker ")
            second.wait_for("samples/s")
            second.press(CTRL_C)
            assert second.exit_code() == 130, second.text
            assert "left the run, which goes on" in second.text
            supervisor.wait_for("1 of 2 here")
            (tmp_path / "gate").touch()
            assert first.exit_code() == 0, first.text
            assert re.search(r"worker \d: the run is over; [\d,]+ steps", first.text)
        assert supervisor.exit_code() == 0, supervisor.text
    for each in (supervisor, first, second):
        check_left_in_order(each)
    check_table(supervisor, "wait", "data")
    assert re.search(r"worker \d is gone: left", supervisor.text) and "replicas: identical" in supervisor.text


def test_a_supervisor_that_nobody_joins_and_a_worker_that_finds_none_end_by_ctrl_c(tmp_path: Path) -> None:
    with taut(tmp_path, "supervisor", "--bind", "127.0.0.1", "--name", "r") as supervisor:
        supervisor.wait_for("0 of 1 here")
        token = tmp_path / "taut-runs/r/token"
        with taut(tmp_path, "worker", "--join", "127.0.0.1:1", "--token-file", token, JOB) as worker:
            worker.wait_for("no supervisor answers at tcp://127.0.0.1:1: connection refused")
            worker.press(CTRL_C)
            assert worker.exit_code() == 130, worker.text
        check_left_in_order(worker)
        supervisor.press(CTRL_C)
        assert supervisor.exit_code() == 1, supervisor.text
    check_left_in_order(supervisor)


TRIED = (
    (["simulate", "-n", "2", "--step", "5ms", str(TINY), "--samples", "64", "--epochs", "1"], "replicas: identical"),
    (["compare", "--simulate", "--timing-only", "--strategies", "sync,async", "-n", "4", "--seeds", "1", "--steps", "20",
      "--step", "10ms", "--parameters", "100000", str(TINY)], "report.html"),
    (["probe", "--steps", "5", str(TINY)], "written to probe.json"),
    (["advise", "--probe", "probe.json", str(TINY)], "taut run --workers 2"),
)  # fmt: skip


@pytest.mark.parametrize("columns", [80, pytest.param(140, marks=pytest.mark.long)])
def test_commands_that_try_things_out_show_whole_tables(tmp_path: Path, columns: int) -> None:
    words = json.dumps([words for words, _ in TRIED])
    with Terminal([*taut_command(SEVERAL), words], columns=columns, cwd=tmp_path) as terminal:
        assert terminal.exit_code() == 0, terminal.text
    check_left_in_order(terminal)
    for (_, end), said in zip(TRIED, parts(terminal.text), strict=True):
        assert end in said and said.rstrip().endswith("exit code 0"), said
        assert "…" not in said, said


@pytest.mark.parametrize("columns", [80, pytest.param(140, marks=pytest.mark.long)])
def test_ctrl_c_twice_ends_the_demo(tmp_path: Path, columns: int) -> None:
    with taut(tmp_path, "demo", columns=columns) as terminal:
        terminal.wait_for("training starts with")
        terminal.press(CTRL_C)
        terminal.wait_for("Ctrl-C again to stop now")
        terminal.press(CTRL_C)
        assert terminal.exit_code() in (1, 130), terminal.text
    check_left_in_order(terminal)


@pytest.mark.parametrize("words", [
    ("simulate", "-n", 100, "--timing-only", "--steps", 10**6, "resnet50"),
    ("compare", "--simulate", "--timing-only", "--strategies", "sync", "-n", 100, "--steps", 10**6, "--step", "1ms",
     "--parameters", 1000, TINY),
    ("dashboard", "latest"),
])  # fmt: skip
def test_ctrl_c_ends_what_takes_long(trained: tuple[Path, Terminal], words: tuple[object, ...]) -> None:
    with taut(trained[0], *words) as terminal:
        terminal.wait_for(lambda seen: "simulating" in seen or "0/3" in seen or "Ctrl-C to stop" in seen)
        assert not re.search(r"\d…", terminal.text), f"a figure is cut off:\n{terminal.text}"
        terminal.press(CTRL_C)
        # Python itself ends by the signal where Ctrl-C came within exec(text), as in the making of a dataclass
        assert terminal.exit_code() in (0, 1, 130, -signal.SIGINT), terminal.text
    check_left_in_order(terminal)
