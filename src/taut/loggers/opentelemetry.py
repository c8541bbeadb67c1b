"""OpenTelemetry: the run as one span. The spans of steps and messages come from the workers (``worker/tracing.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.config import environment
from taut.loggers.feed import News
from taut.worker.tracing import provider


class Logger:
    """A span ``run``, with each of the run's events in it."""

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        self._provider = provider(run, "supervisor")
        known = {f"taut.{name}": str(value) for name, value in sorted(settings.items()) if value is not None}
        self._span = self._provider.get_tracer("taut").start_span("run", attributes=known)
        self._told = 0
        return f"traces go to {environment.traces_go_to()}"

    def write(self, news: News) -> None:
        for row, event in zip(news.run.event_rows, news.run.events, strict=True):
            if row > self._told:
                self._told = row
                self._span.add_event(event.kind, {"taut.text": event.text}, timestamp=round(event.time * 1e9))

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        from opentelemetry.trace import StatusCode

        failed = outcome is None or bool(outcome.get("exit_code"))
        self._span.set_status(StatusCode.ERROR if failed else StatusCode.OK)
        self._span.end()
        self._provider.force_flush()
        self._provider.shutdown()
