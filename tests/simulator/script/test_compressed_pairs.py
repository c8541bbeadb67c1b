"""Whole runs of gossip with a compressor, and of ssp on a sparse topology: a worker dies, one leaves, one comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "tiny_job.py"
PAIRS = [
    ("dpsgd", "ring", "topk:density=0.1"),
    ("dpsgd:mixing=uniform", "one-peer", "sign"),
    ("sgp:overlap=1", "exponential", "qsgd"),
    ("gossipgrad", "complete", "int8"),
    ("adpsgd", "ring", "topk:density=0.1"),
    ("relaysgd", "ring", "fp8"),
    ("codistillation:every=2", "complete", "topk:density=0.1"),
    ("ssp:1", "ring", "tether"),
    ("ssp:2", "line", "topk:density=0.1"),
]


@pytest.mark.parametrize(("strategy", "topology", "codec"), PAIRS)
def test_the_others_end_whoever_dies_leaves_or_comes(strategy: str, topology: str, codec: str) -> None:
    plan = FaultPlan().kill(1).at_step(4).leave(2).at_step(6).join().at(0.3)
    found = run_with_faults(
        JOB,
        plan,
        strategy=strategy,
        topology=topology,
        codec=codec,
        args=("--samples", "1024", "--epochs", "2"),
        step_s=0.05,
        limit_s=120.0,
    )
    assert found.error == "" and found.outcome is not None
    assert found.outcome.samples_undone == 0
    assert set(found.gone) == {1, 2} and found.workers[4].steps > 10
