"""What cannot be: a clear word, before anything trains, and nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from commands import JOB, Command
from ray.cluster_utils import Cluster

import taut.engines.ray.engine
from taut.engines.ray.engine import RayEngine
from taut.errors import Misuse
from taut.ray import Trainer


def groups(ray: Any) -> list[dict[str, Any]]:
    """The placement groups that exist."""
    return [each for each in ray.util.placement_group_table().values() if each["state"] != "REMOVED"]


@pytest.mark.parametrize(
    ("flags", "words", "code"),
    [
        ("--ray-address ADDRESS -n 16", "16 workers with CPU=1 each: expected a Ray cluster with room .* for 3 ", 2),
        ("--ray-address ADDRESS --ray-resources GPU=1", "room for 0 .3 nodes with CPU=1,GPU=0", 2),
        ("--ray-address ADDRESS -n 4 --ray-wait-s 1", "room for 3 ", 2),
        ("--ray-address 127.0.0.1:1", "127.0.0.1:1: expected a Ray cluster that answers .Connection refused", 2),
        ("--ray-address ray://127.0.0.1:10001", "expected HOST:PORT, auto, or local; on a machine of the cluster", 2),
        ("--ray-address nonsense", "expected HOST:PORT", 2),
    ],
)
def test_a_cluster_that_will_not_do(
    driver: Any, cluster: Cluster, tmp_path: Path, flags: str, words: str, code: int
) -> None:
    with Command(tmp_path, "run", "--engine", "ray", *flags.replace("ADDRESS", cluster.address).split(), JOB) as run:
        run.until(f"error: .*{words}")
        assert run.end() == code
    assert "Traceback" not in run.text
    assert groups(driver) == []
    if "wait" not in flags:
        assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_others_use(driver: Any, cluster: Cluster, tmp_path: Path) -> None:
    from ray.util.placement_group import placement_group, remove_placement_group

    others = placement_group([{"CPU": 1}] * 2)
    driver.get(others.ready())
    flags = f"--engine ray --ray-address {cluster.address} --ray-wait-s 1 -n 3".split()
    with Command(tmp_path, "run", *flags, JOB) as run:
        run.until(r"error: the Ray cluster has room for 3 workers .* but others use it: free are now CPU=")
        assert run.end() == 1
    assert [each["placement_group_id"] for each in groups(driver)] == [others.id.hex()]
    remove_placement_group(others)


def test_a_node_with_another_script_is_named(driver: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taut.engines.ray.engine, "fingerprint", lambda script: "of another script")
    engine = RayEngine(JOB, [], 1, {}, log_dir=tmp_path)
    with pytest.raises(Misuse, match=r"job.py is another script\): expected the same script on every node"):
        engine.start()
    engine.close()
    assert groups(driver) == []


def test_a_trainer_is_refused_before_anything_is_started(driver: Any) -> None:
    with pytest.raises(Misuse, match="room for 3"):
        Trainer(JOB, workers=16).fit()
    assert groups(driver) == []
