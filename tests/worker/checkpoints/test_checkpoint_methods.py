"""What a strategy keeps beside the weights comes back when several workers are resumed, where that makes sense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_checkpoint import Job, together

from taut.core.checkpoint_names import FOLDER, part_name
from taut.supervisor.checkpoints.folder import last_good
from taut.worker.checkpoints.file import read_part
from taut.worker.checkpoints.resume import Resumption


def fields(state: Any, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    found = {}
    for name in names:
        value = state
        for word in name.split("."):
            value = getattr(value, word)
        found[name] = value.copy()
    return found


@pytest.mark.parametrize(
    ("strategy", "workers", "common", "own"),
    [
        ("diloco:every=2", 2, ("theta", "momentum"), ()),
        ("diloco:every=4,fragments=2", 3, ("theta", "momentum"), ()),
        ("admm:every=2", 2, ("z",), ("u",)),
        ("admm:every=2", 1, ("z",), ()),
    ],
)
def test_it_comes_back(
    strategy: str,
    workers: int,
    common: tuple[str, ...],
    own: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(strategy=strategy, codec="dense", epochs=12)
    together(job, tmp_path / "run", 2, kill=7)  # they die two steps later, when no round is due that one would wait in
    found = last_good(tmp_path / "run" / FOLDER)
    assert found is not None and len(found.manifest.files) == 2
    parts = [read_part(found.folder / part_name(part.rank)) for part in found.manifest.files.values()]
    restored: dict[int, dict[str, np.ndarray]] = {}
    restore = Resumption.restore_exchange

    def watched(self: Resumption, exchange: Any) -> None:
        restore(self, exchange)
        restored[self.rank] = fields(exchange.method_state, (*common, *own))

    monkeypatch.setattr(Resumption, "restore_exchange", watched)
    outcome = together(Job(strategy=strategy, codec="dense", epochs=12), tmp_path / "run", workers, resume=found)
    assert outcome is not None and outcome.exit_code == 0 and outcome.identical
    assert sorted(restored) == list(range(workers))
    for rank, state in restored.items():
        for name in common:
            assert np.array_equal(state[name], parts[0].tensor(f"method.{name}").numpy())
        for name in own:
            assert np.array_equal(state[name], parts[rank].tensor(f"method.{name}").numpy())
    assert any(state[name].any() for state in restored.values() for name in (*common, *own))
