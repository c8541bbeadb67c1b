"""What the dashboard reads from disk: curves of logged values, other runs, files. No name leads anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import Client, served, until

sys.path.append(str(Path(__file__).parents[1] / "shared"))
from stored_runs import begun, measured

from taut.core.messages import HostUse
from taut.core.messages.worker import MetricPoint
from taut.dashboard.metric_curves import MOST_NAMES, MOST_POINTS, Curve
from taut.dashboard.run_files import files_of
from taut.dashboard.sources import StoreSource
from taut.supervisor.checkpoints.folder import Launch, remember_launch
from taut.supervisor.storage.store_writer import StoreWriter

PNG = b"\x89PNG made up"


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[tuple[StoreWriter, Client, Path]]:
    """The store of run ``otter``, and a client of its dashboard."""
    store = begun(tmp_path)
    measured(store, range(5))
    folder = tmp_path / "otter"
    with served(StoreSource(folder, secret_for_all=False), folder) as client:
        yield store, client, folder
    store.close()


@given(st.integers(0, 5000))
def test_a_curve_keeps_few_points_in_their_order_and_the_last_value(count: int) -> None:
    curve = Curve()
    for step in range(count):
        curve.add((float(step), step, 1.0))
    assert len(curve.points) <= MOST_POINTS
    assert curve.points == sorted(curve.points)
    assert not count or (curve.points[0][1] == 0 and curve.last[1] == count - 1)
    assert len(curve.points) >= min(count, MOST_POINTS // 2)


def test_logged_values_and_images_are_answered_as_they_come(stored: tuple[StoreWriter, Client, Path]) -> None:
    store, client, _ = stored
    assert client.ask("/api/metrics").json == {"last": 0, "lines": [], "images": []}
    store.logged(1003.0, 1, [MetricPoint(20, "accuracy", 0.5), MetricPoint(21, "accuracy", None)])
    store.pictured(1003.0, 0, 20, "weights", PNG)
    store.flush()
    first = client.ask("/api/metrics").json
    assert [(name, rank, [point[1:] for point in points]) for name, rank, points in first["lines"]] == [
        ("accuracy", 1, [[20, 0.5]])
    ]
    store.logged(1004.0, 0, [MetricPoint(30, "accuracy", 0.75)])
    store.flush()
    again = client.ask("/api/metrics").json
    assert again["last"] > first["last"] and [line[1] for line in again["lines"]] == [0, 1]
    (image,) = again["images"]
    assert image[1:] == ["weights", 0, 20]
    answer = client.ask(f"/api/images/{image[0]}")
    assert (answer.body, answer.headers["content-type"]) == (PNG, "image/png")
    assert client.ask("/api/images/77").status == client.ask(f"/api/images/{2**70}").status == 404


def test_a_script_that_makes_up_names_fills_no_memory(stored: tuple[StoreWriter, Client, Path]) -> None:
    store, client, _ = stored
    for number in range(200):
        store.logged(1003.0, 0, [MetricPoint(1, f"name {number}", 0.5)])
    store.flush()
    assert len(client.ask("/api/metrics").json["lines"]) == MOST_NAMES


def test_other_runs_are_listed_and_their_curves_are_those_of_their_stores(
    stored: tuple[StoreWriter, Client, Path], tmp_path: Path
) -> None:
    _, client, _ = stored
    listed = client.ask("/api/runs").json
    assert listed["total"] == 1 and [run["run"] for run in listed["runs"]] == ["otter"]
    found = client.ask("/api/runs/otter").json
    assert found["run"]["run"] == "otter" and found["points"]
    assert found["points"][-1][1] == pytest.approx(found["run"]["samples"], rel=0.5)
    assert [point[0] for point in found["points"]] == sorted(point[0] for point in found["points"])


@pytest.mark.parametrize("name", ["..", "../otter", "%2e%2e", "otter%2f..%2fotter", "otter/..", "none", "%00"])
def test_no_name_of_a_run_leads_elsewhere(stored: tuple[StoreWriter, Client, Path], name: str) -> None:
    assert stored[1].ask(f"/api/runs/{name}").status in (400, 404)


def test_files_need_the_secret_and_no_name_leads_elsewhere(stored: tuple[StoreWriter, Client, Path]) -> None:
    _, client, folder = stored
    (folder / "model.safetensors").write_bytes(b"weights" * 100_000)
    (folder / "checkpoints" / "3").mkdir(parents=True)
    (folder / "checkpoints" / "3" / "worker-0.pt").write_bytes(b"part")
    (folder / "link.pt").symlink_to("/etc/passwd")
    assert sorted(files_of(folder)) == ["checkpoints/3/worker-0.pt", "model.safetensors"]
    secret = {"Authorization": f"Bearer {client.secret}"}
    assert client.ask("/api/files/model.safetensors").status == 401
    assert client.ask("/api/files/model.safetensors", Authorization="Bearer wrong").status == 401
    assert client.ask("/api/files/model.safetensors", **secret).body == b"weights" * 100_000
    assert client.ask("/api/files/checkpoints/3/worker-0.pt", **secret).body == b"part"
    for name in (
        "link.pt",
        "run.sqlite",
        "dashboard-token",
        "../otter/model.safetensors",
        "/etc/passwd",
        "..%2f..%2fkeys",
    ):
        assert client.ask(f"/api/files/{name}", **secret).status in (400, 404), name


def test_the_script_is_shown_to_who_has_the_secret(stored: tuple[StoreWriter, Client, Path], tmp_path: Path) -> None:
    _, client, folder = stored
    secret = {"Authorization": f"Bearer {client.secret}"}
    assert client.ask("/api/script").status == 401
    assert client.ask("/api/script", **secret).body == b""
    (tmp_path / "train.py").write_text("print('<b>')\n")
    remember_launch(folder, Launch("train.py", cwd=str(tmp_path)))
    answer = client.ask("/api/script", **secret)
    assert answer.body == b"print('<b>')\n" and answer.headers["content-type"].startswith("text/plain")


def test_hosts_come_from_the_store_too(stored: tuple[StoreWriter, Client, Path]) -> None:
    store, client, _ = stored
    (name,) = {line["host"] for line in client.ask("/api/workers").json["workers"]}
    store.host_used(1003.0, name, HostUse(0.25, 8, 10, 100, 1, 0.5, 3, 4))
    store.paused(1003.0, 1, True)
    store.flush()
    until(lambda: client.ask("/api/hosts").json["hosts"][0]["cores"] == 8, "the host's use")
    (host,) = client.ask("/api/hosts").json["hosts"]
    assert (host["processor"], host["gpu"], host["gpu_memory_total"]) == (0.25, 0.5, 4)
    assert [line["paused"] for line in client.ask("/api/workers").json["workers"] if line["rank"] == 1] == [True]
    assert f'taut_host_processor_ratio{{run="otter",host="{name}"}} 0.25' in client.ask("/metrics").body.decode()
