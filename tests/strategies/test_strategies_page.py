"""The page of strategies names every one, with what it exchanges and what becomes of the moments."""

from __future__ import annotations

import re
from pathlib import Path

from taut.strategies import REGISTRY, parse

PAGE = (Path(__file__).parents[2] / "docs" / "strategies.md").read_text(encoding="utf-8")
ROWS = {match[1]: match[0] for match in re.finditer(r"^\| `([a-z0-9]+)[`:].*$", PAGE, re.MULTILINE)}


def test_every_strategy_has_its_row() -> None:
    assert set(REGISTRY) - {"relay"} <= set(ROWS)  # the relay is async's own, and has its row as such
    assert "(`relay`)" in PAGE


def test_the_page_is_right_about_how_replicas_end() -> None:
    for name in (name for name in REGISTRY if parse(name).is_method):
        if name in ROWS:
            says = "equal bits" in ROWS[name]
            assert says == parse(name).kind.consensus, name
