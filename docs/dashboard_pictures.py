"""Make the pictures of the dashboard: `python docs/dashboard_pictures.py` writes docs/img/dashboard*.png.

A real run of four workers of examples/digits.py goes on for half a minute; a real Chromium (Debian's) looks at it: light,
dark, and as wide as a phone.
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


def main() -> None:
    program = shutil.which("chromium")
    if program is None:
        raise SystemExit("error: no chromium here; try: apt-get install chromium")
    with tempfile.TemporaryDirectory() as name, Browser(program, Path(name) / "profile") as browser:
        folder = Path(name)
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
                shot = browser._call("Page.captureScreenshot", format="png")
                (IMAGES / f"{picture}.png").write_bytes(base64.b64decode(shot["data"]))
        finally:
            run.kill()
            run.wait()


if __name__ == "__main__":
    main()
