"""A real Prometheus (Debian's) scrapes a dashboard, by the example's configuration, and answers the board's questions."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "tests" / "dashboard"))
from played import Played, row, served, until, view  # noqa: E402

GRAFANA = ROOT / "deploy" / "grafana"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def test_prometheus_has_the_figures_of_the_run(tmp_path: Path) -> None:
    program = shutil.which("prometheus")
    assert program is not None, "make test-prometheus installs it"
    source, port = Played(view(row(0, late=(4, 2)), row(1, loss=0.25, late=(1, 0, 3)))), free_port()

    def asked(query: str) -> list[Any]:
        address = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: list[Any] = json.load(answer)["data"]["result"]
                return found
        except OSError:
            return []  # it is not up yet

    with served(source, tmp_path) as client:
        config = (GRAFANA / "prometheus.yml").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{client.port}")
        (tmp_path / "prometheus.yml").write_text(config.replace("5s", "1s"))
        process = subprocess.Popen(
            [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until(lambda: len(asked("taut_loss")) == 2, "a scrape", 60.0)
            losses = {each["metric"]["worker"]: float(each["value"][1]) for each in asked("taut_loss")}
            assert losses == {"0": 0.5, "1": 0.25}
            until(lambda: asked("rate(taut_samples_total[30s])") != [], "two scrapes", 60.0)
            board = json.loads((GRAFANA / "taut.json").read_text())
            (variable,) = [one for one in board["templating"]["list"] if one["type"] == "query"]
            metric, label = variable["query"]["query"].removeprefix("label_values(").rstrip(")").split(", ")
            assert [each["metric"][label] for each in asked(metric)] == ["quiet-otter"]
            for panel in board["panels"]:
                assert panel["datasource"]["uid"] == "${source}"
                for target in panel["targets"]:
                    query = target["expr"].replace("$run", "quiet-otter")
                    found = asked(query)
                    assert found, f"{panel['title']}: {query}"
                    names = re.findall(r"{{(\w+)}}", target["legendFormat"])  # the labels that a curve is named by
                    assert all(name in each["metric"] for each in found for name in names), (panel["title"], found)
        finally:
            process.terminate()
            process.wait()
