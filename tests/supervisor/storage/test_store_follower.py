"""A store that is followed while it is written: everything once, and of very much as much as curves need."""

from __future__ import annotations

from pathlib import Path

import pytest

from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.supervisor.storage.store_follower import LEAST_STRETCHES, StoreFollower
from taut.supervisor.storage.store_writer import StoreWriter


def a_store(folder: Path) -> StoreWriter:
    store = StoreWriter(folder, folder.name)
    store.begin(100.0, "taut run x.py", {"tau": 0.5}, {})
    return store


def test_everything_is_read_once(tmp_path: Path) -> None:
    store, tail = a_store(tmp_path / "otter"), StoreFollower(tmp_path / "otter")
    first = tail.read()
    assert (first.statistics, first.events, first.workers, first.settings) == ((), (), (), {"tau": 0.5})
    seen = []
    for step in range(5):
        store.joined(100.0 + step, step, "host", 40)
        store.measured(100.0 + step, 0, Statistics(steps=step))
        store.event(100.0 + step, "joined", str(step))
        store.flush()
        fresh = tail.read()
        seen += [record.statistics.steps for record in fresh.statistics]
        assert (fresh.event_rows, [event.text for event in fresh.events]) == ((step + 1,), [str(step)])
        assert len(fresh.workers) == step + 1
    assert seen == [0, 1, 2, 3, 4]
    assert tail.read().statistics == ()
    store.close()


@pytest.mark.parametrize("most", [100, 1000])
def test_of_very_much_the_first_reading_takes_less(tmp_path: Path, most: int) -> None:
    store = a_store(tmp_path / "otter")
    for step in range(1000):
        for rank in range(3):
            store.measured(100.0 + step + rank / 4, rank, Statistics(steps=step), final=True)
    store.flush()
    tail = StoreFollower(tmp_path / "otter", most)
    records = tail.read().statistics
    stretches = max(LEAST_STRETCHES, most // 3)
    assert stretches <= len(records) <= 3 * (stretches + 1)
    assert [record.time for record in records] == sorted(record.time for record in records)
    latest = {record.rank: record.statistics.steps for record in records}
    assert latest == {0: 999, 1: 999, 2: 999}
    pauses = [b.time - a.time for a, b in zip(records[::3], records[3::3], strict=False)]
    assert max(pauses) < 3 * 1000 / stretches, "all of the run is there"
    store.measured(2000.0, 0, Statistics(steps=1000), final=True)
    store.close()
    assert [record.statistics.steps for record in tail.read().statistics] == [1000], "and nothing twice"


def test_what_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "otter").mkdir()
    (tmp_path / "otter" / "run.sqlite").write_bytes(b"rubbish" * 1000)
    with pytest.raises(Misuse, match="a readable run"):
        StoreFollower(tmp_path / "otter").read()
