"""Make the pictures of the dashboard: `python docs/dashboard_pictures.py` writes docs/img/dashboard*.png.

A real run of four workers of examples/digits.py goes on for half a minute, beside two that are over; a real Chromium
(Debian's) looks at it: light, dark, as wide as a phone, and with the runs side by side.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests" / "dashboard"))

from browser import Browser  # noqa: E402
from played import until  # noqa: E402

from taut.dashboard.server import ADDRESS_FILE  # noqa: E402

IMAGES = Path(__file__).parent / "img"
PICTURES = {
    "dashboard": (1280, 1360, "light"),
    "dashboard-dark": (1280, 1360, "dark"),
    "dashboard-phone": (390, 1500, "light"),
}
POINTS = 30  # seconds
OTHERS = {"calm-heron": "sync", "brave-lynx": "averaging:every=8"}
COMPARED = "dashboard-compare"


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("error: no chromium here; try: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, Browser(program, Path(name) / "profile") as browser:
        folder = Path(name)
        for other, strategy in OTHERS.items():
            once = [sys.executable, "-m", "taut", "run", "-n", "4", "--name", other, "--strategy", strategy, "--quiet"]
            subprocess.run([*once, str(ROOT / "examples" / "digits.py"), "--epochs", "60"], cwd=folder, check=True)
        command = [sys.executable, "-m", "taut", "run", "-n", "4", "--name", "quiet-otter", "--dashboard", "--quiet"]
        run = subprocess.Popen([*command, str(ROOT / "examples" / "digits.py"), "--epochs", "100000"], cwd=folder)
        try:
            address = folder / "taut-runs" / "quiet-otter" / ADDRESS_FILE
            until(address.exists, "the server", 60.0)
            if not browser.answers():
                raise SystemExit("error: chromium does not start")
            browser.patience_s = 120.0
            browser.open(json.loads(address.read_text())["url"])
            browser.until("document.querySelectorAll('#workers tr').length == 4")
            browser.until(f"Number(document.querySelector('#figures b').textContent.split(':').pop()) > {POINTS}")
            for picture, (width, height, scheme) in PICTURES.items():
                feature = [{"name": "prefers-color-scheme", "value": scheme}]
                browser._call("Emulation.setEmulatedMedia", features=feature)
                sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
                browser._call("Emulation.setDeviceMetricsOverride", **sizes)
                browser.promise("new Promise((done) => setTimeout(done, 1500))")  # two looks
                shoot(browser, picture)
            compare(browser)
        finally:
            run.kill()
            run.wait()


def shoot(browser: Browser, picture: str, **clip: float) -> None:
    options = {"clip": {**clip, "scale": 1}, "captureBeyondViewport": True} if clip else {}
    shot = browser._call("Page.captureScreenshot", format="png", **options)
    (IMAGES / f"{picture}.png").write_bytes(base64.b64decode(shot["data"]))


def compare(browser: Browser) -> None:
    """Choose all runs of the folder, and take a picture of that part of the page."""
    browser._call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    browser.value("document.querySelector('#others').open = true")
    browser.until(f"document.querySelectorAll('#runs input').length == {len(OTHERS) + 1}")
    browser.value("document.querySelectorAll('#runs input').forEach(box => box.click())")
    browser.until(f"document.querySelectorAll('#sidebyside tr').length == {len(OTHERS) + 1}")
    browser.promise("new Promise((done) => setTimeout(done, 500))")
    place = json.loads(browser.value("JSON.stringify(document.querySelector('#others').getBoundingClientRect())"))
    down = browser.value("window.scrollY")
    shoot(browser, COMPARED, x=0, y=place["y"] + down - 8, width=1280, height=place["height"] + 16)


if __name__ == "__main__":
    main()
