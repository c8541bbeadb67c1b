"""The page: small, whole, and it cannot be made to run what a worker says. With a browser where there is one."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from played import Played, row, served, until, view

from taut.core.messages import Statistics
from taut.dashboard.app import read_page
from taut.dashboard.records import PARTS
from taut.supervisor.control import Dismiss, DrainRun

SCRIPTS = (
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
OWN = ("index.html", "page.css", *SCRIPTS)
FILES = (*OWN, "uplot/uplot.js", "uplot/uplot.css")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_the_page_is_small() -> None:
    assert sum(len(read_page(name)) for name in OWN) < 64_000
    assert sum(len(read_page(name)) for name in FILES) < 120_000


@pytest.mark.parametrize(("late", "expected"), [((5, 4, 1), ["50%", "40%", "10%"]), ((), None)])
def test_the_staleness_of_updates_is_drawn_as_a_histogram(
    late: tuple[int, ...], expected: list[str] | None, tmp_path: Path, browser: Browser
) -> None:
    rows = [row(0, late=late), row(1, late=tuple(2 * count for count in late))]
    with served(Played(view(*rows)), tmp_path) as client:
        assert client.ask("/api/staleness").json["lines"] == (
            [] if not late else [[None, [0] * 3, [15, 12, 3]], [0, [0] * 3, [5, 4, 1]], [1, [0] * 3, [10, 8, 2]]]
        )
        browser.open(f"http://127.0.0.1:{client.port}/")
        browser.until("document.querySelectorAll('#workers tr').length == 2")
        if expected is None:
            assert browser.value("document.querySelector('#staleness').closest('figure').hidden")
        else:
            browser.until("document.querySelector('#staleness canvas') !== null")
            choose = "const chosen = document.querySelector('#staleof'); chosen.value = '1'"
            browser.value(f"{choose}; chosen.dispatchEvent(new Event('change'))")
            told = browser.value("document.querySelector('#staleness').getAttribute('aria-label')")
            assert "up to 1 steps 50.0%, up to 2 steps 40.0%, up to 3 steps 10.0%" in told


def test_nothing_comes_from_elsewhere() -> None:
    for name in FILES:
        text = read_page(name).decode()
        links = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)
        assert set(links) <= {
            "http://www.w3.org/2000/svg",  # the name of a language, not a link
            "//www.w3.org/2000/svg",
            "https://github.com/leeoniya/uPlot",  # in the library's first comment
        }


def test_no_text_becomes_a_program() -> None:
    """By construction: no way in the page's script makes markup or code of a text."""
    script = "".join(read_page(name).decode() for name in FILES if name.endswith(".js"))
    page = read_page("index.html").decode()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "srcdoc",
        "javascript:",
    ):
        assert way not in script + page
    assert not re.search(r"\son\w+\s*=", page), "no inline handlers"
    assert re.findall(r"<script([^>]*)>", page) == [' src="uplot/uplot.js"', ' type="module" src="page.js"'], (
        "no inline script"
    )
    assert "<style" not in page and "style=" not in page


def test_the_page_has_the_parts_of_the_records() -> None:
    told = re.search(r"PARTS = (\[[^]]*\])", read_page("charts.js").decode())
    assert told is not None
    assert tuple(json.loads(told[1])) == PARTS


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no chromium here")
    with Browser(program, tmp_path_factory.mktemp("browser")) as browser:
        if not browser.answers():
            pytest.skip("chromium does not start here")
        yield browser


def test_a_browser_shows_the_run_and_runs_nothing_of_it(browser: Browser, tmp_path: Path) -> None:
    rows = (row(0, "alpha"), row(1, EVIL, loss=float("nan")), row(2, "gone-host", state="gone", reason=EVIL))
    with served(Played(view(*rows, text=EVIL)), tmp_path) as client:
        browser.open(f"http://127.0.0.1:{client.port}/#secret={client.secret}")
        browser.until("document.querySelectorAll('#workers tr').length == 3")
        shown = browser.value("document.documentElement.outerHTML")
        texts = browser.value("[...document.querySelectorAll('#workers tr')].map(row => row.innerText).join('|')")
        assert EVIL in texts and "alpha" in texts
        assert "<img" not in shown and shown.count("<script") == 2
        assert browser.value("document.title") == "quiet-otter – taut", "nobody changed it"
        assert client.secret not in shown
        assert browser.value("location.hash") == "", "the secret leaves the address bar"
        # were there a hole in the page: the browser itself makes no markup of text, and runs no inline script
        for way in ("innerHTML = '<b>x</b>'", "setAttribute('onclick', 'document.title = 1')"):
            assert browser.value(f"try {{ document.body.{way}; 'made' }} catch (e) {{ e.name }}") == "TypeError"
        assert browser.value("document.title") == "quiet-otter – taut"


def test_a_page_of_another_site_can_neither_look_nor_steer(browser: Browser, tmp_path: Path) -> None:
    """In a real browser, from another origin, even one that has got hold of the secret."""
    source = Played(view(row(0), row(1)))
    elsewhere = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Blank)
    serving = threading.Thread(target=elsewhere.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        with served(source, tmp_path) as client:
            here = f"http://127.0.0.1:{client.port}"
            browser.open(f"http://localhost:{elsewhere.server_port}/")
            browser.until(f"location.port == '{elsewhere.server_port}' && document.readyState == 'complete'")
            drain, secret = f"{here}/api/workers/1/drain", json.dumps(f"Bearer {client.secret}")
            kinds = f"{{'Authorization': {secret}, 'Content-Type': 'application/json'}}"
            for attack in (
                f"fetch('{here}/api/run')",
                f"fetch('{here}/api/stream')",
                f"fetch('{here}/api/run', {{headers: {{'Authorization': {secret}}}}})",
                f"fetch('{drain}', {{method: 'POST', body: '{{}}'}})",
                f"fetch('{drain}', {{method: 'POST', body: '{{}}', headers: {kinds}}})",
            ):
                assert browser.promise(f"{attack}.then(answer => answer.text(), () => 'blocked')") == "blocked"
            silent = f"fetch('{drain}', {{method: 'POST', mode: 'no-cors', body: '{{}}'}})"
            assert browser.promise(f"{silent}.then(answer => answer.text(), () => 'blocked')") in ("", "blocked")
            assert source.orders == []
            assert client.drain(1).status == 200, "it would have been done"
    finally:
        elsewhere.shutdown()
        serving.join()
        elsewhere.server_close()


class _Blank(http.server.BaseHTTPRequestHandler):
    timeout = 1.0  # browsers connect ahead of need

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>elsewhere</title>")

    def log_message(self, *_: object) -> None:
        pass


def test_a_browser_drains_a_worker(browser: Browser, tmp_path: Path) -> None:
    """Pressed, confirmed, with the secret pasted; a wrong one is forgotten and asked for again."""
    source = Played(view(row(0), row(1)))
    with served(source, tmp_path) as client:
        browser.open(f"http://127.0.0.1:{client.port}/")
        press = "document.querySelector('[data-rank=\"1\"][data-order=drain]').click()"
        go_on = "document.querySelector('#ask [type=submit]').click()"
        browser.until("document.querySelectorAll('#workers tr').length == 2")
        for secret, told in (("wrong", "not the dashboard's secret"), (client.secret, "worker 1 is told to go")):
            browser.value(press)
            assert browser.value("document.querySelector('#ask').open && !document.querySelector('#field').hidden")
            assert source.orders == []
            browser.value(f"document.querySelector('#secret').value = {json.dumps(secret)}; {go_on}")
            browser.until(f"document.querySelector('#notice').innerText.includes({json.dumps(told)})")
        assert source.orders == [Dismiss(1, "dismissed from the dashboard, by 127.0.0.1")]
        assert browser.value("document.cookie + localStorage.length") == "0"


def test_a_browser_asks_for_the_secret_where_looking_needs_it(browser: Browser, tmp_path: Path) -> None:
    with served(Played(view(row(0)), secret_for_all=True), tmp_path, bind="0.0.0.0") as client:
        browser.open(f"http://127.0.0.1:{client.port}/")
        browser.until("document.querySelector('#ask')?.open")
        assert browser.value("document.title") == "taut", "nothing was told"
        enter = f"document.querySelector('#secret').value = {json.dumps(client.secret)};"
        browser.value(f"{enter} document.querySelector('#ask [type=submit]').click()")
        browser.until("document.querySelectorAll('#workers tr').length == 1")


def moved(told: Statistics) -> dict[str, float]:
    """A worker's statistics a second later."""
    return {name: getattr(told, name) + more for name, more in MORE.items()}


MORE = {"steps": 10, "samples": 640, "wall_s": 1.0, "compute_s": 0.75, "wait_s": 0.25, "bytes_sent": 1000}


def test_a_browser_draws_the_curves_the_graph_and_the_pass(browser: Browser, tmp_path: Path) -> None:
    source = Played(view(row(0), row(1), row(2)))
    with served(source, tmp_path, every_s=0.05) as client:
        browser.open(f"http://127.0.0.1:{client.port}/")
        browser.until("document.querySelectorAll('#workers tr').length == 3")
        rows = source.view.workers
        for second in range(1, 4):
            rows = tuple(row(each.rank, **moved(each.statistics)) for each in rows)
            source.view = view(*rows, wall_s=3.0 + second)
            looks = source.looks
            until(lambda before=looks: source.looks > before + 1, "a look")
        browser.until("document.querySelector('#throughput').getAttribute('aria-label').includes('worker 2 640')")
        told = browser.value("document.querySelector('#split').getAttribute('aria-label')")
        assert "compute 75%" in told and "wait 25%" in told
        assert browser.value("document.querySelectorAll('#graph circle').length") == 3
        assert browser.value("document.querySelectorAll('#graph line').length") == 3
        assert browser.value("document.querySelector('#done').value") == 0.5
        browser.value("document.querySelector('#log').click(); document.querySelector('#perworker').click()")
        browser.until("!document.querySelector('#throughput').getAttribute('aria-label').includes('worker 2')")
        source.view = view(row(0), row(1), row(2, state="gone"), wall_s=source.view.wall_s + 1.0)
        browser.until("document.querySelectorAll('#graph circle').length == 2")
        browser.value("document.querySelector('#about').open = true")
        browser.until("document.querySelector('#settings').innerText.includes('model.pt')")
        browser.value(
            "const f = document.querySelector('#filter'); f.value = 'nothing'; f.dispatchEvent(new Event('input'))"
        )
        assert browser.value("[...document.querySelectorAll('#events li')].every(line => line.hidden)")


def test_a_browser_ends_the_run(browser: Browser, tmp_path: Path) -> None:
    source = Played(view(row(0), row(1)))
    with served(source, tmp_path) as client:
        browser.open(f"http://127.0.0.1:{client.port}/#secret={client.secret}")
        browser.until("document.querySelectorAll('#workers tr').length == 2")
        browser.value("document.querySelector('#end').click(); document.querySelector('#ask [type=submit]').click()")
        browser.until("document.querySelector('#notice').innerText.includes('it is done')")
        assert source.orders == [DrainRun("drained from the dashboard, by 127.0.0.1")]


def test_a_page_that_is_paused_stands_still(browser: Browser, tmp_path: Path) -> None:
    source = Played(view(row(0), row(1)))
    with served(source, tmp_path) as client:
        browser.open(f"http://127.0.0.1:{client.port}/")
        browser.until("document.querySelectorAll('#workers tr').length == 2")
        browser.value("document.querySelector('#pause').click()")
        source.view = view(row(0), wall_s=9.0)
        looks = source.looks
        until(lambda: source.looks > looks + 5, "some more looks")
        assert browser.value("document.querySelectorAll('#workers tr').length") == 2
        browser.value("document.querySelector('#pause').click()")
        browser.until("document.querySelectorAll('#workers tr').length == 1")
