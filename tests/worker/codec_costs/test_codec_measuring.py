"""Measuring codecs: the figures are those of the payloads, and ``pays below`` is where the two ways take equally long."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.codecs import REGISTRY, expand, parse
from taut.codecs.compressor import Compressor, CompressorState
from taut.testing.clock import FakeClock
from taut.worker.codec_costs.measuring import MeasuredCodec, Trial, pays_below
from taut.worker.codec_costs.synthetic_updates import Synthetic, shapes_for
from taut.worker.codec_costs.update_file import first_rows

SECONDS = st.floats(1e-9, 1e-2)


@given(codec_s=SECONDS, dense_s=SECONDS, nbytes=st.integers(1, 9000), slower=st.floats(1.01, 100.0))
def test_on_slower_links_it_pays_and_on_faster_ones_it_does_not(
    codec_s: float, dense_s: float, nbytes: int, slower: float
) -> None:
    codec = MeasuredCodec("int8", 1000, 1, nbytes, codec_s, codec_s, 0.1)
    dense = MeasuredCodec("dense", 1000, 1, 4000, dense_s, dense_s, 0.0)
    limit = pays_below(codec, dense)

    def there_s(one: MeasuredCodec, bits_per_s: float) -> float:
        return one.encode_s + one.decode_s + 8 * one.nbytes / bits_per_s

    if limit == 0.0:
        assert nbytes >= 4000
    elif math.isinf(limit):
        assert nbytes < 4000 and codec_s <= dense_s
    elif abs(codec_s - dense_s) > 1e-6 * dense_s:  # else the difference is of the order of rounding
        assert there_s(codec, limit / slower) < there_s(dense, limit / slower)
        assert there_s(codec, limit * slower) > there_s(dense, limit * slower)


@pytest.mark.parametrize("name", REGISTRY)
def test_every_codec_can_be_measured_within_its_bound(name: str) -> None:
    """In expectation, for those that throw dice: 8 turns of 5000 elements come near it."""
    updates, codec = Synthetic(5000, seed=1), parse(name)
    trial = Trial(codec, np.zeros(5000, np.float32), updates.shapes)
    for turn in range(24):
        trial.turn(updates.next(), counts=turn >= 16)
    found = trial.measured()
    assert found.turns == 8 and 0.0 < found.bits < 33.0
    assert found.error is not None
    if codec.facts.error is not None:
        assert found.error <= 1.1 * codec.facts.error + 1e-9


@pytest.mark.parametrize("name", ["topk:feedback=no", "int8:feedback=no", "sign:feedback=no", "dense"])
def test_without_a_residual_the_error_is_that_of_one_update(name: str) -> None:
    update = Synthetic(4096, seed=2).next()
    trial = Trial(codec := parse(name), np.zeros(4096, np.float32))
    trial.turn(update)
    compressor = getattr(codec, "compressor", None)
    sent = update
    if isinstance(compressor, Compressor):
        payload = compressor.encode(update, CompressorState(4096))
        assert payload is not None
        sent = expand(payload, 4096)
    expected = float(np.sum((update - sent) ** 2, dtype=np.float64) / np.sum(update**2, dtype=np.float64))
    assert trial.measured().error == pytest.approx(expected, rel=1e-3, abs=1e-9)


def test_the_middle_counts_and_the_first_turns_do_not() -> None:
    class Uneven(FakeClock):
        """Every look at it takes longer than the last one."""

        looks = 0

        def now(self) -> float:
            self.looks += 1
            self.advance(float(self.looks))
            return super().now()

    trial = Trial(parse("dense"), np.zeros(64, np.float32), clock=Uneven())
    for turn in range(4):
        trial.turn(np.ones(64, np.float32), counts=turn > 0)
    assert (trial.measured().encode_s, trial.measured().decode_s) == (8.0, 9.0)  # looks 5 and 6, 8 and 9, 11 and 12


def test_nothing_to_send_is_no_error() -> None:
    trial = Trial(parse("dense"), np.zeros(64, np.float32))
    trial.turn(np.zeros(64, np.float32))
    found = trial.measured()
    assert found.error is None and found.decode_s == 0.0


@given(size=st.integers(1, 3_000_000))
def test_made_up_tensors_hold_so_many_elements(size: int) -> None:
    assert sum(math.prod(shape) for shape in shapes_for(size)) == size


def test_made_up_updates_are_heavy_tailed_and_of_differing_scales() -> None:
    updates = Synthetic(600_000, seed=0)
    x = updates.next().astype(np.float64)
    assert np.mean(x**4) / np.mean(x**2) ** 2 > 10.0, "a normal distribution has 3"
    norms, start = [], 0
    for shape in updates.shapes:
        part = x[start : start + math.prod(shape)]
        norms.append(float(np.sqrt(np.mean(part**2))))
        start += len(part)
    assert max(norms) > 2.0 * min(norms)


@given(
    shapes=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=3).map(tuple), min_size=1, max_size=6),
    most=st.integers(1, 5000),
)
def test_the_first_rows_are_within_their_tensors(shapes: list[tuple[int, ...]], most: int) -> None:
    parts, sizes = first_rows(shapes, most), [math.prod(shape) for shape in shapes]
    starts = np.cumsum([0, *sizes])
    for (lo, hi, part), shape, start, size in zip(parts, shapes, starts, sizes, strict=False):
        assert lo == start and hi - lo == math.prod(part) <= size and part[1:] == shape[1:]
    taken = sum(hi - lo for lo, hi, _ in parts)
    assert taken == sum(sizes) if sum(sizes) <= most else taken <= most + sum(math.prod(shape[1:]) for shape in shapes)
