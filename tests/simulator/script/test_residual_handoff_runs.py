"""Whole runs in which workers leave in order: what their codecs had not sent is with those who stay, exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taut.codecs import Threshold
from taut.testing import FaultPlan, run_with_faults

JOB = Path(__file__).parents[1] / "tiny_job.py"
STRATEGIES = ["async", "ssp:2", "gossip on a ring", "async on a ring", "ssp:2 on a ring", "sync"]


class Account:
    """Of all that ``threshold`` takes in and sends, in float64; and every worker's state, by rank."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.states: dict[int, Any] = {}
        self.taken = self.sent = 0.0
        start, scan = Threshold.start, Threshold._scan

        def started(codec: Threshold, *given: Any, **settings: Any) -> Any:
            state = self.states[settings["seed"]] = start(codec, *given, **settings)
            return state

        def scanned(codec: Threshold, state: Any, lo: int, hi: int, tau: float, quantum: float) -> Any:
            change, before = (state.w[lo:hi] - state.b[lo:hi]).astype(np.float64), state.b[lo:hi].astype(np.float64)
            self.taken += change * codec._share(state)
            found = scan(codec, state, lo, hi, tau, quantum)
            self.sent += state.b[lo:hi] - before
            return found

        patch.setattr(Threshold, "start", started)
        patch.setattr(Threshold, "_scan", scanned)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("leavers", [(1,), (0, 1, 2)], ids=str)
def test_accumulated_is_sent_and_left(strategy, leavers, monkeypatch):
    account = Account(monkeypatch)
    plan = FaultPlan()
    for rank in leavers:
        plan = plan.leave(rank).at_step(3)
    name, _, topology = strategy.partition(" on a ")
    found = run_with_faults(
        JOB,
        plan,
        strategy=name,
        topology=topology,
        codec="threshold:tau=2^-5",
        args=("--samples", "128", "--epochs", "2"),
        step_s=0.05,
        limit_s=120.0,
    )
    assert found.error == "" and set(found.gone) == set(leavers) and set(found.gone.values()) == {"left"}
    assert found.outcome is not None and found.outcome.samples_undone == 0
    left = sum(state.r.astype(np.float64) for rank, state in account.states.items() if rank not in leavers)
    lost = sum(np.abs(account.states[rank].r).max() for rank in leavers)
    assert lost > 1e-3, "else there was nothing to hand on"
    assert left == pytest.approx(account.taken - account.sent, abs=1e-5)
