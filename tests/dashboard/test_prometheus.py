"""Figures for Prometheus: every line is of its format, whatever workers say; the example board asks for what there is."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from played import SETTINGS, Played, row, served, view

from taut.dashboard.prometheus import CONTENT_TYPE, exposition
from taut.dashboard.view_model import from_view

BOARD = Path(__file__).parents[2] / "deploy" / "grafana" / "taut.json"
LINE = re.compile(
    r'taut_[a-z_]+\{([a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+\} (-?[0-9.]+(e[+-]?[0-9]+)?)|# (HELP|TYPE) taut_[a-z_]+ .+'
)


@given(st.text(max_size=12), st.floats(), st.integers(0, 2**60))
def test_every_line_is_of_the_format(text: str, number: float, count: int) -> None:
    told = row(3, text, reason=text, loss=number, staleness=number, samples=count, compute_s=number)
    lines = exposition(from_view(view(told, text=text), SETTINGS, None, False)).decode().split("\n")
    assert lines.pop() == "", "it ends with a line break"
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert f'taut_samples_total{{run="quiet-otter",worker="3"}} {count}' in lines
    shown = any(line.startswith("taut_loss{") for line in lines)
    assert shown or not abs(number) < 1e30, "what is not finite is left out"
    assert not shown or math.isfinite(number)


def test_it_is_served_as_prometheus_asks(tmp_path: Path) -> None:
    with served(Played(view(row(0), row(1))), tmp_path) as client:
        answer = client.ask("/metrics")
        assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPE)
        assert b'taut_steps_total{run="quiet-otter",worker="1"} 10\n' in answer.body


def test_from_elsewhere_it_needs_the_secret(tmp_path: Path) -> None:
    with served(Played(view(row(0)), secret_for_all=True), tmp_path, bind="0.0.0.0") as client:
        assert client.ask("/metrics").status == 401
        assert client.ask("/metrics", **client.bearer).status == 200


def test_the_board_asks_for_what_there_is() -> None:
    board = json.loads(BOARD.read_text())
    there = set(re.findall(r"taut_[a-z_]+", exposition(from_view(view(row(0)), SETTINGS, None, False)).decode()))
    asked = set(re.findall(r"taut_[a-z_]+", json.dumps([board["panels"], board["templating"]])))
    assert asked and asked <= there
