"""docs/codecs.md says of each codec what it says of itself."""

from __future__ import annotations

import re
from pathlib import Path

from taut.cli.output.codec_tables import figure
from taut.codecs import REGISTRY, Kind, parse

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "codecs.md").read_text(encoding="utf-8")


def rows() -> dict[str, list[str]]:
    """The first table, by codec."""
    table = PAGE.partition("| codec |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_lists_the_registry() -> None:
    assert list(rows()) == list(REGISTRY)


def test_bits_errors_and_papers_are_those_that_codecs_state() -> None:
    for name, (title, bits, error, unbiased, summed, _, _, paper) in rows().items():
        facts = parse(name).facts
        assert title == facts.title
        assert (bits, error) == (figure(facts.bits), figure(facts.error)), name
        assert (unbiased, summed) == tuple("yes" if each else "no" for each in (facts.unbiased, facts.summable)), name
        assert paper == "-" or paper in facts.paper


def test_every_kind_on_the_wire_is_named() -> None:
    table = PAGE.partition("| kind | body |")[2].partition("\n\n")[0]
    named = set(re.findall(r"[A-Z]{4,}", table))
    assert {kind.name.rstrip("0123456789") for kind in Kind} == named


def test_every_setting_is_named() -> None:
    for name, row in rows().items():
        codec = parse(name)
        settings = vars(getattr(codec, "compressor", codec))
        assert row[6] == (", ".join(settings) or "-")
