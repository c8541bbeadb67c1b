"""The commands of docs/ray.md run as they are written, on a cluster in place of the page's."""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path

import psutil
import pytest
from commands import JOB, Command
from ray.cluster_utils import Cluster

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "ray.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]


def test_the_page_has_commands() -> None:
    assert [line.split()[0] for line in COMMANDS] == ["taut", "taut", "python"]


@pytest.mark.parametrize("line", COMMANDS, ids=lambda line: line[:60])
def test_a_command_of_the_page(cluster: Cluster, tmp_path: Path, line: str) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    words = shlex.split(line.replace("10.0.0.7:6379", cluster.address))
    with_cluster = {"RAY_ADDRESS": cluster.address} if words[0] == "python" else {}
    home = {"HOME": str(tmp_path), "NUMBA_CACHE_DIR": str(Path.home() / ".cache/numba-ray")}
    with Command(tmp_path, *words[1:], program=words[0], **with_cluster, **home) as run:
        assert run.end() == 0, run.text
    assert re.search(r"model: (\S+)", run.text)
    model = re.findall(r"model: (\S+)", run.text)[-1]
    assert Path(model).is_file()


def test_ctrl_c_drains_and_the_local_cluster_ends(tmp_path: Path) -> None:
    flags = ["run", "--engine", "ray", "-n", "2", "--name", "stopped", JOB, "--gate", str(tmp_path / "never")]
    environment = {name: "" for name in ("RAY_ADDRESS",) if name in os.environ}
    with Command(tmp_path, *flags, **environment) as run:
        run.until(r"training +epoch")
        children = psutil.Process(run.process.pid).children(recursive=True)
        assert children
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 0, run.text
    assert (tmp_path / "taut-runs/stopped/model.safetensors").exists()
    assert not psutil.wait_procs(children, timeout=30)[1]
