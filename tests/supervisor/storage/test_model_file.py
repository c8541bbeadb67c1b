"""The model's files: both whole or neither, in a form that torch reads."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch
from forked_zygotes import taut_command
from safetensors.torch import load_file, save

from taut.core.handover import put
from taut.errors import MalformedMessage, StorageFailed
from taut.supervisor.storage import model_file
from taut.supervisor.storage.model_file import take_model, write_model

TENSORS = {
    "a.weight": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "tied": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "count": torch.tensor(7),
}


def test_both_files_hold_the_tensors(tmp_path: Path) -> None:
    path = write_model(tmp_path, save(TENSORS))
    assert path == tmp_path / "model.safetensors"
    for found in (load_file(path), torch.load(tmp_path / "model.pt", weights_only=True)):
        assert found.keys() == TENSORS.keys()
        assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)
    assert sorted(os.listdir(tmp_path)) == ["model.pt", "model.safetensors"]


def test_a_file_that_was_handed_over_becomes_the_model(tmp_path: Path) -> None:
    data = save(TENSORS)
    (folder := tmp_path / "handover").mkdir()
    _, checksum = put(folder, 2, [data])
    path = take_model(tmp_path, folder / "2.safetensors", len(data), checksum, "model-2")
    assert path == tmp_path / "model-2.safetensors"
    assert path.read_bytes() == data
    assert torch.load(tmp_path / "model-2.pt", weights_only=True).keys() == TENSORS.keys()
    assert os.listdir(folder) == []


def test_a_file_that_is_no_model_is_not_taken(tmp_path: Path) -> None:
    (folder := tmp_path / "handover").mkdir()
    _, checksum = put(folder, 0, [b"rubbish"])
    with pytest.raises(MalformedMessage, match="no safetensors file"):
        take_model(tmp_path, folder / "0.safetensors", 7, checksum)
    with pytest.raises(MalformedMessage, match="damaged"):
        take_model(tmp_path, folder / "0.safetensors", 7, checksum + 1)
    assert os.listdir(tmp_path) == ["handover"]


@pytest.mark.parametrize("data", [b"", b"rubbish", b"\xff" * 64, save(TENSORS)[:-5], save(TENSORS) + b"more"])
def test_what_is_no_safetensors_file_is_not_written(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="no safetensors file"):
        write_model(tmp_path, data)
    assert os.listdir(tmp_path) == []


FULL_DISK = """
    import resource, sys, tempfile
    from pathlib import Path
    import torch
    from safetensors.torch import save
    from taut.errors import StorageFailed
    from taut.supervisor.storage.model_file import write_model

    tempfile.tempdir = None  # the process that this is a fork of knew another one
    data = save({"w": torch.zeros(10_000)})
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    try:
        write_model(Path(sys.argv[1]), data)
    except StorageFailed as error:
        print(error)
"""


@pytest.mark.parametrize("limit", [20_000, 40_100])
def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, limit: int) -> None:
    """At 20,000 bytes the first file does not fit, at 40,100 the first does and the second not: then the first, which
    has all that was trained, is put where there is room."""
    run_dir, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run_dir.mkdir()
    elsewhere.mkdir()
    done = subprocess.run(
        [*taut_command(textwrap.dedent(FULL_DISK)), str(run_dir), str(limit)],
        env={**os.environ, "TMPDIR": str(elsewhere)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "could not be written" in done.stdout
    assert os.listdir(run_dir) == []
    rescued = list(elsewhere.rglob("*.*"))
    if limit == 20_000:
        assert list(elsewhere.iterdir()) == []
        assert f"nor to {elsewhere}: File too large" in done.stdout
    else:
        assert f"it is in {rescued[0]} instead" in done.stdout
        assert [each.name for each in rescued] == ["model.safetensors"]
        assert torch.equal(load_file(rescued[0])["w"], torch.zeros(10_000))


def test_an_older_model_stays_when_the_new_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path, save(TENSORS))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        write_model(tmp_path, save({"other": torch.zeros(1)}))
    assert load_file(tmp_path / "model.safetensors").keys() == TENSORS.keys()
    assert sorted(os.listdir(tmp_path)) == ["model.pt", "model.safetensors"]


def test_a_folder_that_is_gone_is_a_storage_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_file.tempfile, "tempdir", str(tmp_path))
    with pytest.raises(StorageFailed, match=r"it is in .*/taut-gone-.*/model\.safetensors instead"):
        write_model(tmp_path / "gone", save(TENSORS))
