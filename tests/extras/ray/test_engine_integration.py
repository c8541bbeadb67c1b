"""The engine's contract on real nodes: output, ends, replacements, and scripts that Ray sends."""

from __future__ import annotations

import os
import textwrap
import time
from pathlib import Path

import pytest
import ray
from commands import PATIENCE_S
from ray.cluster_utils import Cluster

from taut.engines.base import Exit
from taut.engines.ray.bundles import NODE_STEP
from taut.engines.ray.engine import RayEngine

SCRIPT = """
    import os, signal, sys, time
    def mine(how):  # each process does another thing: whoever makes the folder does it
        try: os.mkdir(os.path.join(sys.argv[1], how))
        except FileExistsError: return False
        return True
    print("at", os.getcwd(), "with", os.environ["TAUT_TOKEN"], os.environ["TAUT_BIND"], flush=True)
    if mine("killed"): os.kill(os.getpid(), signal.SIGKILL)
    if mine("code"): sys.exit(7)
    while not os.path.isdir(os.path.join(sys.argv[1], "end")): time.sleep(0.02)
"""


def test_output_ends_and_a_replacement(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is only in the folder that Ray sends. One that was killed is started again, one that failed is not."""
    sent, logs = tmp_path / "sent", tmp_path / "logs"
    sent.mkdir()
    logs.mkdir()
    (sent / "train.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "token").write_text("TOKEN")
    monkeypatch.chdir(sent)
    ray.init(address=cluster.address, log_to_driver=False, runtime_env={"working_dir": str(sent)})
    told = {"TAUT_TOKEN_FILE": str(tmp_path / "token"), "TAUT_BIND": "10.0.0.1"}
    engine = RayEngine(sent / "train.py", [str(tmp_path)], 3, told, log_dir=logs, start="spawn", ray_placement="SPREAD")
    exits: list[Exit] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        engine.start()
        while engine.running or len(exits) < 4:
            exits += engine.poll(0.1)
            assert time.monotonic() < deadline, (exits, engine.pids)
            if len(engine.started) == 4 and len(exits) == 2 and not (tmp_path / "end").exists():
                (tmp_path / "end").mkdir()
    finally:
        engine.close()
        ray.shutdown()
    assert sorted(each.reason for each in exits) == ["exit code 7", "finished", "finished", "killed by SIGKILL"]
    assert [each.clean for each in exits[2:]] == [True, True]
    assert set(engine.started) == {each.pid for each in exits}
    assert len({pid // NODE_STEP for pid in engine.started}) == 3
    lines = [line for log in engine.logs for line in log.read_text().splitlines()]
    assert len(lines) == 4
    for line in lines:
        _, where, _, token, bind = line.split()
        assert os.path.basename(where) != "sent" and token == "TOKEN" and bind == cluster.address.split(":")[0]
