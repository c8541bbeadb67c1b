"""The dashboard as an ASGI application: every request passes the guard, every answer has the headers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from taut.dashboard.guard import HEADERS, Asked, Declined, check
from taut.dashboard.history import History
from taut.dashboard.limits import Limits
from taut.dashboard.poller import Poller
from taut.dashboard.prometheus import CONTENT_TYPE, exposition
from taut.dashboard.records import CommandAnswer, DrainRequest, EmptyRequest, Hosts, Points, Problem, TuneRequest
from taut.dashboard.secret import SecretKeeper, unmapped
from taut.dashboard.sources import Source
from taut.dashboard.stored_routes import PRIVATE, StoredRoutes
from taut.errors import Misuse, NetworkError
from taut.supervisor.control import CheckpointNow, Dismiss, DrainRun, Order, Pause, Tune

_LOG = logging.getLogger("taut.dashboard")
_RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
_KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
_SCRIPTS = (
    "page.js",
    "charts.js",
    "topology.js",
    "format.js",
    "orders.js",
    "hosts.js",
    "staleness.js",
    "compare.js",
    "metrics.js",
    "elements.js",
)
_FILES = {
    "/": "index.html",
    **{f"/{name}": name for name in (*_SCRIPTS, "page.css", "uplot/uplot.js", "uplot/uplot.css")},
}
_RANK = 2**31 - 1
T = TypeVar("T")


class App:
    """The application. ``hosts``: the names of this server; ``secret_for_all``: reading needs the secret, too."""

    def __init__(
        self,
        source: Source,
        keeper: SecretKeeper,
        *,
        hosts: frozenset[str],
        secret_for_all: bool,
        limits: Limits,
        every_s: float,
        history: History,
    ) -> None:
        self._source, self._keeper, self._hosts, self._limits = source, keeper, hosts, limits
        self._secret_for_all = secret_for_all
        self._files = {path: (read_page(name), _KINDS[Path(name).suffix]) for path, name in _FILES.items()}
        self._orders = 0
        self._streams: set[_Stream] = set()
        self.poller = Poller(source, history, every_s, limits.idle_s)
        routes = [Route(path, self._page) for path in _FILES]
        routes += [
            Route("/api/run", self._run),
            Route("/api/workers", self._workers),
            Route("/api/events", self._events),
            Route("/api/stream", self._stream),
            Route("/metrics", self._metrics),
            Route("/api/points", self._points),
            Route("/api/topology", self._topology),
            Route("/api/hosts", self._hosts_now),
            Route("/api/staleness", self._staleness),
            *StoredRoutes(source).routes(),
            Route("/api/drain", self._drain_run, methods=["POST"]),
            Route("/api/checkpoint", self._checkpoint, methods=["POST"]),
            Route("/api/tune", self._tune, methods=["POST"]),
            Route("/api/workers/{rank}/drain", self._drain, methods=["POST"]),
            Route("/api/workers/{rank}/pause", self._pause, methods=["POST"]),
            Route("/api/workers/{rank}/resume", self._resume, methods=["POST"]),
        ]
        self._router = Router(routes, redirect_slashes=False, default=_nothing_here, lifespan=self._life)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        started = False

        async def armoured(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", ()), *_RAW_HEADERS]}
            await send(message)

        try:
            self._admit(scope)
            await self._router(scope, receive, armoured)
        except Declined as declined:
            await _declined(declined)(scope, receive, armoured)
        except ClientDisconnect:
            return  # in the middle of its own request
        except Exception:
            _LOG.exception("a bug in the dashboard; the run is not touched by it")
            if started:
                raise
            await _declined(Declined(500, "the dashboard failed"))(scope, receive, armoured)

    def _admit(self, scope: Scope) -> None:
        head = [part for pair in scope["headers"] for part in pair]
        if sum(map(len, (scope["raw_path"], scope["query_string"], *head))) > self._limits.head_nbytes:
            raise Declined(431, f"a request of more than {self._limits.head_nbytes} bytes before its body")
        asked = Asked.parse(scope["method"], scope["path"], unmapped(scope["server"][0]), scope["headers"])
        check(asked, self._hosts)
        looks = (asked.path.startswith("/api/") or asked.path == "/metrics") and self._secret_for_all
        if not looks and asked.method != "POST" and not asked.path.startswith(PRIVATE):
            return
        client = scope["client"][0] if scope["client"] else ""
        match self._keeper.verdict(asked.headers.get("authorization"), client):
            case "missing":
                raise Declined(401, "the dashboard's secret is missing", _REMEDY, {"WWW-Authenticate": "Bearer"})
            case "wrong":
                raise Declined(401, "this is not the dashboard's secret", _REMEDY, {"WWW-Authenticate": "Bearer"})
            case "too often":
                wait_s = f"{self._limits.attempt_every_s:.0f}"
                raise Declined(
                    429, "too many wrong secrets from this address", f"wait {wait_s} s", {"Retry-After": wait_s}
                )

    @asynccontextmanager
    async def _life(self, _: object) -> AsyncIterator[None]:
        beat = asyncio.create_task(self.poller.beat())
        try:
            yield
        finally:
            beat.cancel()

    async def _page(self, request: Request) -> Response:
        data, kind = self._files[request.url.path]
        return Response(data, media_type=kind)

    async def _run(self, _: Request) -> Response:
        return _json(self.poller.seen.run)

    async def _workers(self, _: Request) -> Response:
        return _json(self.poller.seen.workers)

    async def _events(self, request: Request) -> Response:
        return _json(self.poller.seen.events_after(_after(request)))

    async def _metrics(self, _: Request) -> Response:
        return Response(exposition(self.poller.seen), headers={"Content-Type": CONTENT_TYPE})

    async def _points(self, _: Request) -> Response:
        return _json(Points(self.poller.history.points))

    async def _topology(self, _: Request) -> Response:
        return _json(self.poller.seen.topology)

    async def _stream(self, request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return _Stream(self.poller.looks(_after(request)), self._streams, self._limits.streams)

    async def _hosts_now(self, _: Request) -> Response:
        return _json(Hosts(self.poller.seen.hosts))

    async def _staleness(self, _: Request) -> Response:
        return _json(self.poller.history.staleness.view())

    async def _drain(self, request: Request) -> Response:
        rank, given = _rank(request), await self._given(request, DrainRequest)
        how = "expelled" if given.expel else "dismissed"
        return await self._obeyed(Dismiss(rank, _by(request, how), given.expel))

    async def _pause(self, request: Request) -> Response:
        rank, _ = _rank(request), await self._given(request, EmptyRequest)
        return await self._obeyed(Pause(rank, _by(request, "paused")))

    async def _resume(self, request: Request) -> Response:
        rank, _ = _rank(request), await self._given(request, EmptyRequest)
        return await self._obeyed(Pause(rank, _by(request, "resumed"), paused=False))

    async def _tune(self, request: Request) -> Response:
        given = await self._given(request, TuneRequest)
        return await self._obeyed(Tune(_by(request, "changed"), given.rate, given.slack))

    async def _drain_run(self, request: Request) -> Response:
        await self._given(request, EmptyRequest)
        return await self._obeyed(DrainRun(_by(request, "drained")))

    async def _checkpoint(self, request: Request) -> Response:
        await self._given(request, EmptyRequest)
        return await self._obeyed(CheckpointNow(_by(request, "asked for")))

    async def _given(self, request: Request, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(await _body(request, self._limits.body_nbytes), type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            expected = _EXPECTED[kind]
            raise Declined(400, f"a body that cannot be read: {str(error)[:200]}", expected) from None

    async def _obeyed(self, order: Order) -> Response:
        if self._orders >= self._limits.orders:
            raise Declined(503, "orders are under way already", "try again", {"Retry-After": "1"})
        self._orders += 1
        try:
            # Beside the loop: it waits for the supervisor's answer, and nobody else is to wait for that.
            said = await asyncio.to_thread(self._source.obeyed, order)
        except Misuse as error:
            raise Declined(409, f"{error.given}: expected {error.expected}"[:1000], error.remedy[:1000]) from None
        except NetworkError as error:
            raise Declined(503, str(error)[:1000]) from None
        finally:
            self._orders -= 1
        return _json(CommandAnswer(said))


class _Stream(StreamingResponse):
    """Server-sent events, for as long as the client takes them. ``open_streams``: those of all clients."""

    def __init__(self, messages: AsyncGenerator[bytes, None], open_streams: set[_Stream], most: int) -> None:
        super().__init__(messages, media_type="text/event-stream")
        self._messages, self._open, self._most = messages, open_streams, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if len(self._open) >= self._most:
            raise Declined(503, f"{len(self._open)} streams are open already", "close one", {"Retry-After": "5"})
        self._open.add(self)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._open.discard(self)
            await self._messages.aclose()


_EXPECTED: dict[type, str] = {
    EmptyRequest: "{}",
    DrainRequest: '{"expel": false}',
    TuneRequest: '{"rate": 0.5, "slack": 0.015625}, or one of them',
}
_REMEDY = "it is in the file dashboard-token of the run's folder; `taut dashboard RUN --link` makes a link with it"


def _by(request: Request, how: str) -> str:
    """Return the reason of an order: where it came from."""
    return f"{how} from the dashboard, by {request.client.host if request.client else 'somewhere'}"


def read_page(name: str) -> bytes:
    """Read a file of the page from the package."""
    return resources.files("taut.dashboard").joinpath("page", name).read_bytes()


def _json(record: msgspec.Struct, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(record), status, headers, media_type="application/json")


def _declined(declined: Declined) -> Response:
    return _json(Problem(declined.error, declined.remedy), declined.status, declined.headers)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:
    await _declined(Declined(404, "there is nothing at this path"))(scope, receive, send)


def _rank(request: Request) -> int:
    text = request.path_params["rank"]
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= _RANK):
        raise Declined(404, f"worker {text[:20]!r}", "its rank, a whole number")
    return int(text)


def _after(request: Request) -> int:
    text = request.query_params.get("after", "0")
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise Declined(400, f"after={text[:20]!r}", "the number of an event")
    return int(text)


async def _body(request: Request, limit_nbytes: int) -> bytes:
    """Read a request's body; never more than the limit is held, whatever the Content-Length says."""
    parts, nbytes = [], 0
    async for part in request.stream():
        nbytes += len(part)
        if nbytes > limit_nbytes:
            raise Declined(413, f"a body of more than {limit_nbytes} bytes")
        parts.append(part)
    return b"".join(parts)
