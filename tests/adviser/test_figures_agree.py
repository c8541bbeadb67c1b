"""The probe and the adviser tell the same figures of the same machines, in the same digits; and fit into 80 columns."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from probes import predictions, probe
from rich.console import Console

from taut.adviser.candidates import candidates
from taut.adviser.machines import speeds_of
from taut.adviser.ranking import rank
from taut.adviser.reasons import machine_facts, quantity
from taut.adviser.report import AdviceReport
from taut.cli.commands.advise import show_report
from taut.cli.commands.probe import show_probe

FOUND = probe(4, parameters=301_066, bytes_per_s=366.04e6, steps_s=[0.00572, 0.00389, 0.0041, 0.00402])


def printed(show: object, *given: object, width: int = 80) -> str:
    out = io.StringIO()
    show(Console(file=out, width=width), *given)  # type: ignore[operator]
    return out.getvalue()


def test_what_the_adviser_reasons_with_is_what_the_probe_showed() -> None:
    shown = printed(show_probe, FOUND)
    link = FOUND.links[0]
    takes = quantity(4 * FOUND.parameters / link.bytes_per_s, "s")
    facts = " ".join(machine_facts(FOUND))
    for figure in ("1.2 MB", "366 MB/s", quantity(link.round_trip_s, "s"), takes):
        assert figure in shown and figure in facts
    for worker in FOUND.workers:
        assert quantity(worker.mean_step_s, "s") in shown
    simulated = quantity(speeds_of(FOUND).step_s, "s")
    assert f"takes {simulated};" in facts, "the step that is told is the one that is simulated"


@pytest.mark.parametrize("width", [80, 140])
def test_advice_and_probe_fit(width: int) -> None:
    listed = candidates(4)
    advice = rank(predictions(listed, lambda one: 1000.0 + len(one.name)))
    report = AdviceReport(FOUND, advice, {}, [], 4, Path("train.py"), [])
    table = printed(show_report, report, 5, width=width).partition("why:")[0].splitlines()
    assert len(table) == 6, "a line for each, and the heading"
    assert all(len(line) <= width for line in [*table, *printed(show_probe, FOUND, width=width).splitlines()])
    for prediction in advice.ranked[:5]:
        assert any(prediction.candidate.name in line for line in table)
