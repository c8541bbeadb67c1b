"""The report: one page that needs nothing else, with every row in it, and tables that are read back as they were."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import Runner, compared, record

from taut.comparison.report.columns import columns, fitting
from taut.comparison.report.style import spread_out
from taut.comparison.report.table import Table, summarise, tidy
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.history import Reading, on_grid
from taut.comparison.runs.record import RunRecord

DRAWN = {
    "quality-time",
    "quality-bytes",
    "result-time",
    "result-bytes",
    "time-to-target",
    "speed-up",
    "efficiency",
    "time-split",
    "staleness",
    "consensus",
}
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Balanced(HTMLParser):
    """Notes what is open, and every attribute that could ask another place."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.asks: list[str] = []
        self.identities: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "pre"):
            self.cells.append(data)

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "action") and not (value or "").startswith("#"):
                self.asks.append(f"{name}={value}")
            if name == "id":
                self.identities.append(value or "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("made")
    found = compared(folder, Runner(fails=("gossip",)), strategies=["sync", "async", "gossip"], target="loss=0.5")
    found.write()
    return found


def parsed(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_needs_nothing_else(made: Comparison) -> None:
    page = (made.folder / "report.html").read_text()
    found = parsed(page)
    assert found.asks == []
    assert not re.search(r"https?://|@import|<script|<link|<iframe", page)
    assert len(found.identities) == len(set(found.identities)) > 100
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page


def test_the_page_has_every_row_and_finding(made: Comparison) -> None:
    page = (made.folder / "report.html").read_text()
    text = "\n".join(parsed(page).cells)
    for row in made.table:
        assert unescape(row["error"]) in text
        assert row["command"] in text
    assert page.count("<tr>") == 2 + len(made.table) + len(made.summary)
    for finding in made.findings:
        assert finding in unescape(page)
    assert "<b>at</b>" not in page  # what a script says is text, not markup


def test_all_charts_are_drawn_and_follow_the_page(made: Comparison) -> None:
    pictures = {path.stem: path.read_bytes() for path in made.folder.glob("*.png")}
    assert set(pictures) == DRAWN
    assert all(data.startswith(b"\x89PNG") for data in pictures.values())
    drawings = re.findall(r"<svg.*?</svg>", (made.folder / "report.html").read_text(), re.DOTALL)
    assert len(drawings) == len(DRAWN)
    for drawing in drawings:
        assert "currentColor" in drawing
        assert "#000000" not in drawing  # black letters cannot be read on a dark page


def test_no_chart_where_there_is_nothing_to_show(tmp_path: Path) -> None:
    made = compared(tmp_path, strategies=["sync"], workers=[2], seeds=[0])
    page = made.write().read_text()
    missing = {"time-to-target", "speed-up", "efficiency"}
    assert {path.stem for path in made.folder.glob("*.png")} == DRAWN - missing
    assert len(re.findall("<figcaption>Not drawn: ", page)) == len(missing)


def test_a_comparison_in_which_everything_failed(tmp_path: Path) -> None:
    made = compared(tmp_path, Runner(fails=("sync", "async")), target=0.9)
    page = made.write().read_text()
    assert "nothing to draw" in page
    assert len(Table.from_csv((made.folder / "runs.csv").read_text())) == 8


def test_files(made: Comparison) -> None:
    assert Table.from_csv((made.folder / "runs.csv").read_text()) == made.table
    assert Table.from_csv((made.folder / "table.csv").read_text()) == made.summary
    markdown = (made.folder / "table.md").read_text()
    assert sum(line.startswith("| ") for line in markdown.splitlines()) == 1 + len(made.summary)
    commands = (made.folder / "commands.txt").read_text().splitlines()
    assert [line for line in commands if not line.startswith("#")] == [one.command for one in made.records]
    assert any(line.startswith("# torch: ") for line in commands)
    assert not list(made.folder.rglob("*.part"))


numbers = st.one_of(
    st.none(), st.integers(-(10**12), 10**12), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\x00"), max_size=20)
rows = st.lists(
    st.fixed_dictionaries({"strategy": texts, "error": texts, "workers": numbers, "score": numbers}), min_size=1
)


@given(rows)
def test_csv_round_trip(given_rows: list[dict[str, object]]) -> None:
    assert Table.from_csv(Table(given_rows).to_csv()) == given_rows


@given(
    st.builds(
        record, score=st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), seed=st.integers(0, 9)
    )
)
def test_records_round_trip(one: RunRecord) -> None:
    assert RunRecord.from_json(one.to_json()) == one


def test_the_table_fits_a_narrow_terminal() -> None:
    records = [record(f"averaging:every={8 * workers}", workers, seed) for workers in (4, 16) for seed in (0, 1)]
    summary = summarise(tidy(records))
    chosen = fitting(summary, columns(summary, "score", with_target=True), width=80)
    widths = [max(len(column.title), *(len(column.text(row)) for row in summary)) for column in chosen]
    assert sum(widths) + 2 * (len(widths) - 1) <= 80
    assert {"strategy", "workers", "score", "to target", "samples/s"} <= {column.title for column in chosen}


@given(st.lists(st.floats(-1, 2), max_size=12), st.floats(0.01, 0.2))
def test_labels_do_not_lie_over_each_other(heights: list[float], gap: float) -> None:
    placed = spread_out(heights, gap)
    least = min(gap, 1.0 / max(1, len(heights) - 1))
    ordered = sorted(placed)
    assert all(after - before > least - 1e-9 for before, after in pairwise(ordered))
    assert all(-1e-9 <= height <= 1 + 1e-9 for height in placed)
    by_height = sorted(range(len(heights)), key=lambda index: heights[index])
    assert [placed[index] for index in by_height] == ordered


readings = st.builds(
    Reading, st.floats(0.01, 10), st.integers(0, 3), st.just(0), st.just(0), st.one_of(st.none(), st.floats(0.0, 9.0))
)


@given(st.lists(readings, min_size=1, max_size=30), st.floats(0.1, 20))
def test_a_history_only_grows_and_ends_with_what_was_done(given_readings: list[Reading], wall_s: float) -> None:
    """Counts of each worker never fall, so neither do those of all; what a worker did last is there at the end."""
    counted: dict[int, int] = {}
    rising = []
    for one in sorted(given_readings, key=lambda each: each.time_s):
        counted[one.rank] = counted.get(one.rank, 0) + 64
        rising.append(Reading(one.time_s, one.rank, counted[one.rank], 10 * counted[one.rank], one.loss))
    grid = on_grid(rising, max(wall_s, rising[-1].time_s))
    samples = [moment.samples for moment in grid]
    assert all(after >= before - 1e-6 for before, after in pairwise(samples))
    assert samples[0] == 0.0
    assert samples[-1] == pytest.approx(sum(counted.values()))
    known = [one.loss for one in rising if one.loss is not None]
    assert all(moment.loss is None or min(known) - 1e-9 <= moment.loss <= max(known) + 1e-9 for moment in grid)
