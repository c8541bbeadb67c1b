"""A trace's bytes are fixed, it is JSON that viewers take, and two of them can be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse, StorageFailed
from taut.simulator import trace as module
from taut.simulator.trace import Difference, Trace, first_difference, read_header

GOLDEN = b"""{"displayTimeUnit":"ms","traceEvents":[
{"name":"taut scenario","ph":"M","pid":0,"tid":0,"args":{"seed":7,"strategy":"async"}},
{"name":"thread_name","ph":"M","pid":0,"tid":4,"args":{"name":"worker 3"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":4,"args":{"sort_index":4}},
{"name":"compute","ph":"X","pid":0,"tid":4,"ts":0.001,"dur":1234567.890,"args":{"loss":0.1,"step":1}},
{"name":"thread_name","ph":"M","pid":0,"tid":0,"args":{"name":"supervisor"}},
{"name":"thread_sort_index","ph":"M","pid":0,"tid":0,"args":{"sort_index":0}},
{"name":"worker 3 \\"dies\\" \\u00b1","ph":"i","pid":0,"tid":0,"ts":86400000000.007,"s":"t"},
{"name":"compute","ph":"X","pid":0,"tid":4,"ts":2.000,"dur":0.000}
]}
"""


def example() -> Trace:
    trace = Trace({"strategy": "async", "seed": 7})
    trace.span(3, "compute", 1, 1_234_567_891, step=1, loss=0.1)
    trace.instant(-1, 'worker 3 "dies" \u00b1', 86_400_000_000_007)
    trace.span(3, "compute", 2000, 2000)
    return trace


def test_golden_bytes(tmp_path: Path) -> None:
    trace = example()
    trace.write(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").read_bytes() == GOLDEN
    assert "".join(f"{line}\n" for line in trace.lines()).encode() == GOLDEN
    assert trace.events == 3
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]


SPANS = st.lists(
    st.tuples(st.integers(-1, 50), st.text(max_size=5), st.integers(0, 2**60), st.integers(0, 2**50)), max_size=30
)


@given(spans=SPANS, recent=st.integers(1, 10))
def test_every_trace_is_json_with_exact_times(spans: list[tuple[int, str, int, int]], recent: int) -> None:
    """Also where events are handed over to the file, in lots of any size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "RECENT", recent)
        patch.setattr(module, "MEMORY_NBYTES", 512)
        trace = Trace({"seed": 1})
        for rank, name, begin_ns, length_ns in spans:
            trace.span(rank, name, begin_ns, begin_ns + length_ns)
        text = "\n".join(trace.lines())
        assert "\n".join(trace.lines()) == text  # reading it changes nothing
        trace.instant(0, "later", 5)
    events = json.loads(text, parse_float=str)["traceEvents"]
    written = [each for each in events if each["ph"] == "X"]
    assert len(written) == len(spans)
    for event, (rank, name, begin_ns, length_ns) in zip(written, spans, strict=True):
        assert (event["tid"], event["name"]) == (rank + 1, name)
        assert int(event["ts"].replace(".", "")) == begin_ns
        assert int(event["dur"].replace(".", "")) == length_ns
    assert json.loads("\n".join(trace.lines()))["traceEvents"][-1]["name"] == "later"


def test_the_header_comes_back(tmp_path: Path) -> None:
    header = {"workers": 4, "links": {"default": {"bits_per_s": None}}, "speeds": {"step_s": 0.1}}
    Trace(header).write(tmp_path / "trace.json")
    assert read_header(tmp_path / "trace.json") == header


@pytest.mark.parametrize(
    "text", ["", "{}", '{"traceEvents":[]}', GOLDEN.decode().replace("taut", "other"), "\x00\n\x01\n"]
)
def test_the_header_of_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(Misuse, match=r"taut simulate --trace"):
        read_header(tmp_path / "trace.json")


def test_the_header_of_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        read_header(tmp_path / "none.json")


def test_the_first_difference(tmp_path: Path) -> None:
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    example().write(one)
    example().write(other)
    assert first_difference(one, other) is None
    later = example()
    later.instant(0, "more", 1)
    later.write(other)
    found = first_difference(one, other)
    assert found is not None
    assert (found.line, found.one[-1], found.other[-1]) == (9, "}", ",")
    other.write_bytes(GOLDEN.split(b"\n", 3)[0] + b"\n")
    assert first_difference(one, other) == Difference(2, GOLDEN.decode().split("\n")[1], "")


def test_traces_that_are_not_there_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="No such file"):
        first_difference(tmp_path / "none.json", tmp_path / "none.json")


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "trace.json").mkdir()
    with pytest.raises(StorageFailed, match=r"trace\.json"):
        example().write(tmp_path / "trace.json")
    assert [each.name for each in tmp_path.iterdir()] == ["trace.json"]
