"""The way of a script's process into the run that it was started for, whatever the script trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from taut.codecs.parallel import set_threads
from taut.core.callbacks import do_nothing
from taut.worker.joining.connection import CONNECTOR, Connector, connector, launched_run
from taut.worker.joining.launched import found_launch, told_in_a_line
from taut.worker.joining.script_worker import check_first, note_joined
from taut.worker.session_worker import SessionWorker

W = TypeVar("W", bound=SessionWorker)


def enter_run(made: Callable[[Connector | None], W], launcher: str | None) -> W:
    """Return the worker that ``made`` makes with the way to the others, or with None for a run of one. ``launcher``: as
    ``taut.join`` takes it."""
    launched = found_launch(launcher) if CONNECTOR.get() is None else None
    with told_in_a_line(launched):
        if launched is not None:
            launched.enter()
        run = launched_run()
        check_first(run)
        link = connector()
        if link is not None:
            link.when_joined = launched.joined if launched is not None else do_nothing
            set_threads(torch.get_num_threads())  # large models are scanned by as many as compute
        worker = made(link)
        note_joined(worker, run)
    if launched is not None:
        launched.started()
    return worker
