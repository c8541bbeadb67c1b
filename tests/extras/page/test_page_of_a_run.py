"""The page in a real Chromium beside a real run of four workers: what it shows is what the store has, and axe-core finds
nothing wrong. `make test-page` fetches Chromium and axe-core."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "dashboard"))

from browser import Browser  # noqa: E402
from played import Client, until  # noqa: E402

from taut.dashboard.secret import read_secret  # noqa: E402
from taut.dashboard.server import ADDRESS_FILE  # noqa: E402
from taut.supervisor.storage.store_reader import load_run  # noqa: E402

AXE = ROOT / ".venv" / "axe" / "package" / "axe.min.js"
LISTEN = """
window.wrong = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
  addEventListener(kind, (event) => window.wrong.push(`${kind}: ${event.message ?? event.blockedURI ?? event.reason}`));
for (const level of ["error", "warn"]) console[level] = (...told) => window.wrong.push(told.join(" "));
"""
FOUND = """axe.run(document).then((found) => JSON.stringify(found.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => [one.id, one.nodes.map((node) => node.html)])))"""
GOES_ON = 600.0  # seconds; the run is ended by the page


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium")
    assert program is not None, "make test-page installs it"
    with Browser(program, tmp_path / "browser") as browser:
        assert browser.answers()
        browser._call("Page.enable")
        browser._call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        yield browser


@pytest.mark.timeout(GOES_ON)
def test_the_page_beside_a_run_of_four_workers(browser: Browser, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "taut",
        "run",
        "-n",
        "4",
        "--name",
        "owl",
        "--dashboard",
        "--checkpoint-every",
        "1000epochs",
    ]
    script = [str(ROOT / "examples" / "digits.py"), "--epochs", "100000"]
    run = subprocess.Popen([*command, *script], cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        folders = tmp_path / "taut-runs"
        until(lambda: any(folders.glob(f"*/{ADDRESS_FILE}")), "the server", GOES_ON)
        folder = next(folders.glob(f"*/{ADDRESS_FILE}")).parent
        found, secret = json.loads((folder / ADDRESS_FILE).read_text()), read_secret(folder)
        assert secret is not None
        client = Client("127.0.0.1", found["port"], secret)
        browser.open(f"{found['url']}#secret={secret}")

        browser.patience_s = 180.0  # four workers start, on a machine that may be busy
        browser.until("document.querySelectorAll('#workers tr').length == 4")
        browser.until("document.querySelector('#throughput').getAttribute('aria-label').includes('worker 3 ')")
        browser.until("[...document.querySelectorAll('#workers tr')].every((row) => row.cells[3].textContent !== '0')")
        _values_are_those_of_the_api(browser, client)
        _a_worker_pauses_and_goes_on(browser, client)
        _rates_and_slack_change(browser, client)
        _hosts_are_shown(browser, client)
        _runs_are_compared(browser, folder.name)
        _nobody_is_shut_out(browser)

        victim = client.ask("/api/workers").json["workers"][2]
        os.kill(victim["pid"], signal.SIGKILL)
        browser.until("document.querySelector('[data-rank=\"2\"]').closest('tr').cells[2].className.includes('bad')")
        browser.until("document.querySelectorAll('#graph circle').length == 3")

        browser.value(f"document.querySelector('#checkpoint').click(); {GO_ON}")
        browser.until("document.querySelector('#events').innerText.includes('asked for from the dashboard')")
        browser.value(f"document.querySelector('[data-rank=\"3\"][data-order=drain]').click(); {GO_ON}")
        browser.until("document.querySelectorAll('#graph circle').length == 2")
        elsewhere = (
            "performance.getEntriesByType('resource').filter(one => new URL(one.name).hostname != '127.0.0.1').length"
        )
        assert browser.value(elsewhere) == 0, "nothing leaves the machine"
        browser.value(f"document.querySelector('#end').click(); {GO_ON}")
        assert run.wait(GOES_ON) == 0
        assert browser.value("window.wrong") == []
        told = " ".join(event.text for event in load_run(folders, folder.name).events)
        for order in ("dismissed", "drained", "asked for", "paused", "resumed", "changed"):
            assert f"{order} from the dashboard, by 127.0.0.1" in told
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()


def _values_are_those_of_the_api(browser: Browser, client: Client) -> None:
    """The page is at most a look behind: what it shows lies between two answers."""
    browser.value("document.querySelector('#pause').click()")  # the page stands still
    shown = browser.value("[...document.querySelectorAll('#workers tr')].map(row => row.cells[3].textContent)")
    after = client.ask("/api/workers").json["workers"]
    browser.value("document.querySelector('#pause').click()")
    for steps, line in zip(shown, after, strict=True):
        assert 0 < int(steps.replace(",", "")) <= line["steps"]
    assert [line["host"] for line in after] == browser.value(
        "[...document.querySelectorAll('#workers tr')].map(row => row.cells[1].textContent)"
    )


GO_ON = "document.querySelector('#ask [type=submit]').click()"


def _a_worker_pauses_and_goes_on(browser: Browser, client: Client) -> None:
    def worker() -> dict[str, Any]:
        return next(one for one in client.ask("/api/workers").json["workers"] if one["rank"] == 1)

    browser.value(f"document.querySelector('[data-rank=\"1\"][data-order=pause]').click(); {GO_ON}")
    browser.until("document.querySelectorAll('#workers tr')[1].cells[2].textContent == 'paused'")
    assert worker()["paused"]
    browser.value(f"document.querySelector('[data-rank=\"1\"][data-order=resume]').click(); {GO_ON}")
    browser.until("document.querySelectorAll('#workers tr')[1].cells[2].textContent == 'training'")
    stood = worker()["steps"]
    until(lambda: worker()["steps"] > stood, "steps of the worker that goes on", GOES_ON)


def _rates_and_slack_change(browser: Browser, client: Client) -> None:
    browser.value(
        "document.querySelector('#tune').click(); document.querySelector('#rate').value = '0.5';"
        f"document.querySelector('#slack').value = String(2 ** -5); {GO_ON}"
    )
    browser.until("document.querySelector('#figures').innerText.includes('learning rates')")
    run = client.ask("/api/run").json
    assert (run["rate"], run["slack"]) == (0.5, 2**-5)


def _hosts_are_shown(browser: Browser, client: Client) -> None:
    browser.until("document.querySelector('#hosts tr').cells[2].textContent.includes('% of')")
    (host,) = client.ask("/api/hosts").json["hosts"]
    assert host["ranks"] == [0, 1, 2, 3] and 0.0 <= host["processor"] <= 1.0
    with open("/proc/meminfo") as told:
        assert f"{host['memory_total'] // 1024} kB" in told.readline()


def _runs_are_compared(browser: Browser, name: str) -> None:
    browser.value("document.querySelector('#others').open = true")
    browser.until("document.querySelectorAll('#runs input').length == 1")
    browser.value("document.querySelector('#runs input').click()")
    browser.until("document.querySelector('#otherloss').getAttribute('aria-label')?.includes('owl')")
    assert name in browser.value("document.querySelector('#sidebyside').innerText")
    browser.value("document.querySelector('#against').value = 'samples'")
    browser.value("document.querySelector('#against').dispatchEvent(new Event('change')); 1")


def _nobody_is_shut_out(browser: Browser) -> None:
    browser.value(AXE.read_text() + "; 1")
    for width, scheme in ((1920, "light"), (1920, "dark"), (360, "dark"), (360, "light")):
        browser._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        mobile = width < 500
        browser._call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        assert json.loads(browser.promise(FOUND)) == []
        assert browser.value("document.documentElement.scrollWidth") <= width, "nothing sticks out"
