"""Looks at the run once a second for all clients: each answer is made once, however many clients there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec

from taut.dashboard.history import History
from taut.dashboard.records import StreamMessage
from taut.dashboard.sources import Source
from taut.errors import TautError

_LOG = logging.getLogger("taut.dashboard")
COMMENT = b": nothing new\n\n"  # keeps the connection known to be alive


class Poller:
    """Looks at ``source`` in a rhythm. ``history``: the curves of the time before."""

    def __init__(self, source: Source, history: History, every_s: float, idle_s: float) -> None:
        self._source, self._every_s, self._idle_s = source, every_s, idle_s
        self.seen = source.look()
        self.history = history if self.seen.over else history.grown(self.seen.mark)
        self._next = asyncio.Event()
        self._closed = False

    async def beat(self) -> None:
        """Look until the end of the run; a source that fails for a moment is asked again."""
        while not self._closed:
            await asyncio.sleep(self._every_s)
            if not self.seen.over:
                self._look()

    def close(self) -> None:
        """Take the last look for all clients; their streams end after it."""
        self._closed = True
        self._look()

    def _look(self) -> None:
        try:
            self.seen = self._source.look()
        except TautError as error:
            _LOG.warning("the run could not be looked at: %s", error)
        if not self.seen.over:  # what comes after the end is no curve
            self.history = self.history.grown(self.seen.mark)
        self._next.set()
        self._next = asyncio.Event()

    async def looks(self, after: int) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events: a `Look` at once, and one whenever there is a newer one. A slow client misses some,
        since each is made when the one before is gone; nothing piles up."""
        sent: History | None = None
        while True:
            awaited, ending, seen, history = self._next, self._closed, self.seen, self.history
            fresh = sent is None or history.halvings != sent.halvings
            points = history.points if sent is None or fresh else history.points[len(sent.points) :]
            events = seen.events_after(after, latest=sent is None)
            late = history.staleness.view()
            yield _message(StreamMessage(seen.run, seen.workers, events, points, fresh, seen.topology, seen.hosts, late))
            if ending:
                return
            sent, after = history, max([after, *(event.number for event in events.events)])
            while not awaited.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(awaited.wait(), self._idle_s)
                if not awaited.is_set():
                    yield COMMENT


def _message(look: StreamMessage) -> bytes:
    r"""Write a server-sent event. JSON has no line breaks, so one ``data:`` line holds it.

    >>> msgspec.json.encode("a\nb")
    b'"a\\nb"'
    """
    return b"event: look\nid: %d\ndata: %s\n\n" % (look.events.last, msgspec.json.encode(look))
