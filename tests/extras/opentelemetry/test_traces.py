"""The real SDK and exporter of OpenTelemetry, and a collector that reads what they send: spans of a real run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

ROOT = Path(__file__).parents[3]
PARTS = {"compute", "encode", "send", "wait", "merge", "data"}


class Collector(ThreadingHTTPServer):
    """Takes spans over OTLP/HTTP; ``spans`` by the instance that sent them."""

    def __init__(self) -> None:
        self.spans: dict[str, list[Any]] = defaultdict(list)
        super().__init__(("127.0.0.1", 0), Post)


class Post(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        given = ExportTraceServiceRequest()
        given.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for one in given.resource_spans:
            names = {each.key: each.value.string_value for each in one.resource.attributes}
            assert names["service.name"] == "taut" and names["taut.run"] == "owl"
            for scope in one.scope_spans:
                self.server.spans[names["service.instance.id"]] += scope.spans
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def run(folder: Path, port: int, **environment: str) -> subprocess.CompletedProcess[str]:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "taut", "run", "-n", "2", "--name", "owl", "--report-to", "opentelemetry"]
    return subprocess.run(
        [*command, str(ROOT / "examples" / "digits.py"), "--epochs", "3"],
        check=False, cwd=folder, env={**os.environ, **endpoint, **environment}, capture_output=True, text=True,
        timeout=280,
    )  # fmt: skip


def ends(spans: list[Any], name: str) -> set[tuple[str, bytes, bytes]]:
    """Return by what the spans of this name are linked with their other ends."""
    return {
        (told.value.string_value, link.trace_id, link.span_id)
        for one in spans
        if one.name == name
        for told in one.attributes
        if told.key == "taut.message"
        for link in one.links
    }


@pytest.mark.timeout(300)
def test_each_step_is_a_trace_with_its_stretches_of_time_and_its_messages(tmp_path: Path, collector: Collector) -> None:
    done = run(tmp_path, collector.server_port)
    assert done.returncode == 0, done.stderr
    assert f"traces go to http://127.0.0.1:{collector.server_port}" in done.stderr
    with sqlite3.connect(tmp_path / "taut-runs" / "owl" / "run.sqlite") as store:
        made = dict(store.execute("select rank, max(steps) from statistic group by rank"))
    store.close()
    for rank in (0, 1):
        spans = collector.spans[f"worker-{rank}"]
        steps = [one for one in spans if one.name == "step"]
        assert len(steps) == made[rank]
        inside: dict[bytes, list[Any]] = defaultdict(list)
        for one in spans:
            if one.name != "step":
                inside[one.parent_span_id].append(one)
        for step in steps:
            parts = [one for one in inside[step.span_id] if one.name in PARTS]
            assert {"compute", "data"} <= {one.name for one in parts}
            assert {one.trace_id for one in inside[step.span_id]} <= {step.trace_id}
            assert min(one.start_time_unix_nano for one in parts) == step.start_time_unix_nano
            assert max(one.end_time_unix_nano for one in parts) == step.end_time_unix_nano
        messages = [one for one in spans if one.name.split()[0] in ("send", "receive") and " " in one.name]
        told = [{each.key: each.value.int_value for each in one.attributes} for one in messages]
        assert {"send Updates", "receive Updates"} <= {one.name for one in messages}
        assert all(each["taut.peer"] == 1 - rank and each["taut.bytes"] > 0 for each in told)
    sent, came = ends(collector.spans["worker-0"], "send Updates"), ends(collector.spans["worker-1"], "receive Updates")
    assert len(came) > 0 and len(came & sent) > 0.9 * len(came), "one that comes after the last step has no span"
    (whole,) = collector.spans["supervisor"]
    assert whole.name == "run" and "start" in [event.name for event in whole.events]


@pytest.mark.timeout(300)
def test_a_sampler_keeps_some_steps_and_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    done = run(
        tmp_path, 9, OTEL_TRACES_SAMPLER="traceidratio", OTEL_TRACES_SAMPLER_ARG="0.05", OTEL_EXPORTER_OTLP_TIMEOUT="1"
    )
    assert done.returncode == 0, done.stderr
