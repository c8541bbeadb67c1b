"""Checkpoints: a run that was killed and continued ends with the very bits of one that never stopped; what is damaged is
refused by name. The supervisor and its sockets are real; the worker is this thread."""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import taut
from taut.cli.commands.resume import continued as continued_settings
from taut.codecs import parse
from taut.config import WorkerEnvironment, resolve
from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.errors import Expelled, Misuse, StorageFailed, SupervisorLost
from taut.strategies.registry import parse as parse_strategy
from taut.supervisor.checkpoints.folder import Found, drop, last_good, numbers, read_manifest, write_manifest
from taut.supervisor.control import Tune, order
from taut.supervisor.prepare import Origin
from taut.supervisor.service import Supervisor
from taut.supervisor.storage.previous_run import read_previous_run
from taut.supervisor.storage.store_reader import load_run
from taut.supervisor.view import Outcome
from taut.worker.checkpoints.file import part_views, read_part, write_views
from taut.worker.checkpoints.resume import Resumption, check_model
from taut.worker.checkpoints.state_tree import check_also, fold, unfold
from taut.worker.joining.connection import CONNECTOR, SocketConnector
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica

X = torch.randn(240, 6, generator=torch.Generator().manual_seed(1))
Y = X.argmax(1)


class Noisy(torch.utils.data.Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A data set that draws random numbers of its own."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index] + 0.01 * torch.randn(6), Y[index]


@dataclass(frozen=True)
class Job:
    """A script of the test's. Everything that could be forgotten is in it: dropout, batch norm, momentum, a scheduler."""

    optimizer: str = "SGD"
    codec: str = "tether"
    strategy: str = "async"
    loop: str = "one"
    seed: int = 0
    data: Any = field(default=(X, Y))
    epochs: int = 4
    size: dict[str, int] = field(default_factory=lambda: {"batch_size": 20})
    scale_lr: str | None = None
    dtype: torch.dtype = torch.float32
    scales: bool = False
    dead: threading.Event = field(default_factory=threading.Event)

    def parts(self) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch.manual_seed(self.seed)
        random.seed(self.seed)
        np.random.seed(self.seed)
        norm = nn.LayerNorm if "global_batch" in self.size else nn.BatchNorm1d  # a part may be one sample
        layers = [nn.Linear(6, 8), norm(8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 6)]
        model = nn.Sequential(*layers).to(self.dtype)
        optimizer: torch.optim.Optimizer
        if self.optimizer == "SGD":
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        else:
            optimizer = getattr(torch.optim, self.optimizer)(model.parameters(), lr=0.01)
        every = 1 if self.loop == "epochs" else 7
        return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, every, gamma=0.9)

    def supervisor(self, folder: Path, resume: Found | None, workers: int, every: str) -> Supervisor:
        chosen = {"strategy": self.strategy, "topology": "complete", "codec": self.codec, "seed": self.seed}
        chosen |= {"workers": workers, "checkpoint_every": every, "scale_lr": self.scale_lr}
        origin = Origin(resume=resume)
        made = Supervisor(chosen, folder, run=folder.name, workers=workers, seed=self.seed, origin=origin)
        made.start()
        return made

    def run(self, folder: Path, resume: Found | None = None, kill: int | None = None) -> bytes:
        """Train to the end, or, with ``kill``, until a checkpoint of after so many steps is whole, and a few more steps:
        the model's bits."""
        supervisor = self.supervisor(folder, resume, 1, "1h" if kill is None else "0.01s")
        try:
            return self.work(supervisor, resume is not None, kill)
        finally:
            supervisor.stop()

    def work(self, supervisor: Supervisor, resumed: bool, kill: int | None = None) -> bytes:
        """A worker in this thread."""
        before = CONNECTOR.set(
            SocketConnector(WorkerEnvironment(supervisor.address, token_file=str(supervisor.token_file)))
        )
        try:
            model, optimizer, scheduler = self.parts()
            rounding: Any = "stochastic" if self.scales else "nearest"
            worker = taut.join(model, optimizer, rounding=rounding, also={"scheduler": scheduler})
            assert worker.resumed == resumed
            if kill is not None:
                self._die(worker, supervisor, kill, self._train(worker, model, scheduler))
                return b""
            for _ in self._train(worker, model, scheduler):
                pass
            worker.close()
            assert {tensor.dtype for tensor in model.parameters()} == {self.dtype}
            return b"".join(
                tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in model.state_dict().values()
            )
        finally:
            CONNECTOR.reset(before)

    def _die(self, worker: Any, supervisor: Supervisor, kill: int, steps: Iterator[int]) -> None:
        """As a kill does it: without a word. Whoever dies first takes the run with it."""
        try:
            for step in steps:
                if step >= kill and self._hold(worker, supervisor.run_dir, step, kill):
                    break
        except (Expelled, SupervisorLost):
            pass
        worker._closed = True
        worker._session.comm.close()
        self.dead.set()

    def _train(self, worker: Any, model: nn.Module, scheduler: Any) -> Iterator[int]:
        rounds = self.epochs if self.loop == "epochs" else 1
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3) if self.scales else None
        for _ in range(rounds):
            for x, y in worker.batches(self.data, **self.size, epochs=self.epochs if rounds == 1 else None):
                noise = 0.01 * torch.randn(x.shape) + random.gauss(0.0, 0.01) + float(np.random.normal(0.0, 0.01))
                worker.step(F.cross_entropy(model((x + noise).to(self.dtype)).float(), y), scaler=scaler)
                if self.loop == "one":
                    scheduler.step()
                yield worker.steps
            if self.loop == "epochs":
                scheduler.step()

    def _hold(self, worker: Any, folder: Path, steps: int, kill: int) -> bool:
        """Wait for the supervisor's wish; a step after its checkpoint is whole, it is time to die."""
        keeper, wait = worker._keeper, worker._session.comm.wait
        if steps == kill:
            wait(lambda _: keeper.wanted, lambda: None)
            return False
        wait(lambda _: (folder / FOLDER / str(keeper.taken) / MANIFEST).exists(), lambda: None)
        return steps > kill + 1


def continued(job: Job, folder: Path, kill: int) -> bytes:
    job.run(folder, kill=kill)
    found = last_good(folder / FOLDER)
    assert found is not None and found.manifest.steps >= kill
    return job.run(folder, resume=found)


JOBS = {
    "momentum": Job(),
    "adamw": Job("AdamW", seed=1),
    "threshold": Job(codec="threshold", seed=2),
    "dense": Job("AdamW", codec="dense", seed=3),
    "over epochs": Job("AdamW", loop="epochs", seed=4),
    "loader": Job(data=Noisy(), loop="epochs", seed=5),
    "sync": Job("AdamW", strategy="sync", codec="dense", seed=6),
    "dpsgd": Job(strategy="dpsgd", codec="dense", seed=7),
    "ssp": Job(strategy="ssp:2", seed=8),
    "dgc": Job(codec="dgc:density=0.1,warmup=30", seed=9),
    "powersgd": Job(codec="powersgd:rank=1", seed=10),
    "qsgd": Job("AdamW", codec="qsgd", seed=11),
    "bfloat16": Job("AdamW", dtype=torch.bfloat16, seed=13),
    "bfloat16, a residual": Job(codec="qsgd", dtype=torch.bfloat16, seed=14),
    "float16, a scaler": Job(strategy="sync", codec="dense", dtype=torch.float16, scales=True, seed=15),
    "sync topk": Job("AdamW", strategy="sync", codec="topk:density=0.1", seed=12),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_continued_run_has_the_bits_of_one_that_never_stopped(name: str, tmp_path: Path) -> None:
    job = JOBS[name]
    kill = random.Random(name).randrange(1, 40)
    assert continued(job, tmp_path / "cut", kill) == job.run(tmp_path / "whole"), f"killed after step {kill}"


def together(
    job: Job, folder: Path, workers: int, resume: Found | None = None, kill: int | None = None
) -> Outcome | None:
    """Several workers, a thread each."""
    supervisor = job.supervisor(folder, resume, workers, "1h" if kill is None else "0.01s")
    failures: list[BaseException] = []

    def one() -> None:
        try:
            job.work(supervisor, resume is not None, kill)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(workers)]
    try:
        for thread in threads:
            thread.start()
        outcome = None
        if kill is None:
            outcome = supervisor.wait(60.0)
        else:
            job.dead.wait(60.0)
            supervisor.stop()
        for thread in threads:
            thread.join(60.0)
    finally:
        supervisor.stop()
    if failures:
        raise failures[0]
    return outcome


@pytest.mark.parametrize(
    ("strategy", "codec", "workers", "more"),
    [
        ("async", "tether", 3, {}),
        ("async", "threshold", 1, {}),
        ("sync", "dense", 3, {"scale_lr": "linear:2"}),
        ("sync", "dense", 3, {"size": {"global_batch": 40}}),
        ("averaging:every=3", "dense", 1, {"size": {"global_batch": 40}}),
        ("dpsgd", "dense", 1, {}),
        ("sync for 4 steps, then averaging for 3 steps, then async", "tether", 2, {}),
    ],
)
def test_another_number_of_workers(strategy: str, codec: str, workers: int, more: dict[str, Any], tmp_path: Path) -> None:
    job = Job(strategy=strategy, codec=codec, epochs=12, **more)
    together(job, tmp_path / "run", 2, kill=8)
    found = last_good(tmp_path / "run" / FOLDER)
    assert found is not None and len(found.manifest.files) == 2
    now = resolve({"workers": workers}, environ={}, cwd="/nowhere")
    left = continued_settings(now, found.manifest)
    assert strategy.endswith(left.strategy) and left.workers == workers and left.codec == codec
    assert left.scale_lr == job.scale_lr
    outcome = together(replace(job, strategy=left.strategy), tmp_path / "run", workers, resume=found)
    assert outcome is not None and outcome.exit_code == 0 and outcome.identical, outcome
    assert (outcome.samples_undone, outcome.samples_again) == (0, 0)
    held = len(X) * job.epochs
    assert sum(row.statistics.samples for row in outcome.workers.values()) == held, "each sample once per pass, in all"


@pytest.mark.parametrize(("phase", "restored"), [(2, ["of mine"]), (1, [])])
def test_what_an_exchange_kept_is_for_the_same_phase(phase: int, restored: list[str]) -> None:
    """A part may have been copied while its worker was in the phase before that of the first part."""
    parts = {0: {"phase": 2, "talk": "of the first"}, 1: {"phase": phase, "talk": "of mine"}}
    found = SimpleNamespace(ranks=[0, 1], choice=SimpleNamespace(is_method=False), _restore_coder=lambda *_: None)
    found.part = lambda rank: SimpleNamespace(document=parts[rank])
    found._own = found.part(1)
    told: list[str] = []
    Resumption.restore_exchange(found, SimpleNamespace(restore=told.append, coder=None))  # type: ignore[arg-type]
    assert told == restored


def test_a_worker_that_waits_for_data_does_not_hold_a_checkpoint_up(tmp_path: Path) -> None:
    """Two batches, and whoever comes first does not let go of its own before the other has made its copy."""
    data = (X[:40], Y[:40])
    workers: list[Any] = []
    first = threading.Lock()

    class Slow(Job):
        def _train(self, worker: Any, model: nn.Module, scheduler: Any) -> Iterator[int]:
            workers.append(worker)
            for x, y in worker.batches(data, batch_size=20, epochs=1):
                worker.step(F.cross_entropy(model(x), y))
                if first.acquire(blocking=False):
                    worker._session.comm.wait(lambda _: self._copied(worker), lambda: None)
                yield worker.steps

        def _copied(self, worker: Any) -> bool:
            return any(one._keeper.taken for one in workers if one is not worker)

        def supervisor(self, folder: Path, resume: Found | None, workers: int, every: str) -> Supervisor:
            return super().supervisor(folder, resume, workers, "0.01s")

    outcome = together(Slow(), tmp_path / "run", 2)
    assert outcome is not None and outcome.exit_code == 0 and outcome.samples_undone == 0


def test_a_continued_run_has_the_learning_rate_that_its_owner_had_set(tmp_path: Path) -> None:
    used: list[float] = []

    class Tuned(Job):
        def _train(self, worker: Any, model: nn.Module, scheduler: Any) -> Iterator[int]:
            if not worker.resumed:
                order(read_previous_run(tmp_path / "run"), Tune("by the test", rate=0.5))
                worker._session.comm.wait(lambda status: status.steering.rate == 0.5, lambda: None)
            own, used_by = scheduler.get_last_lr, worker.optimizer.param_groups[0]
            worker.optimizer.register_step_pre_hook(lambda *_: used.append(used_by["lr"] / own()[0]))
            return super()._train(worker, model, scheduler)

    job = Tuned()
    continued(job, tmp_path / "run", 10)
    assert set(used) == {0.5}, used
    told = [one.text for one in load_run(tmp_path, "run").events if one.kind == "resumed"]
    assert told[0].endswith("with learning rates times 0.5 as before")


# ---------------------------------------------------------------------------------------------------- on disk


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed, with two checkpoints at least."""
    folder = tmp_path_factory.mktemp("runs") / "killed"
    Job(epochs=40).run(folder, kill=30)
    Job(epochs=40).run(folder, resume=last_good(folder / FOLDER), kill=60)
    assert len([number for number in numbers(folder / FOLDER) if (folder / FOLDER / str(number) / MANIFEST).exists()]) > 1
    return folder


@pytest.fixture
def run_folder(killed: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(killed, tmp_path / "runs" / "killed"))


def newest(folder: Path) -> tuple[int, int]:
    """The last two checkpoints that are whole."""
    found = last_good(folder / FOLDER)
    assert found is not None
    whole = [number for number in numbers(folder / FOLDER) if (folder / FOLDER / str(number) / MANIFEST).exists()]
    assert whole[-1] == found.manifest.number
    return whole[-2], whole[-1]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda own: (own / MANIFEST).unlink(), "never completed"),
    "half a manifest": (lambda own: (own / MANIFEST).write_text((own / MANIFEST).read_text()[:99]), "is damaged"),
    "no part": (lambda own: (own / "worker-0.safetensors").unlink(), "is missing"),
    "cut off": (lambda own: os.truncate(own / "worker-0.safetensors", 999), "has 999 bytes"),
    "a flipped bit": (lambda own: flip(own / "worker-0.safetensors"), "its checksum is another"),
    "another version": (
        lambda own: (own / MANIFEST).write_text((own / MANIFEST).read_text().replace('"version": 1', '"version": 9')),
        "in form 9",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_is_damaged_is_named_and_the_one_before_is_taken(name: str, run_folder: Path) -> None:
    damage, words = DAMAGE[name]
    before, last = newest(run_folder)
    damage(run_folder / FOLDER / str(last))
    found = last_good(run_folder / FOLDER)
    assert found is not None and found.manifest.number == before
    assert any(f"checkpoint {last} is not used" in text and words in text for text in found.damaged), found.damaged
    for number in numbers(run_folder / FOLDER):
        if number != last:
            drop(run_folder / FOLDER, number)
    with pytest.raises(StorageFailed, match="is not used"):
        last_good(run_folder / FOLDER)


def test_a_worker_checks_the_part_that_it_reads(run_folder: Path) -> None:
    own = run_folder / FOLDER / str(newest(run_folder)[1])
    path, digest = own / "worker-0.safetensors", read_manifest(own).files["worker-0.safetensors"].blake2b
    assert read_part(path, digest).document["rank"] == 0
    flip(path)
    with pytest.raises(StorageFailed, match="checksum"):
        read_part(path, digest)
    os.truncate(path, 500)
    with pytest.raises(StorageFailed, match="is damaged"):
        read_part(path)


def test_only_so_many_stay(tmp_path: Path) -> None:
    for number in range(1, 7):
        own = tmp_path / str(number)
        nbytes, digest = write_views(
            own / "worker-0.safetensors", part_views({"number": number}, {"w": torch.ones(number)})
        )
        files = {"worker-0.safetensors": {"rank": 0, "nbytes": nbytes, "blake2b": digest}}
        manifest: dict[str, object] = {"run": "r", "number": number, "settings": {}, "launch": {}, "files": files}
        if number != 4:  # it was given up before it was whole
            told = write_manifest(tmp_path, {**manifest, "phase": 0, "steps": 9, "passes": {}, "undone": []}, keep=3)
            assert f"checkpoint {number}: 1 part" in told
    assert numbers(tmp_path) == [3, 5, 6]
    found = last_good(tmp_path)
    assert found is not None and found.manifest.number == 6 and not found.damaged


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker-0.safetensors"
    write_views(path, part_views({"steps": 1}, {"w": torch.ones(3)}))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        write_views(path, part_views({"steps": 2}, {"w": torch.zeros(3)}))
    assert read_part(path).document["steps"] == 1
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_part_of_an_earlier_phase_without_shared_weights_is_read(run_folder: Path, tmp_path: Path) -> None:
    """Worker 1 made its copy before it went to the phase in which worker 0 made its own."""
    folder = run_folder / FOLDER / str(newest(run_folder)[1])
    part, files = read_part(folder / "worker-0.safetensors"), {}
    for rank in (0, 1):
        tensors = {name: part.tensor(name) for name in part.names if rank == 0 or name not in ("b", "r")}
        document = {**part.document, "rank": rank, "memory": part.document["memory"] if rank == 0 else {}}
        _, digest = write_views(tmp_path / f"worker-{rank}.safetensors", part_views(document, tensors))
        files[f"worker-{rank}.safetensors"] = {"rank": rank, "blake2b": digest}
    (tmp_path / MANIFEST).write_text(json.dumps({"files": files}))
    for rank in (0, 1):
        replica = Replica(FlatParams(Job().parts()[0]), parse("tether"))
        Resumption(tmp_path, rank, 2, parse_strategy("async")).founded(replica, 2)
        shared, own = part.tensor("b"), part.tensor("w" if rank == 0 else "b")
        assert np.array_equal(replica.shared(), shared) and np.array_equal(replica.params.vector, own)


def test_another_model_is_refused_by_the_name_of_the_tensor(run_folder: Path) -> None:
    part = read_part(run_folder / FOLDER / str(newest(run_folder)[1]) / "worker-0.safetensors")
    model, _, _ = Job().parts()
    check_model(part, FlatParams(model))
    model[4] = nn.Linear(8, 7)
    with pytest.raises(Misuse, match=r"tensor '4.weight' of shape 7x8.*expected .*6x8.*another model"):
        check_model(part, FlatParams(model))


# ------------------------------------------------------------------------------------------------------ values

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
LEAVES |= st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(lambda x: torch.tensor(x, dtype=torch.float32))
KEYS = st.text(max_size=4) | st.integers(-3, 300)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return all(map(same, a, b)) and len(a) == len(b) if isinstance(a, list | tuple) else a == b


@given(TREES)
@settings(deadline=None, max_examples=some(100))
def test_a_tree_comes_back_as_it_was(tree: Any) -> None:
    tensors: dict[str, torch.Tensor] = {}
    assert same(unfold(json.loads(json.dumps(fold(tree, "x", tensors))), tensors.__getitem__), tree)


def test_what_would_have_to_be_unpickled_is_refused_at_join() -> None:
    model, optimizer, _ = Job().parts()

    class Odd:
        def state_dict(self) -> dict[str, object]:
            return {"function": print}

        def load_state_dict(self, state: dict[str, object]) -> None:
            raise AssertionError("it was never saved")

    with pytest.raises(Misuse, match=r"also=\{'odd'.*builtin_function.*unpickled"):
        taut.join(model, optimizer, also={"odd": Odd()})
    with pytest.raises(Misuse, match="state_dict and load_state_dict"):
        taut.join(model, optimizer, also={"number": 3})


def test_schedulers_of_all_kinds_can_be_kept() -> None:
    _, optimizer, _ = Job().parts()
    rates = torch.optim.lr_scheduler
    milestones = rates.MultiStepLR(optimizer, [3, 5])
    kept = unfold(fold(milestones.state_dict(), "x", {}), {}.__getitem__)
    assert isinstance(kept["milestones"], Counter) and kept["milestones"] == milestones.milestones
    for each in (
        rates.SequentialLR(optimizer, [rates.ConstantLR(optimizer), rates.CosineAnnealingLR(optimizer, 9)], [4]),
        rates.OneCycleLR(optimizer, 0.1, 20),
        rates.ReduceLROnPlateau(optimizer),
    ):
        check_also({"each": each})
