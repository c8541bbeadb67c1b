"""The page: small, whole, and it cannot be made to run what a worker says. With a browser where there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from played import Played, row, served, view

from taut.dashboard.app import read_page

FILES = ("index.html", "page.css", "page.js")
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_the_page_is_small() -> None:
    assert sum(len(read_page(name)) for name in FILES) < 30_000


def test_nothing_comes_from_elsewhere() -> None:
    for name in FILES:
        text = read_page(name).decode()
        links = re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"']*", text)
        assert set(links) <= {"http://www.w3.org/2000/svg", "//www.w3.org/2000/svg"}, "the name of a language, not a link"


def test_no_text_becomes_a_program() -> None:
    """By construction: no way in the page's script makes markup or code of a text."""
    script, page = read_page("page.js").decode(), read_page("index.html").decode()
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
    assert re.findall(r"<script([^>]*)>", page) == [' type="module" src="page.js"'], "no inline script"
    assert "<style" not in page and "style=" not in page


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no chromium here")
    return found


def test_a_browser_shows_the_run_and_runs_nothing_of_it(tmp_path: Path) -> None:
    browser = chromium()
    rows = (row(0, "alpha"), row(1, EVIL, loss=float("nan")), row(2, "gone-host", state="gone", reason=EVIL))
    with served(Played(view(*rows, text=EVIL)), tmp_path) as client:
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync"
        done = subprocess.run(
            [
                *(browser, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000"),
                *("--dump-dom", f"http://127.0.0.1:{client.port}/#secret={client.secret}"),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    shown = done.stdout
    if not shown.strip():
        pytest.skip(f"the browser did not start: {done.stderr[-300:]}")
    assert "<title>quiet-otter – taut</title>" in shown, "the page worked, and nobody changed its title"
    escaped = EVIL.replace("<", "&lt;").replace(">", "&gt;")
    assert f'<td class="text">{escaped}</td>' in shown
    assert f'<td class="text">gone: {escaped}</td>' in shown
    assert shown.count(escaped) == 4, "twice among the workers, twice among the events"
    assert "<img" not in shown and shown.count("<script") == 1
    assert "alpha" in shown and 'aria-label="Drain worker 0"' in shown
    assert client.secret not in shown
