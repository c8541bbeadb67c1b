"""The script that every pod of deploy/kubernetes runs, as processes of this machine; and keys that were made before."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from taut.cli.main import main
from taut.transport.keys import RunKeys, read_keys_file, read_token_file

ROOT = Path(__file__).parents[2]
JOB = ROOT / "tests" / "engines" / "launched_job.py"
LIMIT_S = 100


def test_keys_are_made_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    with pytest.raises(SystemExit) as ended:
        main(["token", "keys", str(folder)])
    assert ended.value.code == 0
    keys = read_keys_file(folder / "keys")
    assert keys.token == read_token_file(folder / "token")
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    with pytest.raises(SystemExit) as ended:
        main(["token", "keys", str(folder)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "keys are not overwritten" in said and keys.token not in said
    assert read_keys_file(folder / "keys") == keys


def test_a_keys_file_that_is_none_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = RunKeys.generate().token
    (tmp_path / "token").write_text(secret)
    for name, told in (("missing", "No such file"), ("token", "a run's keys of 92 characters (not shown)")):
        with pytest.raises(SystemExit) as ended:
            main(["supervisor", "--keys", str(tmp_path / name), "--runs-dir", str(tmp_path / "runs")])
        said = capsys.readouterr().err
        assert ended.value.code == 2 and told in said and secret not in said, said
    assert not (tmp_path / "runs").exists()


def pods(folder: Path, epochs: int) -> list[subprocess.Popen[str]]:
    """Start what the pods of index 0 and 1 run."""
    subprocess.run([sys.executable, "-m", "taut", "token", "keys", "keys"], cwd=folder, check=True, capture_output=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "taut").write_text(f'#!/bin/sh\nexec {sys.executable} -m taut "$@"\n')
    (folder / "bin" / "taut").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")}
    told = kept | {
        "PATH": f"{folder / 'bin'}:{kept['PATH']}",
        "TAUT_WORKERS": "2",
        "TAUT_SUPERVISOR": f"tcp://localhost:{port}",
        "TAUT_TOKEN_FILE": str(folder / "keys" / "token"),
        "TAUT_KEYS_FILE": str(folder / "keys" / "keys"),
        "TAUT_BIND": "127.0.0.1",
    }
    started = []
    for index in ("1", "0"):
        command = ["sh", str(ROOT / "deploy" / "kubernetes" / "start.sh"), str(JOB), str(epochs)]
        environment = told | {"JOB_COMPLETION_INDEX": index}
        with open(folder / f"pod-{index}", "w") as log:
            pod = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=log, stderr=log, text=True, start_new_session=True
            )
        started.append(pod)
    return started


def end(started: list[subprocess.Popen[str]]) -> None:
    for pod in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod.pid, signal.SIGKILL)
        pod.wait()


@pytest.mark.long
@pytest.mark.timeout(3 * LIMIT_S)
def test_the_pods_are_one_run(tmp_path: Path) -> None:
    started = pods(tmp_path, 2)
    try:
        codes = [pod.wait(LIMIT_S) for pod in started]
        said = (tmp_path / "pod-0").read_text() + (tmp_path / "pod-1").read_text()
        assert codes == [0, 0], said
        assert said.count(" of 2 steps") == 2 and "training starts with 2 of 2 workers" in said
        assert len(list(tmp_path.glob("taut-runs/*/model.safetensors"))) == 1
    finally:
        end(started)


@pytest.mark.long
@pytest.mark.timeout(3 * LIMIT_S)
def test_a_job_that_is_deleted_drains_the_run(tmp_path: Path) -> None:
    started = pods(tmp_path, 1_000_000)
    try:
        until = tmp_path / "at-60--"
        while not until.exists():  # the worker says so after 60 steps; the test's time limit ends this
            assert [pod.poll() for pod in started] == [None, None], (tmp_path / "pod-0").read_text()
            select.select([], [], [], 0.05)
        for pod in started:  # as `kubectl delete job` does
            pod.send_signal(signal.SIGTERM)
        codes = [pod.wait(LIMIT_S) for pod in started]
        assert codes[1] == 0 and codes[0] in (0, 130), (tmp_path / "pod-0").read_text()  # 130: it left
        assert len(list(tmp_path.glob("taut-runs/*/model.safetensors"))) == 1
    finally:
        end(started)
