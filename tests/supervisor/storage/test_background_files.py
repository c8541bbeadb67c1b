"""Whatever goes wrong while the model is written is reported: the run ends, and does not wait for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save

from taut.supervisor.checkpoints.folder import Launch
from taut.supervisor.control import ThreadCalls
from taut.supervisor.run.actions import Save
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage import background_files as files_module
from taut.supervisor.storage.background_files import BackgroundFiles, SpareDescriptors


@pytest.mark.parametrize(
    "failure", [ImportError("no torch"), OSError(24, "Too many open files"), MemoryError(), KeyError("a bug")]
)
def test_a_failure_that_nobody_thought_of_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fails(*_: object) -> Path:
        raise failure

    monkeypatch.setattr(files_module, "write_model", fails)
    cluster = Cluster(RunPlan("run", 0, 1, "{}"), 0.0)
    orders = ThreadCalls(wake=lambda: None)
    files = BackgroundFiles(tmp_path, {}, Launch(), cluster, orders)
    files.write(Save(b"", "model"))
    files.close()
    for order in orders.take():
        order(1.0)
    assert cluster.ending.over is not None
    assert type(failure).__name__ in cluster.ending.over[1]


def test_what_is_in_reserve_is_there_when_all_else_is_used_up(tmp_path: Path) -> None:
    """Torch is imported, and the model written, in a process that has opened all the descriptors it may."""
    program = """
        import os, resource, sys
        from pathlib import Path
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        from taut.supervisor.run.actions import Save
        from taut.supervisor.checkpoints.folder import Launch
        from taut.supervisor.run.cluster import Cluster
        from taut.supervisor.storage.background_files import BackgroundFiles
        from taut.supervisor.control import ThreadCalls
        from taut.supervisor.run.plan import RunPlan

        data = sys.stdin.buffer.read()
        cluster, orders = Cluster(RunPlan("run", 0, 1, "{}"), 0.0), ThreadCalls(wake=lambda: None)
        files = BackgroundFiles(Path(sys.argv[1]), {}, Launch(), cluster, orders)
        assert "torch" not in sys.modules
        try:
            while True:
                os.open(os.devnull, os.O_RDONLY)
        except OSError:
            pass
        files.write(Save(data, "model"))
        files.close()
        for order in orders.take():
            order(1.0)
        print(cluster.ending.over)
    """
    data = save({"w": torch.arange(6.0)})
    run = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    said = subprocess.run(run, input=data, capture_output=True, check=False, timeout=60)
    assert said.stdout.decode() == f"{(str(tmp_path / 'model.safetensors'), '')}\n", said.stderr.decode()
    assert torch.equal(load_file(tmp_path / "model.safetensors")["w"], torch.arange(6.0))
    assert torch.equal(torch.load(tmp_path / "model.pt", weights_only=True)["w"], torch.arange(6.0))


def test_a_reserve_that_others_took_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = SpareDescriptors(number=2)
    tries = []
    real = os.open

    def short(path: str, flags: int) -> int:
        tries.append(path)
        if len(tries) < 4:
            raise OSError(24, "Too many open files")
        return real(path, flags)

    spare.close()
    monkeypatch.setattr(os, "open", short)
    with spare.used():
        assert len(tries) == 5, "tried again until there were two"
        assert len(spare) == 0
    assert len(spare) == 2
    spare.close()
