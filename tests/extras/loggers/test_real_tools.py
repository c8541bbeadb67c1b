"""Real TensorBoard, MLflow and Weights & Biases (offline) have the values that the store has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from taut.core.messages.worker import MetricPoint
from taut.loggers.feed import Feed, Scalar
from taut.loggers.reporter import Reporter, loggers_of

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "shared"))
from stored_runs import begun, measured  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # those tools have warnings of their own
BLOCK = 2**15
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Scalar]]:
    """The folder of a run that was reported to all three, and its values."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    store = begun(tmp_path)
    with Reporter(tmp_path / "otter", loggers_of(["tensorboard", "mlflow", "wandb"]), every_s=0.05):
        measured(store, range(5))
        store.logged(1003.0, 1, [MetricPoint(20, "accuracy", 0.97)])
        store.pictured(1003.0, 0, 20, "weights", PNG)
        measured(store, range(5, 9))
    store.close()
    return tmp_path / "otter", list(Feed(tmp_path / "otter").read().scalars)


@pytest.mark.timeout(300)  # MLflow makes its database first
def test_each_has_every_value(reported: tuple[Path, list[Scalar]]) -> None:
    folder, scalars = reported
    assert len(scalars) > 100
    _in_tensorboard(folder, scalars)
    _in_mlflow(scalars)
    _in_wandb(folder, scalars)


def _in_tensorboard(folder: Path, scalars: list[Scalar]) -> None:
    for rank in (0, 1):
        files = EventAccumulator(str(folder / "tensorboard" / f"worker-{rank}")).Reload()
        for name in {one.name for one in scalars if one.rank == rank}:
            written = [(event.step, event.wall_time, pytest.approx(event.value)) for event in files.Scalars(name)]
            assert written == [(one.step, one.time, one.value) for one in scalars if (one.rank, one.name) == (rank, name)]
    first = EventAccumulator(str(folder / "tensorboard" / "worker-0")).Reload()
    assert first.Images("weights")[0].encoded_image_string == PNG
    every = EventAccumulator(str(folder / "tensorboard" / "all")).Reload()
    assert b"strategy = async" in every.Tensors("settings")[0].tensor_proto.string_val[0]


def _in_mlflow(scalars: list[Scalar]) -> None:
    client = MlflowClient()
    experiment = client.get_experiment_by_name("taut")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.data.params["strategy"]) == ("otter", "async")
    found = client.get_metric_history(run.info.run_id, "samples_per_s/worker-0")
    expected = [one for one in scalars if (one.rank, one.name) == (0, "samples_per_s")]
    assert sorted((each.step, each.value) for each in found) == [(one.step, one.value) for one in expected]
    assert client.list_artifacts(run.info.run_id, "images/weights/worker-0")
    assert run.info.status == "FAILED", "its supervisor ended without an outcome"


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file of W&B: a log in blocks of 32 KiB (LevelDB's), after a header of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        nbytes, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + nbytes]
        at += 7 + nbytes
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def _in_wandb(folder: Path, scalars: list[Scalar]) -> None:
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    logged = []
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        names = {item.nested_key[0] if item.nested_key else item.key: item.value_json for item in record.history.item}
        logged += [float(value) for name, value in names.items() if name == "worker-0/samples_per_s"]
    expected = [one.value for one in scalars if (one.rank, one.name) == (0, "samples_per_s")]
    assert logged == pytest.approx(expected)


@pytest.mark.timeout(300)
def test_a_run_reports_while_it_goes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "taut", "run", "-n", "2", "--name", "owl", "--report-to", "tensorboard,wandb"]
    environment = {**os.environ, "WANDB_MODE": "offline", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(ROOT / "examples" / "digits.py"), "--epochs", "20"],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "tensorboard --logdir" in done.stderr and "offline" in done.stderr
    files = EventAccumulator(str(tmp_path / "taut-runs" / "owl" / "tensorboard" / "worker-1")).Reload()
    assert files.Scalars("loss")


def test_wandb_without_an_account_is_refused_at_once(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    done = subprocess.run(
        [sys.executable, "-m", "taut", "run", "-n", "2", "--report-to", "wandb", str(ROOT / "examples" / "digits.py")],
        check=False, cwd=tmp_path, env={**environment, "HOME": str(tmp_path)}, capture_output=True, text=True,
        timeout=100,
    )  # fmt: skip
    assert done.returncode == 2
    assert "wandb login" in done.stderr and "Traceback" not in done.stderr
