"""A connection to the dashboard, and what it may cost: uvicorn's own, with bounds that it lacks.

uvicorn waits for ever for a request that never ends, and for a client that never reads. Such connections are cheap to
make, and each holds a file descriptor of the supervisor's process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from taut.dashboard.limits import Limits


class BoundedConnection(H11Protocol):
    """A connection that is closed at once where there are too many, and later where the request does not come or the
    client does not read."""

    limits = Limits()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        # Nothing waits in this process: as soon as the kernel takes no more, `pause_writing` is called.
        transport.set_write_buffer_limits(high=0)
        self._waiting = self.loop.call_later(self.limits.request_s, self._expect_request)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._waiting, self._stuck):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(self.limits.stuck_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck is not None:
            self._stuck.cancel()

    def _expect_request(self) -> None:
        if self.cycle is None or self.cycle.more_body:
            self.transport.abort()


def bounded(limits: Limits) -> type[BoundedConnection]:
    """Make a class of connections with these limits: uvicorn makes connections from a class."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": limits})
