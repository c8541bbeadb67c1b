"""What a worker asks of a Ray cluster, and what is said where it cannot be had; without Ray itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from taut.cli.main import app
from taut.config import resolve
from taut.engines.ray.resources import check_room, room
from taut.errors import Misuse

AMOUNT = st.floats(0.1, 64.0)
NODES = st.lists(st.dictionaries(st.sampled_from(["CPU", "GPU"]), AMOUNT), max_size=6)
EACH = st.dictionaries(st.sampled_from(["CPU", "GPU"]), AMOUNT, min_size=1)


@given(NODES, EACH)
def test_what_fits_can_be_dealt_out_and_one_more_cannot(nodes: list[dict[str, float]], each: dict[str, float]) -> None:
    dealt = 0
    for node in nodes:
        left = dict(node)
        while all(left.get(name, 0.0) + 1e-6 >= amount for name, amount in each.items()):
            left = {name: left[name] - each.get(name, 0.0) for name in left}
            dealt += 1
    assert room(nodes, each) == dealt


def test_too_small_a_cluster_is_told_with_what_there_is_and_what_was_asked() -> None:
    nodes = [{"CPU": 2.0}, {"CPU": 1.0}]
    with pytest.raises(Misuse) as told:
        check_room(16, {"CPU": 1.0}, nodes, "PACK")
    assert str(told.value).startswith(
        "16 workers with CPU=1 each: expected a Ray cluster with room for them; this one has room for 3 "
        "(1 node with CPU=2,GPU=0; 1 node with CPU=1,GPU=0)"
    )
    check_room(3, {"CPU": 1.0}, nodes, "SPREAD")
    for placement, fits in [("STRICT_SPREAD", 2), ("STRICT_PACK", 2)]:
        with pytest.raises(Misuse, match=f"room for {fits}"):
            check_room(3, {"CPU": 1.0}, nodes, placement)


@pytest.mark.parametrize("given", ["CPU", "CPU=", "CPU=0", "CPU=-1", "=1", "CPU=1,,GPU=1", "CPU=inf", "CPU=nan", ""])
def test_resources_that_are_none_are_refused(given: str) -> None:
    with pytest.raises(Misuse, match="NAME=N"):
        resolve({"ray_resources": given}, environ={}, cwd="/nowhere")


def test_resources_may_be_a_table(tmp_path: Path) -> None:
    (tmp_path / "taut.toml").write_text('[ray]\nray_resources = { CPU = 4, GPU = 0.5 }\nray_address = "head:6379"\n')
    found = resolve({}, environ={}, cwd=tmp_path)
    assert (found.ray_resources, found.ray_address) == ("CPU=4,GPU=0.5", "head:6379")


def test_without_ray_a_clear_word_and_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    done = CliRunner().invoke(app, ["run", "--engine", "ray", "train.py"])
    assert isinstance(done.exception, Misuse)
    assert str(done.exception).endswith("it needs Ray: pip install 'taut[ray]'")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


def test_devices_are_rays_business(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    done = CliRunner().invoke(app, ["run", "--engine", "ray", "--devices", "0", "train.py"])
    assert isinstance(done.exception, Misuse)
    assert "--ray-resources" in str(done.exception)
