"""The verdict, the average of buffers, the upload's bounds, the consensus distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import Digest, Statistics, TensorSpec, Upload
from taut.errors import MalformedMessage
from taut.supervisor.run.verdict import ModelUpload, average_buffers, consensus, judge, upload_limit_nbytes

floats = st.floats(-1e6, 1e6, width=32)


def digest(text: str, exact: bool = True, have: dict[int, int] | None = None) -> Digest:
    return Digest(text, exact, have or {}, Statistics())


def test_equal_digests_are_identical_only_where_the_codec_is_exact() -> None:
    assert judge({0: digest("a"), 1: digest("a")}).identical
    rough = judge({0: digest("a"), 1: digest("a", exact=False)})
    assert not rough.identical
    assert not rough.exact


def test_a_difference_names_the_workers_and_what_they_missed() -> None:
    verdict = judge({0: digest("aa", have={1: 5}), 1: digest("bb", have={0: 3})})
    assert not verdict.identical
    assert verdict.exact
    assert verdict.digest == ""
    assert "0: aa" in verdict.notes[0]
    assert "1: bb" in verdict.notes[0]
    assert "different updates" in verdict.notes[1]


@given(st.lists(st.tuples(st.integers(0, 1000), st.lists(floats, min_size=3, max_size=3)), min_size=1, max_size=6))
def test_buffers_are_averaged_by_samples(parts: list[tuple[int, list[float]]]) -> None:
    packed = {rank: (count, np.float32(values).tobytes()) for rank, (count, values) in enumerate(parts)}
    mean, left_out = average_buffers(packed)
    weights = np.array([count for count, _ in parts], dtype=np.float64)
    if not weights.any():
        weights[:] = 1
    wanted = np.average(np.array([values for _, values in parts], dtype=np.float32).astype(float), 0, weights)
    np.testing.assert_allclose(np.frombuffer(mean, "<f4"), wanted, rtol=1e-6, atol=1e-3)
    assert left_out == ()
    assert average_buffers(dict(reversed(packed.items())))[0] == mean, "the order of arrival cannot matter"


def test_buffers_that_do_not_fit_are_left_out() -> None:
    good = np.float32([1, 2]).tobytes()
    odd = {
        0: (5, good),
        1: (5, good[:4]),
        2: (5, b"abc"),
        3: (5, np.float32([np.nan, 1]).tobytes()),
        4: (1, good),
    }
    assert average_buffers(odd) == (good, (1, 2, 3))
    assert average_buffers({0: (1, b""), 1: (2, b"")}) == (b"", ())
    assert average_buffers({0: (1, b"abc")}) == (b"", (0,))


def test_an_upload_is_put_together_in_order() -> None:
    upload = ModelUpload(limit_nbytes=100)
    assert upload.add(Upload(0, 6), [b"abc"]) is None
    assert upload.add(Upload(3, 6), [b"def"]) == b"abcdef"


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([(3, 6, b"def")], "expected 0 of 6"),
        ([(0, 6, b"abc"), (0, 6, b"abc")], "expected 3 of 6"),
        ([(0, 6, b"abc"), (3, 9, b"def")], "expected 3 of 6"),
        ([(0, 101, b"abc")], "expected 1 to 100"),
        ([(0, 0, b"")], "expected 1 to 100"),
        ([(0, 2, b"abc")], "3 bytes at 0 of 2"),
        ([(0, 2, b"")], "0 bytes at 0 of 2"),
    ],
)
def test_an_upload_out_of_order_or_out_of_bounds_is_refused(chunks: list[tuple[int, int, bytes]], why: str) -> None:
    upload = ModelUpload(limit_nbytes=100)
    *good, (offset, total, data) = chunks
    for each in good:
        assert upload.add(Upload(each[0], each[1]), [each[2]]) is None
    with pytest.raises(MalformedMessage, match=why):
        upload.add(Upload(offset, total), [data])


def test_the_limit_follows_the_model() -> None:
    specs = [
        TensorSpec("w", [1000, 1000], "torch.float32", "trained"),
        TensorSpec("n", [], "int64", "buffer"),
    ]
    assert 8_000_000 < upload_limit_nbytes(specs) < 8_200_000
    assert upload_limit_nbytes([TensorSpec("w", [1000], "bfloat16", "trained")]) < 2 * 2000 + 70_000


@given(st.lists(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), min_size=2, max_size=8))
def test_consensus_is_the_spread_about_the_mean(sketches: list[list[float]]) -> None:
    table = np.array(sketches)
    wanted = math.sqrt(np.mean(np.sum((table - table.mean(0)) ** 2, axis=1)))
    assert consensus(sketches) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_consensus_passes_over_what_it_cannot_use() -> None:
    assert consensus([]) == 0.0
    assert consensus([[1.0, 1.0], [1.0, 1.0], [], [9.0], [math.nan, 1.0]]) == 0.0
    assert consensus([[1e200, 0.0], [-1e200, 0.0]]) == pytest.approx(1e200)
