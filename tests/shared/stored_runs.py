"""A store with a run of two workers in it, for what reads stores."""

from __future__ import annotations

from pathlib import Path

from taut.core.messages import Statistics
from taut.supervisor.storage.store_writer import StoreWriter

BEGAN = 1000.0
SETTINGS = {"strategy": "async", "codec": "tether", "workers": 2}


def begun(folder: Path) -> StoreWriter:
    store = StoreWriter(folder / "otter", "otter")
    store.begin(BEGAN, "taut run x.py", SETTINGS, {})
    for rank in (0, 1):
        store.joined(BEGAN, rank, "host", 40 + rank)
    return store


def measured(store: StoreWriter, seconds: range) -> None:
    """Let both workers make ten steps of 50 samples in each second; worker 1 is a second late."""
    for second in seconds:
        for rank in (0, 1):
            made = max(0, second - rank)
            told = Statistics(
                steps=10 * made, samples=500 * made, loss=1.0 / (1 + second), bytes_sent=100 * second,
                wall_s=float(second), compute_s=0.75 * second, wait_s=0.25 * second,
            )  # fmt: skip
            store.measured(BEGAN + second, rank, told)
    store.flush()
