"""Each worker of a machine gets its own device, and its process is told which."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from forked_zygotes import ForkedEngine
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.config import resolve
from taut.engines.devices import assign, device_variables, local_rank
from taut.engines.local import LocalEngine
from taut.errors import Misuse

GPUS = st.lists(st.integers(0, 99).map(str), unique=True, max_size=8)


@given(GPUS, st.integers(1, 32))
def test_auto_gives_each_worker_a_gpu_of_its_own_or_refuses(gpus: list[str], workers: int) -> None:
    if 0 < len(gpus) < workers:
        with pytest.raises(Misuse, match="--devices auto"):
            assign("auto", workers, gpus)
        return
    given = assign("auto", workers, gpus)
    assert len(given) == workers
    assert given == ["cpu"] * workers if not gpus else len(set(given)) == workers and set(given) <= set(gpus)


@given(GPUS.filter(bool), st.integers(1, 32), st.data())
def test_a_list_is_dealt_out_in_turn(gpus: list[str], workers: int, data: st.DataObject) -> None:
    names = [*map(str, range(len(gpus))), "cpu"]
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=5))
    given = assign(",".join(chosen), workers, gpus)
    for index, device in enumerate(given):
        name = chosen[index % len(chosen)]
        assert device == ("cpu" if name == "cpu" else gpus[int(name)])


@pytest.mark.parametrize("devices", ["1", "0,1", "cpu,7"])
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are(devices: str) -> None:
    with pytest.raises(Misuse, match="of which there is 1"):
        assign(devices, 2, ["0"])
    with pytest.raises(Misuse, match=r"of which there is none.*--devices cpu"):
        assign(devices, 2, [])


@pytest.mark.parametrize("devices", ["", "gpu", "0;1", "-1", "auto,0", "1.5", "²"])
def test_what_is_no_list_of_devices_is_refused(devices: str) -> None:
    with pytest.raises(Misuse, match="--devices"):
        resolve({"devices": devices}, environ={}, cwd="/nowhere")


def test_settings_take_devices_as_torch_writes_them(tmp_path: Path) -> None:
    (tmp_path / "taut.toml").write_text('[run]\ndevices = ["cuda:0", 1, "cpu"]\n')
    assert resolve({}, environ={}, cwd=tmp_path).devices == "0,1,cpu"


def test_the_device_that_was_given_is_told_before_any_model_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in device_variables(2, "cpu").items():
        monkeypatch.setenv(name, value)
    assert taut.device() == torch.device("cpu")
    monkeypatch.setenv("TAUT_DEVICE", "cuda:0")
    assert taut.device() == torch.device("cuda:0")


def test_without_devices_gpus_go_by_the_number_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAUT_DEVICE", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for number, expected in (("0", 0), ("1", 1), ("2", 0)):
        monkeypatch.setenv("TAUT_LOCAL_RANK", number)
        assert taut.device() == torch.device("cuda", expected)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert taut.device().type in ("cpu", "mps")


def test_other_launchers_numbers_are_understood() -> None:
    assert local_rank({"SLURM_LOCALID": "5"}) == 5
    assert local_rank({"TAUT_LOCAL_RANK": "1", "LOCAL_RANK": "4"}) == 1
    assert local_rank({"LOCAL_RANK": "of no use"}) == 0


TELL = """
    import json, os
    names = ("TAUT_LOCAL_RANK", "TAUT_DEVICE", "CUDA_VISIBLE_DEVICES")
    print(json.dumps({name: os.environ.get(name) for name in names}))
"""


@pytest.mark.parametrize("start", ["zygote", "spawn"])
def test_each_process_sees_its_own_device_only(tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-5")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(TELL))
    engine = ForkedEngine(script, [], 3, {}, log_dir=tmp_path, start=start, devices="1,cpu,0")
    engine.start()
    try:
        while engine.running:
            assert engine.poll(60.0) or engine.pids
    finally:
        engine.close()
    told = [json.loads(log.read_text()) for log in engine.logs]
    assert [each["TAUT_LOCAL_RANK"] for each in told] == ["0", "1", "2"]
    assert [each["TAUT_DEVICE"] for each in told] == ["cuda:0", "cpu", "cuda:0"]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in told] == ["GPU-5", "", "4"]


def test_a_missing_gpu_is_found_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from taut.cli.commands.run import LocalRun

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    given = resolve({"devices": "0", "runs_dir": str(tmp_path / "runs")}, environ={}, cwd=tmp_path)
    with pytest.raises(Misuse, match="of which there is none"):
        LocalRun(given.fitted(), Path(sys.argv[0]), [])
    assert os.listdir(tmp_path) == []
    LocalEngine.check(2, "auto")
