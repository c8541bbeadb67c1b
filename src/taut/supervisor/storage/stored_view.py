"""A run as displays have it (``ClusterView``), from its store, while the supervisor is in another process."""

from __future__ import annotations

from collections import deque
from typing import cast, get_args

from taut.core.messages import Statistics
from taut.supervisor.storage.store_reader import StoredRun
from taut.supervisor.view import ClusterView, Event, RunState

KEPT_EVENTS = 500


class StoredView:
    """Makes a view after each reading of a store. ``StoreFollower`` reads only what is new, so this keeps the rest."""

    def __init__(self) -> None:
        self._latest: dict[int, Statistics] = {}
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._last = 0.0

    def after(self, fresh: StoredRun) -> ClusterView:
        """Return the run as of this reading."""
        began = fresh.summary.started
        for record in fresh.statistics:
            self._latest[record.rank] = record.statistics
        for number, event in zip(fresh.event_rows, fresh.events, strict=True):
            self._events.append(Event(number, event.time - began, event.kind, event.text))
        times = [*(record.time for record in fresh.statistics), *(event.time for event in fresh.events)]
        progress = fresh.progress
        self._last = max([self._last, began, *times, *([] if progress is None else [progress.time])])
        state = fresh.summary.state if progress is None else progress.state
        names = ("epoch", "epochs", "samples_done", "samples_total", "samples_trained", "samples_left", "train_s")
        wanted = fresh.settings.get("workers")
        return ClusterView(
            run=fresh.summary.name,
            state=cast(RunState, state if state in get_args(RunState) else "training"),
            expected=0,
            workers=tuple(fresh.rows(self._latest)),
            consensus=0.0 if progress is None else progress.consensus or 0.0,
            events=tuple(self._events),
            wall_s=self._last - began,
            wanted=wanted if isinstance(wanted, int) else 0,
            **{
                "epoch": 0, "samples_done": 0, "samples_total": 0, "train_s": 0.0,
                **({} if progress is None else {name: getattr(progress, name) for name in names}),
            },
        )  # fmt: skip
