"""Attacks on a real server by a real client: each of them fails."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from played import Client, Played, row, served, view

from taut.dashboard.guard import HEADERS
from taut.dashboard.limits import Limits
from taut.dashboard.records import About, CommandAnswer, Events, Problem, RunLine, TopologyMap, Workers
from taut.supervisor.control import CheckpointNow, Dismiss, DrainRun, Pause, Tune
from taut.transport.keys import RunKeys

TOKEN = RunKeys(b"p" * 40, b"s" * 40, b"j" * 32).token  # of workers
SCRIPT = "<script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def source() -> Played:
    return Played(view(row(0), row(1, SCRIPT, reason=SCRIPT), text=SCRIPT))


@pytest.fixture(scope="module")
def client(source: Played, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with served(source, tmp_path_factory.mktemp("run")) as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_was_done(source: Played) -> None:
    source.orders.clear()


def test_the_api_has_its_schemas(client: Client, source: Played) -> None:
    assert msgspec.json.decode(client.ask("/api/run").body, type=RunLine).run == "quiet-otter"
    assert msgspec.json.decode(client.ask("/api/workers").body, type=Workers).total == 2
    assert msgspec.json.decode(client.ask("/api/events?after=1").body, type=Events).events[0].number == 2
    answer = client.drain(1)
    assert (answer.status, msgspec.json.decode(answer.body, type=CommandAnswer).said) == (200, "worker 1 is told to go")
    client.drain(0, b'{"expel": true}')
    assert source.orders == [
        Dismiss(1, "dismissed from the dashboard, by 127.0.0.1", False),
        Dismiss(0, "expelled from the dashboard, by 127.0.0.1", True),
    ]
    refused = client.drain(9)
    assert (refused.status, refused.json["error"]) == (409, "worker 9: expected a worker of this run: 0, 1")


def test_the_graph_the_settings_and_the_orders_to_the_run(client: Client, source: Played) -> None:
    graph = msgspec.json.decode(client.ask("/api/topology").body, type=TopologyMap)
    assert ([spot.rank for spot in graph.spots], graph.edges) == ([0, 1], ((0, 1),))
    assert msgspec.json.decode(client.ask("/api/settings").body, type=About) == source.about()
    assert client.order("/api/drain").json == {"said": "it is done"}
    assert client.order("/api/checkpoint").status == 200
    assert source.orders == [
        DrainRun("drained from the dashboard, by 127.0.0.1"),
        CheckpointNow("asked for from the dashboard, by 127.0.0.1"),
    ]
    source.orders.clear()
    assert client.order("/api/workers/1/pause").status == client.order("/api/workers/1/resume").status == 200
    assert client.order("/api/tune", b'{"rate": 0.5}').status == 200
    assert source.orders == [
        Pause(1, "paused from the dashboard, by 127.0.0.1"),
        Pause(1, "resumed from the dashboard, by 127.0.0.1", paused=False),
        Tune("changed from the dashboard, by 127.0.0.1", rate=0.5),
    ]
    for path in ("/api/drain", "/api/checkpoint", "/api/tune", "/api/workers/1/pause", "/api/workers/1/resume"):
        assert client.order(path, Authorization="").status == 401
        assert client.order(path, b'{"expel": true}').status == 400, "what is not known is not passed over"
        assert client.ask(path).status == 405
    assert len(source.orders) == 3


@pytest.mark.parametrize(
    "path",
    ["/", "/page.js", "/uplot/uplot.js", "/api/run", "/api/events", "/nothing", "/api/drain", "/api/workers/1/drain"],
)
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_every_answer_has_the_headers(client: Client, path: str, host: str) -> None:
    """Also those that refuse."""
    answer = client.ask(path, Host=f"{host}:{client.port}")
    for name, value in HEADERS.items():
        assert answer.headers[name.lower()] == value
    named = set(answer.headers)
    assert not [name for name in named if name.startswith("access-control")], "no other origin may read"
    assert not named & {"set-cookie", "server", "location", "x-powered-by"}
    if answer.status not in (200, 405):
        msgspec.json.decode(answer.body, type=Problem)


def test_dns_rebinding(client: Client, source: Played) -> None:
    """The victim's browser believes that evil.example is at 127.0.0.1, and that the page is of the same origin."""
    evil = f"evil.example:{client.port}"
    for path in ("/", "/page.js", "/api/run", "/api/workers", "/api/events", "/api/stream"):
        answer = client.ask(path, Host=evil, Sec_Fetch_Site="same-origin", Origin=f"http://{evil}")
        assert answer.status == 421
        assert b"quiet-otter" not in answer.body
    answer = client.drain(1, Host=evil, Origin=f"http://{evil}")
    assert (answer.status, source.orders) == (421, [])


def test_a_request_without_a_host_is_not_heard(client: Client) -> None:
    with socket.create_connection((client.host, client.port), timeout=10) as raw:
        raw.sendall(b"GET /api/run HTTP/1.0\r\n\r\n")
        assert b" 421 " in raw.makefile("rb").readline()


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1"])
def test_cross_site_requests_do_nothing(client: Client, source: Played, origin: str) -> None:
    """Even with the secret: nobody else's page may use it."""
    assert client.drain(1, Origin=origin).status == 403
    assert client.drain(1, Origin=origin, Sec_Fetch_Site="cross-site").status == 403
    assert client.drain(1, Origin="", Sec_Fetch_Site="cross-site").status == 403
    assert client.ask("/api/run", Origin=origin).status == 403
    assert source.orders == []


def test_what_a_form_can_send_does_nothing(client: Client, source: Played) -> None:
    """What a page can post elsewhere without asking first: no own headers, one of three types."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        for origin in (f"http://{client.host}:{client.port}", "http://evil.example", ""):
            answer = client.drain(1, Content_Type=kind, Origin=origin, Authorization="", Sec_Fetch_Site="")
            assert answer.status in (403, 415)
    assert source.orders == []


def test_no_other_site_gets_permission(client: Client) -> None:
    """The question that browsers ask before a request with headers of its own (CORS preflight)."""
    answer = client.ask(
        "/api/workers/1/drain",
        "OPTIONS",
        Origin="http://evil.example",
        Access_Control_Request_Method="POST",
        Access_Control_Request_Headers="authorization,content-type",
    )
    assert answer.status == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer wrong", "Basic dGF1dDp0YXV0", f"Bearer {TOKEN}"])
def test_steering_needs_the_secret_on_this_machine_too(client: Client, source: Played, authorization: str) -> None:
    """Another user can connect to 127.0.0.1. The workers' token is no such secret."""
    answer = client.drain(1, Authorization=authorization)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert client.secret not in answer.body.decode()
    assert source.orders == []


def test_the_secret_counts_in_its_header_alone(client: Client, source: Played) -> None:
    """Not in a URL, which is logged and kept; not in a cookie, which browsers attach by themselves."""
    for elsewhere in (f"/api/workers/1/drain?secret={client.secret}", f"/api/workers/1/drain?token={client.secret}"):
        kinds = {"Content_Type": "application/json", "Cookie": f"secret={client.secret}"}
        assert client.ask(elsewhere, "POST", b"{}", **kinds).status == 401
    assert source.orders == []


def test_from_elsewhere_looking_needs_the_secret_too(source: Played, tmp_path: Path) -> None:
    """Bound to all addresses; that this client comes by 127.0.0.1 gives it no more."""
    with served(source, tmp_path, bind="0.0.0.0") as client:
        for path in ("/api/run", "/api/workers", "/api/events", "/api/stream", "/api/workers/1/drain"):
            assert client.ask(path).status == 401
        assert client.ask("/api/run", Authorization="Bearer wrong").status == 401
        assert client.send("/api/run", "GET", client.bearer).json["run"] == "quiet-otter"
        for path in ("/", "/page.js", "/page.css"):  # to have somewhere to enter it
            page = client.ask(path)
            assert page.status == 200
            assert b"quiet-otter" not in page.body
        assert client.send("/api/run", "GET", {**client.bearer, "Host": "evil.example"}).status == 421


def test_wrong_secrets_are_few(source: Played, tmp_path: Path) -> None:
    with served(source, tmp_path, limits=Limits(attempts=3, attempt_every_s=1000.0)) as client:
        said = [client.drain(1, Authorization="Bearer wrong").status for _ in range(5)]
        assert said == [401, 401, 401, 429, 429]
        late = client.drain(1)
        assert (late.status, late.headers["retry-after"]) == (429, "1000")
        assert client.ask("/api/run").status == 200, "looking is not held up"
        headers = {"Content-Type": "application/json", **client.bearer}
        other = client.send("/api/workers/1/drain", "POST", headers, b"{}", source="127.0.0.2")
        assert other.status == 200, "nor is somebody at another address"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"expel": 1}', b'{"expel": false, "x": 1}', b"null", b"\xff", b"[" * 4000]
)
def test_a_body_is_what_it_should_be(client: Client, source: Played, body: bytes) -> None:
    assert client.drain(1, body).status == 400
    assert source.orders == []


@pytest.mark.parametrize("rank", ["x", "-1", "1.0", "9" * 10, "9" * 400, "%31%00", "1/../2", "²"])
def test_a_rank_is_a_number(client: Client, source: Played, rank: str) -> None:
    path = f"/api/workers/{rank.replace('²', '%C2%B2')}/drain"
    headers = {"Content-Type": "application/json", **client.bearer}
    assert client.send(path, "POST", headers, b"{}").status == 404
    assert source.orders == []


def test_large_requests_are_refused(client: Client, source: Played) -> None:
    limits = Limits()
    assert client.drain(1, b" " * (limits.body_nbytes + 1)).status == 413
    chunks = b"".join(b"800\r\n" + b" " * 0x800 + b"\r\n" for _ in range(4)) + b"0\r\n\r\n"
    assert client.drain(1, chunks, Transfer_Encoding="chunked").status == 413
    assert client.ask("/api/run", X=("x" * (limits.head_nbytes + 1))).status == 431
    assert client.ask("/api/run?" + "x" * (limits.head_nbytes + 1)).status == 431
    assert client.ask("/api/run").status == 200
    assert source.orders == []


@pytest.mark.parametrize("after", ["-1", "x", "1e3", "9" * 30, "%00", "²"])
def test_after_is_a_number(client: Client, after: str) -> None:
    assert client.ask(f"/api/events?after={after.replace('²', '%C2%B2')}").status == 400
    assert client.ask(f"/api/stream?after={after.replace('²', '%C2%B2')}").status == 400


def test_names_from_the_network_stay_text(client: Client) -> None:
    """A worker whose host is called <script>: JSON that no browser takes for a page."""
    for path in ("/api/workers", "/api/events"):
        answer = client.ask(path)
        assert answer.headers["content-type"] == "application/json"
        assert (
            SCRIPT
            in (answer.json.get("workers") or answer.json["events"])[-1][{"/api/workers": "host"}.get(path, "text")]
        )
    policy = client.ask("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert SCRIPT.encode() not in client.ask("/").body


def test_a_browser_like_client_is_served(client: Client) -> None:
    """httpx, as a second opinion on the protocol: no redirect, no cookie, the right types."""
    with httpx.Client(base_url=f"http://localhost:{client.port}", trust_env=False) as browser:
        for path, kind in (("/", "text/html"), ("/page.js", "text/javascript"), ("/page.css", "text/css")):
            answer = browser.get(path, headers={"Sec-Fetch-Site": "same-origin"})
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(kind)
        assert not browser.cookies
        assert browser.head("/api/run").status_code == browser.head("/api/stream").status_code == 200


def test_over_ipv6(source: Played, tmp_path: Path) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no address ::1 here")
    with served(source, tmp_path, bind="::1") as client:
        six = Client("::1", client.port, client.secret)
        for host, status in (("[::1]", 200), ("localhost", 200), ("[::2]", 421), ("::1", 421)):
            assert six.ask("/api/run", Host=f"{host}:{client.port}").status == status
