"""Answers that are read from disk when somebody asks: metrics, images, other runs, files and the script.

One at a time, beside the server's loop: the disk and the interpreter are the run's first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from taut.dashboard.guard import Declined
from taut.dashboard.metric_curves import MetricCurves
from taut.dashboard.other_runs import OtherRuns
from taut.dashboard.run_files import file_of, pieces, script_of
from taut.dashboard.sources import Source
from taut.errors import TautError

PRIVATE = ("/api/files/", "/api/script")  # they need the secret wherever the page is looked at
MOST_DOWNLOADS = 2  # at once
T = TypeVar("T")


class StoredRoutes:
    """The routes; ``source``: the run that is shown."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._curves, self._others = MetricCurves(source.run_dir), OtherRuns(source.run_dir.parent)
        self._reading, self._downloads = asyncio.Lock(), 0

    def routes(self) -> list[Route]:
        """Return the routes, for the application."""
        return [
            Route("/api/settings", self._settings),
            Route("/api/metrics", self._metrics),
            Route("/api/images/{row:int}", self._image),
            Route("/api/runs", self._runs),
            Route("/api/runs/{name}", self._other_run),
            Route("/api/script", self._script),
            Route("/api/files/{name:path}", self._file),
        ]

    async def _read(self, what: Callable[[], T], status: int = 404) -> T:
        try:
            async with self._reading:
                return await asyncio.to_thread(what)
        except TautError as error:
            raise Declined(status, str(error)[:1000]) from None

    async def _settings(self, _: Request) -> Response:
        return _json(await self._read(self._source.about, 503))

    async def _metrics(self, _: Request) -> Response:
        return _json(await self._read(self._curves.read, 503))

    async def _image(self, request: Request) -> Response:
        row = request.path_params["row"]
        if row >= 2**63:
            raise Declined(404, "there is no such image")
        return Response(await self._read(lambda: self._curves.image(row)), media_type="image/png")

    async def _runs(self, _: Request) -> Response:
        return _json(await self._read(self._others.runs))

    async def _other_run(self, request: Request) -> Response:
        name = request.path_params["name"]
        return _json(await self._read(lambda: self._others.curve(name)))

    async def _script(self, _: Request) -> Response:
        return Response(await self._read(lambda: script_of(self._source.run_dir)), media_type="text/plain")

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        path = await self._read(lambda: file_of(self._source.run_dir, name))
        if self._downloads >= MOST_DOWNLOADS:
            raise Declined(503, "files are being fetched already", "try again", {"Retry-After": "5"})
        return _Download(self, path)


class _Download(StreamingResponse):
    """A file, piece by piece; it counts as long as the client takes it."""

    def __init__(self, routes: StoredRoutes, path: Path) -> None:
        super().__init__(pieces(path), media_type="application/octet-stream")
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._routes._downloads += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._routes._downloads -= 1


def _json(record: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(record), media_type="application/json")
