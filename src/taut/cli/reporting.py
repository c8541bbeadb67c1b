"""``--report-to``: the run's metrics in other tools, while a command sees it through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from taut.cli.output.display import Display


@contextmanager
def reported(report_to: str | None, folder: Path, display: Display) -> Iterator[None]:
    """Report the run in ``folder`` during the block, if that was asked for."""
    if report_to is None:
        yield
        return
    from taut.loggers.reporter import Reporter, loggers_of

    with Reporter(folder, loggers_of(report_to.split(","))) as reporter:
        for told in reporter.told:
            display.note(told, copied=True)
        yield
