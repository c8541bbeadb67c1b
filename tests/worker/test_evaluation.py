"""One worker evaluates in the course of the run, and nobody waits for it; all end together where scores say so."""

from __future__ import annotations

import logging
import tempfile
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch.nn import functional as F

import taut
from taut.analysis.tables import read_table
from taut.config import WorkerEnvironment, resolve
from taut.core.clock import MonotonicClock
from taut.core.early_stopping import BEST_MODEL
from taut.core.messages import Validated
from taut.errors import Misuse
from taut.supervisor.prepare import Listen
from taut.supervisor.service import Supervisor
from taut.supervisor.storage.store_reader import find_run
from taut.testing import FakeClock
from taut.worker.best_model import keep_best, kept_score, place_of
from taut.worker.evaluation import Evaluation
from taut.worker.joining.connection import CONNECTOR, SocketConnector
from taut.worker.validation import Validation

X = torch.linspace(-1.0, 1.0, 1024).reshape(256, 4)
Y = X.sum(1, keepdim=True)
FURTHER = 5  # steps that all make while the first evaluation is under way


def test_training_goes_on_during_an_evaluation_and_all_stop_early_together(tmp_path: Path) -> None:
    chosen = {"strategy": "sync", "workers": 2, "validate_every": "10steps", "stop_early": "3", "runs_dir": str(tmp_path)}
    shared = resolve(chosen, environ={}, config_file=None, cwd=tmp_path).fitted().shared()
    run_dir = tmp_path / "run"
    supervisor = Supervisor(shared, run_dir, run="run", workers=2, seed=0, listen=Listen(transport="memory"))
    further = [threading.Event(), threading.Event()]
    evaluators, steps, failures = set[str](), dict[int, int](), list[BaseException]()

    def score(model: torch.nn.Module) -> float:
        evaluators.add(threading.current_thread().name)
        with torch.no_grad():
            model[0].bias.fill_(9.0)  # a copy's: training must not see it
        assert not model.training
        for event in further:
            assert event.wait(60), "a worker waits for the evaluation"
        return 1.0

    def work() -> None:
        try:
            CONNECTOR.set(SocketConnector(WorkerEnvironment(supervisor.address, token=supervisor.token)))
            model = torch.nn.Sequential(torch.nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            with taut.join(model, optimizer, validate=score) as worker:
                while not worker.stopping:
                    for x, y in worker.batches((X, Y), batch_size=16):
                        worker.step(F.mse_loss(model(x), y))
                        assert float(model[0].bias.detach()) < 5.0
                        if worker.steps >= 10 + FURTHER:
                            further[worker.rank].set()
            steps[worker.rank] = worker.steps
        except BaseException as error:
            failures.append(error)

    supervisor.start()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not failures, failures
        outcome = supervisor.wait(10)
        assert outcome is not None and outcome.exit_code == 0 and outcome.identical, outcome
    finally:
        supervisor.stop()
    assert any(name.startswith("taut-validate") for name in evaluators)
    assert steps[0] >= 40, f"{steps}: four scores of worker 0, every ten steps of its own"
    assert steps[1] >= 10 + FURTHER, steps  # data is dealt by speed: it may make fewer steps
    stored = find_run(str(tmp_path), "run")
    texts = [event.text for event in stored.events if event.kind == "drain"]
    assert texts == ["stopped early: no better score in 3 evaluations since 1 after 10 steps"]
    scores = read_table(run_dir, "metrics").columns
    assert {*scores["name"]} == {"validation"} and {*scores["value"]} == {1.0}
    best, tensors = kept_score(run_dir / BEST_MODEL), load_file(run_dir / BEST_MODEL)
    assert best == 1.0 and tensors.keys() == {"0.weight", "0.bias"}


def test_without_a_validation_function_the_script_is_refused() -> None:
    with pytest.raises(Misuse, match=r"no validation function: expected taut.join\(model, optimizer, validate="):
        Evaluation(Validation(), "30s", lambda _: None, MonotonicClock())


class Hook:
    """A hook that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, *given: object) -> None:
        assert self.lock


def said_by(model: torch.nn.Module, interval: str, moments: list[tuple[int, int, float, bool]]) -> list[int]:
    """Return after which of the ``moments`` (steps, passes, seconds, whether it is this worker's) a score is said."""
    clock, said = FakeClock(), list[Validated]()
    evaluation = Evaluation(Validation(lambda model: float(model.training)), interval, said.append, clock)
    found = []
    for steps, passes, now_s, mine in moments:
        clock.advance(now_s - clock.now())
        before = len(said)
        evaluation.after_step(model, steps, passes, mine)
        evaluation.finish()
        if len(said) > before:
            assert said[-1].step == steps and said[-1].score == 0.0 and model.training
            found.append(steps)
    evaluation.close()
    return found


def test_evaluations_are_due_at_every_multiple_and_only_for_the_main_worker() -> None:
    plain = torch.nn.Linear(1, 1)
    moments = [(steps, steps // 4, 0.5 * steps, steps != 6) for steps in range(1, 14)]
    assert said_by(plain, "3steps", moments) == [3, 9, 12]  # 6 was another worker's
    assert said_by(plain, "1epoch", moments) == [4, 8, 12]
    assert said_by(plain, "2s", moments) == [4, 8, 12]
    resumed = [(steps, 5, 0.0, True) for steps in range(11, 15)]
    assert said_by(plain, "10steps", resumed) == said_by(plain, "1epoch", resumed) == []


def warned(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "taut"]


def test_a_compiled_model_is_scored_and_one_that_cannot_be_copied_too(caplog: pytest.LogCaptureFixture) -> None:
    moments = [(steps, 0, 0.0, True) for steps in range(1, 4)]
    in_place = torch.nn.Linear(1, 1)
    in_place.compile(backend="eager")
    for model in (torch.compile(torch.nn.Linear(1, 1), backend="eager"), in_place):
        model(torch.ones(1, 1))
        assert said_by(model, "1step", moments) == [1, 2, 3]
    assert not warned(caplog)
    hooked = torch.nn.Linear(1, 1)
    hooked.register_forward_hook(Hook())
    assert said_by(hooked, "1step", moments) == [1, 2, 3]
    (record,) = warned(caplog)
    assert "since the model cannot be copied (TypeError: cannot pickle" in record.getMessage()


@settings(max_examples=20)
@given(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=8), st.booleans())
def test_the_file_has_the_best_model_whoever_evaluates(scores: list[float], lower: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = place_of(str(Path(folder) / BEST_MODEL), "run")  # each evaluation knows no more than the file does
        for steps, score in enumerate(scores):
            keep_best(path, {"w": torch.full((2,), float(steps))}, score, steps, lower)
        best = (min if lower else max)(scores)
        assert kept_score(path) == best
        assert load_file(path)["w"].tolist() == 2 * [float(scores.index(best))]
        assert [each.name for each in Path(folder).iterdir()] == [BEST_MODEL]


def test_without_the_run_s_folder_the_present_one_is_taken_and_a_full_disk_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("/nowhere/run/best.safetensors", "run") == tmp_path / "run-best.safetensors"
    assert not keep_best(tmp_path / "gone" / BEST_MODEL, {"w": torch.ones(1)}, 0.5, 1, lower=False)
    assert "could not be written" in warned(caplog)[0].getMessage()


def test_a_grown_model_is_scored_from_then_on() -> None:
    said = list[Validated]()
    evaluation = Evaluation(Validation(lambda model: model.out_features), "1step", said.append, FakeClock())
    for steps in (1, 2):
        evaluation.after_step(torch.nn.Linear(1, steps), steps, 0, True)
        evaluation.finish()
    evaluation.close()
    assert [(each.step, each.score) for each in said] == [(1, 1.0), (2, 2.0)]
