"""Workers whose kernels round differently, under ``sync``: identical replicas, and the run says what was done."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from taut.testing.cluster import LocalCluster

SCRIPT = """
    import os, sys
    if os.environ["TAUT_LOCAL_RANK"] == "1":
        os.environ["ATEN_CPU_CAPABILITY"] = "default"  # read at torch's first operation
    import torch, taut

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
    make = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}[sys.argv[1]]
    x = torch.randn(256, 20)
    with taut.join(net, make(net.parameters(), lr=0.02)) as worker:
        for a, b in worker.batches((x, x[:, :3].argmax(1)), 16, epochs=5):
            worker.step(torch.nn.functional.cross_entropy(net(a), b))
"""


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this processor has one way to round")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_replicas_are_identical_and_the_run_says_why(tmp_path: Path, optimizer: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with LocalCluster(
        script, 2, tmp_path / "run", args=[optimizer], settings={"strategy": "sync:resync=10", "codec": "dense"}
    ) as cluster:
        outcome = cluster.outcome()
        events = [event.text for event in cluster.supervisor.view().events]
    assert (outcome.exit_code, outcome.identical, outcome.exact) == (0, True, True)
    assert outcome.consensus < 1e-6  # 0 where the last step was one after which the mean is taken anyway
    assert any("processors round differently" in text and "every 10 steps" in text for text in events)
