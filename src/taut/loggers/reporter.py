"""Passes the new values of a run on to loggers, in a thread of its own. Whatever fails in it, the run goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Self

from taut.errors import Misuse, TautError
from taut.loggers.feed import Feed, Logger, News

LOG = logging.getLogger("taut.loggers")
EVERY_S = 2.0
LAST_S = 30.0  # for the last values, at the end


def loggers_of(names: Sequence[str]) -> dict[str, Logger]:
    """Return the loggers of these names, from their modules."""
    return {name: import_module(f"taut.loggers.{name}").Logger() for name in names}


class Reporter:
    """Reports the run in ``run_dir`` to ``loggers``, from the block's begin to its end. ``told``: where to look."""

    def __init__(self, run_dir: Path, loggers: Mapping[str, Logger], every_s: float = EVERY_S) -> None:
        self._run_dir, self._every_s, self._loggers = run_dir, every_s, dict(loggers)
        self._feed: Feed | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._report, name="reporter", daemon=True)
        self.told: list[str] = []

    def __enter__(self) -> Self:
        settings = Feed(self._run_dir).read().run.settings
        for name, logger in self._loggers.items():
            try:
                self.told.append(f"{name}: {logger.begin(self._run_dir.name, self._run_dir, settings)}")
            except Misuse:
                raise
            except Exception as error:  # a tool of others, perhaps with a server that is away
                raise Misuse(f"--report-to {name} ({error})"[:500], f"{name} to be ready", "leave it out") from error
        self._feed = Feed(self._run_dir)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(LAST_S)

    def _report(self) -> None:
        while not self._over.wait(self._every_s):
            self._pass_on()
        news = self._pass_on()
        for name, logger in self._loggers.items():
            try:
                logger.end(None if news is None else news.run.outcome)
            except Exception:
                LOG.warning("%s did not end well", name, exc_info=True)

    def _pass_on(self) -> News | None:
        assert self._feed is not None
        try:
            news = self._feed.read()
        except TautError as error:
            LOG.warning("the store could not be read: %s", error)
            return None
        for name in list(self._loggers):
            try:
                self._loggers[name].write(news)
            except Exception as error:
                LOG.warning("%s takes no more values: %s", name, error)
                del self._loggers[name]
        return news
