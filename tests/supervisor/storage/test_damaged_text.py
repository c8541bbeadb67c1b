"""Files with bytes that are no text end in a word about the file, as other damage does, and not in a traceback."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from taut.errors import StorageFailed
from taut.supervisor.checkpoints.folder import LAUNCH_FILE, Launch, remember_launch
from taut.supervisor.data.lease_wal import unpack
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.snapshot import keep, recall

PLAN = RunPlan("quiet-otter", 7, 1, "{}", "host")


def test_a_snapshot_of_the_supervisor() -> None:
    cluster = Cluster(PLAN, 0.0)
    cluster.ledger.failures.append("a failure")
    data = keep(cluster, 0.0)
    assert recall(PLAN, data, 1, 0.0).ledger.failures == ["a failure"]
    with pytest.raises(StorageFailed, match="cannot be read"):
        recall(PLAN, data.replace(b"a failure", b"\xff failure"), 1, 0.0)


def test_the_log_of_leases() -> None:
    with pytest.raises(StorageFailed, match="cannot be read"):
        unpack(msgspec.msgpack.encode([["Trained"]]).replace(b"Trained", b"\xffrained"))


def test_how_workers_were_started(tmp_path: Path) -> None:
    (tmp_path / LAUNCH_FILE).write_bytes(b'{"script": "\xff"}')
    assert remember_launch(tmp_path, None) == Launch()
