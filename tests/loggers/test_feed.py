"""What loggers get: every value of the store once, whatever was new when."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_runs import BEGAN, begun, measured

from taut.config.loggers import check_loggers
from taut.errors import Misuse
from taut.loggers.feed import Feed, News, Scalar
from taut.loggers.reporter import Reporter

SECONDS = 8


@settings(max_examples=20, deadline=None)
@given(cuts=st.lists(st.integers(1, SECONDS - 1), unique=True, max_size=4).map(sorted))
def test_every_value_comes_once_whenever_it_is_read(cuts: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs")
    store = begun(folder)
    feed, found = Feed(folder / "otter"), []
    for lo, hi in zip([0, *cuts], [*cuts, SECONDS], strict=True):
        measured(store, range(lo, hi))
        found += feed.read().scalars
    store.close()
    whole = Feed(folder / "otter").read().scalars
    assert sorted(found, key=repr) == sorted(whole, key=repr)
    assert feed.read().scalars == ()
    speeds = [one for one in whole if (one.name, one.rank) == ("samples_per_s", 0)]
    assert speeds == [Scalar("samples_per_s", 0, 10 * second, BEGAN + second, 500.0) for second in range(1, SECONDS)]


class Kept:
    """A logger that keeps what it gets, or fails."""

    def __init__(self, fails: bool = False) -> None:
        self.fails, self.scalars, self.ended = fails, [], False  # type: ignore[var-annotated]
        self.wrote = threading.Event()

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        assert (run, settings["strategy"]) == ("otter", "async")
        return "here"

    def write(self, news: News) -> None:
        self.wrote.set()
        if self.fails:
            raise RuntimeError("full disk")
        self.scalars += news.scalars

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        self.ended = True


def test_a_logger_that_fails_takes_nothing_from_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = begun(tmp_path)
    good, bad = Kept(), Kept(fails=True)
    with Reporter(tmp_path / "otter", {"good": good, "bad": bad}, every_s=0.01) as reporter:
        assert reporter.told == ["good: here", "bad: here"]
        measured(store, range(SECONDS))
        assert bad.wrote.wait(20.0)
    store.close()
    assert good.scalars and good.ended, "what was written last came, too"
    assert len(good.scalars) == len(Feed(tmp_path / "otter").read().scalars)
    assert caplog.text.count("full disk") == 1


def test_what_a_logger_needs_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.config.loggers.find_spec", lambda name: None)
    with pytest.raises(Misuse, match=r"without mlflow: expected mlflow; pip install 'taut\[mlflow\]'"):
        check_loggers("mlflow", "--report-to")
    monkeypatch.setattr("taut.config.loggers.find_spec", lambda name: name)
    assert check_loggers("wandb, tensorboard,wandb", "x") == "wandb,tensorboard"
    assert check_loggers(["mlflow"], "x") == "mlflow"
