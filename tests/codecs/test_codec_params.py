"""Written forms, misuse, and the grid."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, Dense, Grid, Tether, Threshold, parse, snap, spec
from taut.codecs.algorithms.tether import round_quantum
from taut.errors import Misuse


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("tether", Tether()),
        ("tether:slack=2^-6", Tether(slack=2**-6)),
        ("tether:tau=2**-8", Tether(tau=2**-8)),
        ("tether: density = 0.01 , gain=2", Tether(density=0.01, gain=2.0)),
        ("threshold:tau=0.00390625", Threshold(tau=2**-8)),
        ("threshold:density=1e-3", Threshold(density=0.001)),
        ("dense", Dense()),
        ({"name": "tether", "density": 0.01}, Tether(density=0.01)),
        ({"name": "tether", "slack": "2^-6"}, Tether(slack=2**-6)),
    ],
)
def test_parse(given, want):
    assert parse(given) == want
    assert parse(spec(want)) == want


@given(st.floats(1e-6, 1.0), st.integers(-90, 20))
def test_spec_round_trips(density, exponent):
    for codec in (Tether(density=density), Threshold(tau=2.0**exponent), Tether(slack=2.0**exponent)):
        assert parse(spec(codec)) == codec


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("teter", r"one of tether, threshold, dense, .*; did you mean 'tether'\?"),
        ("", "one of tether"),
        ("tether:slak=2^-6", "did you mean 'slack'"),
        ("dense:tau=1", "no parameters"),
        ("tether:tau", "key=value"),
        ("tether:tau=1,tau=2", "tau once"),
        ("tether:tau=x", "a number such as 2\\^-8"),
        ("tether:tau=2^99999", "a number such as|power of two"),
        ("tether:tau=0.005", r"nearest are 2\^-8 = 0.00390625 and 2\^-7 = 0.0078125"),
        ("tether:slack=3", r"2\^1 = 2 and 2\^2 = 4"),
        ("threshold:tau=0", "positive"),
        ("threshold:tau=-0.5", "positive"),
        ("threshold:tau=nan", "positive"),
        ("tether:slack=inf", "positive"),
        ("tether:slack=2^-120", "2\\^-100"),
        ("tether:density=0", "above 0 and up to 1"),
        ("tether:density=1.5", "above 0 and up to 1"),
        ("threshold:density=nan", "above 0 and up to 1"),
        ("tether:gain=-1", "positive"),
        ("tether:slack=2^-6,density=0.1", "slack and density: expected one of"),
        ({"tau": 1}, "a table with a name"),
        (3, "a text such as"),
    ],
)
def test_misuse(given, says):
    with pytest.raises(Misuse, match=says):
        parse(given)


def test_start_refuses_what_cannot_work():
    w = np.zeros(100, np.float32)
    for name in REGISTRY:
        with pytest.raises(Misuse, match="0 workers"):
            parse(name).start(w, 0)
        with pytest.raises(Misuse, match="float32"):
            parse(name).start(w.astype(np.float64), 1)
        with pytest.raises(Misuse, match="float32"):
            parse(name).start(w.reshape(10, 10), 1)
        state = parse(name).start(w, 2)
        for lo, hi in ((1, 64), (0, 101), (64, 0), (-64, 64)):
            with pytest.raises(Misuse, match="range"):
                parse(name).emit(state, lo, hi)
        with pytest.raises(Misuse, match="0 workers"):
            parse(name).retune(state, 0, 1.0)
    with pytest.raises(Misuse, match="a grid for 3"):
        Tether().start(w, 2, Grid((3,), (-21,)))


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.integers(0, 40))
def test_snap(values, cut):
    w = np.array(values, np.float32)
    cut = min(cut, len(w))
    before, tensor = w.copy(), torch.from_numpy(w.copy())
    grid = snap(w, [cut, len(w) - cut])
    assert snap(tensor, [cut, len(w) - cut]) == grid
    assert tensor.numpy().tobytes() == w.tobytes()
    for part, old, exponent in zip((w[:cut], w[cut:]), (before[:cut], before[cut:]), grid.exponents, strict=True):
        q = 2.0**exponent
        assert (part / q == np.round(part / q)).all()
        assert (np.abs(part - old) <= q / 2).all()
        if part.size:
            bound = q * 2**24
            assert 32 * np.abs(old).max() <= bound <= max(8.0, 64 * np.abs(old).max())
    assert not np.signbit(w[w == 0]).any()
    assert grid.exceeded(w) == []
    again = w.copy()
    snap(again, [cut, len(w) - cut])
    assert Grid.unpack(grid.pack()) == grid


def test_grid_tells_who_left_the_exact_range():
    w = np.array([0.1, 0.2, 30.0], np.float32)
    grid = snap(w, [2, 1], ["small", "large"])
    assert grid.exponents == (3 - 24, 10 - 24)
    assert grid.finest == 2.0**-14
    assert grid.exceeded(np.array([0.1, 8.0, 1024.0])) == []
    assert grid.exceeded(np.array([0.1, -8.1, 30.0])) == [0]
    assert grid.exceeded(torch.tensor([0.1, 8.1, 2000.0])) == [0, 1]
    assert grid.exceeded(np.array([0.1, np.nan, 30.0])) == [0]


def test_fixed_tau_finer_than_the_grid_names_the_tensor():
    w = np.array([0.1, 0.2, 30.0], np.float32)
    grid = snap(w, [2, 1], ["small", "large"])
    with pytest.raises(Misuse, match="tensor 1 'large' of 1 elements"):
        Threshold(tau=2**-15).start(w, 4, grid)
    with pytest.raises(Misuse, match="tensor 1 'large'"):
        Tether(tau=2**-16).start(w, 4, grid)
    assert Threshold(tau=2**-14).start(w, 4, grid).tau == 2**-14
    with pytest.raises(Misuse, match="NaN or infinite"):
        snap(np.array([np.inf], np.float32), [1])
    with pytest.raises(Misuse, match="4 elements"):
        snap(w, [4])


@given(st.floats(1e-6, 10.0), st.integers(-20, -1))
def test_round_quantum(x, finest):
    q = round_quantum(x)
    assert abs(q - x) <= x / 8
    mantissa = np.frexp(q)[0] * 8
    assert mantissa == int(mantissa)
    snapped = round_quantum(x, 2.0**finest)
    assert (snapped / 2.0**finest).is_integer()
    assert snapped > 0
