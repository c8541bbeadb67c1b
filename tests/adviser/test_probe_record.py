"""The probe's file: written and read back, or refused with a remedy; its figures come from what workers counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probes import probe

from taut.adviser.measured import counted, is_measured, probe_from
from taut.adviser.record import CodecProbe, LinkProbe, Probe, WorkerProbe, read_probe, write_probe
from taut.core.messages import Statistics
from taut.errors import Misuse, RunFailed, StorageFailed
from taut.supervisor.view import WorkerRow

positive = st.floats(1e-12, 1e12)
share = st.floats(0.0, 1.0)
workers = st.builds(
    WorkerProbe,
    rank=st.integers(0, 10**6),
    host=st.text(max_size=20),
    step_s=positive,
    spread=share,
    timed=st.integers(1, 1000),
    batch=st.integers(1, 10**6),
    data_share=share,
    codecs=st.dictionaries(st.text(max_size=8), st.builds(CodecProbe, share, share, share), max_size=3),
)
links = st.builds(LinkProbe, st.just(0), st.integers(1, 99), positive, positive, positive, positive)
probes = st.builds(
    Probe,
    version=st.just(1),
    taut=st.text(max_size=8),
    made_at=st.just("2026-01-01T00:00:00+00:00"),
    script=st.text(max_size=20),
    args=st.lists(st.text(max_size=5), max_size=3),
    local=st.booleans(),
    parameters=st.integers(1, 10**12),
    workers=st.lists(workers, min_size=1, max_size=4, unique_by=lambda one: one.rank),
    links=st.lists(links, max_size=4),
    gone=st.dictionaries(st.integers(0, 9).map(str), st.text(max_size=9), max_size=2),
)


@given(found=probes)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: Probe) -> None:
    path = tmp_path_factory.mktemp("probe") / "probe.json"
    write_probe(path, found)
    assert read_probe(path) == found
    assert [one.name for one in path.parent.iterdir()] == ["probe.json"], "something half-written was left"


def broken(change: dict[str, Any]) -> bytes:
    return json.dumps({**msgspec.to_builtins(probe(2)), **change}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b'{"version": 1, "taut": "\xff"}',
        b"[]",
        b"{}",
        broken({})[:-20],
        broken({"version": 2}),
        broken({"workers": []}),
        broken({"parameters": 0}),
        broken({"parameters": "many"}),
        broken({"links": [{"one": 0}]}),
        broken({"surprise": 1}),
        broken({"workers": [msgspec.to_builtins(probe(1).workers[0])] * 2}),
        broken({"links": [{**msgspec.to_builtins(probe(2).links[0]), "other": 0}]}),
        broken({"links": [{**msgspec.to_builtins(probe(2).links[0]), "out_bytes_per_s": 0}]}),
    ],
)
def test_a_broken_file_is_refused_with_a_remedy(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "probe.json"
    path.write_bytes(data)
    with pytest.raises(Misuse, match=r"probe\.json.*taut probe"):
        read_probe(path)


def test_a_missing_file_and_an_unwritable_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        read_probe(tmp_path / "none.json")
    with pytest.raises(StorageFailed, match="could not be written"):
        write_probe(tmp_path / "no" / "folder.json", probe(2))


def row(rank: int, text: str) -> WorkerRow:
    statistics = Statistics(steps=50, counted=text, wall_s=2.0, compute_s=0.9, data_s=0.1)
    return WorkerRow(rank, "host", 1, "finished", statistics, 0.0, "")


CODEC = "encode.tether=1e-9 absorb.tether=2e-9 bits.tether=0.5"
LINK = "trip.1=0.0005 typical.1=0.0006 out.1=1.1e+07 back.1=1.2e+07"


def test_figures_come_from_what_workers_counted() -> None:
    rows = {
        0: row(0, f"measured=1 size=1000 timed=40 step=0.02 spread=0.1 batch=64 {CODEC} {LINK}"),
        1: row(1, "measured=1 size=1000 timed=40 step=0.04 spread=0.1 batch=64 trip.2=0.1 out.2=3"),  # cut off
        2: row(2, "measured=0 size=1000 timed=0"),  # it had too few steps
        3: row(3, "measured=0 size=1000 timed=40 step=0.5 spread=0.1 batch=64"),  # it died
    }
    found = probe_from(rows, script="train.py", args=["--fast"], local=True, gone={3: "killed"})
    assert [one.rank for one in found.workers] == [0, 1]
    assert found.parameters == 1000 and found.gone == {"3": "killed"}
    assert found.workers[0].codecs == {"tether": CodecProbe(1e-9, 2e-9, 0.5)}
    assert found.workers[0].data_share == pytest.approx(0.1)
    assert found.links == [LinkProbe(0, 1, 0.0005, 0.0006, 1.1e7, 1.2e7)]
    assert found.links[0].bytes_per_s == 1.1e7
    with pytest.raises(RunFailed, match="more epochs"):
        probe_from({2: rows[2]}, script="", args=[], local=True, gone={})


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}(\.[0-9]{1,3})?", fullmatch=True), st.floats(-1e9, 1e9), max_size=9))
def test_counts_survive_the_wire(figures: dict[str, float]) -> None:
    text = " ".join(f"{name}={value:g}" for name, value in figures.items())
    assert counted(text) == {name: float(f"{value:g}") for name, value in figures.items()}


def test_who_has_measured() -> None:
    assert is_measured(Statistics(counted="measured=1 size=3"))
    assert not is_measured(Statistics(counted="measured=0 size=3")) and not is_measured(Statistics())
