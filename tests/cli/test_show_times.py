"""``taut show`` of a run that was resumed: its events in order, from the first beginning on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from taut.cli.main import main
from taut.supervisor.storage.store_writer import StoreWriter


def test_no_event_of_a_resumed_run_has_a_time_below_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = StoreWriter(tmp_path / "20261115-031822-quiet-otter", "20261115-031822-quiet-otter")
    for began in (100.0, 500.0):
        store.begin(began, "taut run x.py", {}, {})
        store.event(began + 1.0, "ready", "worker 0")
    store.close()
    with pytest.raises(SystemExit) as ended:
        main(["show", "latest", "--runs-dir", str(tmp_path)])
    assert not ended.value.code
    assert re.findall(r"\[ *(-?[\d.]+) s\]", capsys.readouterr().out) == ["0.0", "400.0"]
