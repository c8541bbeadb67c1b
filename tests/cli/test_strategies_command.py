"""``taut strategies --matrix``: all pairs, within 80 columns, with the reason that refuses a pair."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from taut.cli.commands.strategies import codec_pairs, matrix_text
from taut.cli.main import app
from taut.errors import Misuse
from taut.plugins import CODECS
from taut.strategies import REGISTRY
from taut.strategies.compatibility import combine


def test_the_matrix_shows_every_pair_within_80_columns() -> None:
    text = matrix_text(codec_pairs(), 80)
    assert max(map(len, text.splitlines())) <= 80
    for name in REGISTRY:
        row = next(line for line in text.splitlines() if line.startswith(name + " "))
        assert len(row.split()) == 1 + len(CODECS)
    assert "averaging, diloco, dynamic, fedavg, sparseloco: dgc, demo: it adds momentum" in text


def test_a_pair_is_refused_for_the_reason_that_the_matrix_shows() -> None:
    shown = json.loads(CliRunner().invoke(app, ["strategies", "--matrix", "--json"]).stdout)["pairs"]
    assert len(shown) == len(REGISTRY) * len(CODECS)
    for pair in shown:
        if not pair["why_not"]:
            combine(pair["strategy"], codec=pair["codec"])
            continue
        with pytest.raises(Misuse) as refused:
            combine(pair["strategy"], codec=pair["codec"])
        assert pair["why_not"] in str(refused.value)
