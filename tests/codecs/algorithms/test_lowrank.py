"""PowerSGD: what is sent is a projection, it comes nearer from update to update, and no body is believed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import CompressorState, Feedback, Header, Kind, PowerSGD, expand, parse, validate
from taut.codecs.algorithms.powersgd import BASIS, layout
from taut.codecs.math.power_iteration import orthogonalize
from taut.codecs.wire.payload import build, header
from taut.errors import MalformedMessage, Misuse

shapes = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5).map(tuple)


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size, np.float32)


def error(v, q) -> float:
    return float(np.square(q - v).sum() / np.square(v).sum())


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(1, 4), st.integers(0, 99))
def test_a_projection_of_every_tensor(some, rank, seed):
    size = sum(int(np.prod(shape)) for shape in some)
    v, compressor, memory = normal(size, seed), PowerSGD(rank), CompressorState(size, some)
    for _ in range(3):
        piece = compressor.compress(v, 0, memory)
        assert expand(compressor.payload([piece], 0, size), size).tobytes() == piece.q.tobytes()
        assert np.dot(piece.q, v - piece.q) == pytest.approx(0.0, abs=1e-4 * size)  # P P' M is orthogonal to the rest
        assert error(v, piece.q) <= 1.0 + 1e-5
    rows = layout(some, rank)
    assert sum(m * n for m, n, _ in rows) == size
    assert all(r in (0, rank) and r * (m + n) < m * n + (r == 0) for m, n, r in rows)


def test_it_comes_nearer_from_update_to_update():
    """A warm start is a power iteration: the error falls towards that of the best matrix of the rank."""
    v, memory = normal(40 * 30), CompressorState(1200, ((40, 30),))
    errors = [error(v, PowerSGD(2).compress(v, 0, memory).q) for _ in range(40)]
    assert (np.diff(errors) < 1e-6).all()
    singular = np.linalg.svd(v.reshape(40, 30).astype(np.float64), compute_uv=False)
    best = 1.0 - (singular[:2] ** 2).sum() / (singular**2).sum()
    assert errors[0] > best + 0.02
    assert errors[-1] == pytest.approx(best, abs=0.002)


def test_a_matrix_of_the_rank_is_sent_as_it_is():
    v = (normal(60).reshape(30, 2) @ normal(40, 1).reshape(2, 20)).ravel()
    for scale in (1.0, 1e-12, 1e12):
        q = PowerSGD(2).compress(v * np.float32(scale), 0, CompressorState(600, ((30, 20),))).q
        np.testing.assert_allclose(q, v * np.float32(scale), rtol=1e-3, atol=1e-4 * scale)


def test_a_direction_in_which_there_was_nothing_comes_back():
    memory = CompressorState(600, ((30, 20),))
    one = np.outer(normal(30), normal(20)).ravel()
    for v in (np.zeros(600, np.float32), one):  # nothing at all; nothing but one direction
        PowerSGD(2).compress(v, 0, memory)
        basis = memory.kept[BASIS].reshape(2, 20)
        assert basis.any(1).all()
    assert error(normal(600), PowerSGD(2).compress(normal(600), 0, memory).q) < 0.95


def test_the_first_basis_is_normal_and_the_same_for_all():
    first, second = CompressorState(20_000, ((100, 200),), seed=1), CompressorState(20_000, ((100, 200),), seed=2)
    v = normal(20_000)
    assert PowerSGD(3).encode(v, first) == PowerSGD(3).encode(v, second)
    from taut.codecs.algorithms.powersgd import _first

    basis = _first([(100, 5000, 4)], v)
    assert abs(basis.mean()) < 0.03
    assert basis.std() == pytest.approx(1.0, abs=0.03)
    assert (np.abs(basis) > 3).mean() == pytest.approx(0.0027, abs=0.0015)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 6), st.integers(1, 40), st.integers(0, 99), st.booleans())
def test_orthogonal_rows_or_nothing(rank, size, seed, dependent):
    p = normal(rank * size, seed).reshape(rank, size)
    if dependent:
        p[-1] = p[0] * 3
    orthogonalize(p)
    gram = p @ p.T
    lengths = np.diag(gram)
    assert ((np.abs(lengths - 1) < 1e-4) | (lengths == 0)).all()
    np.testing.assert_allclose(gram, np.diag(lengths), atol=1e-4)
    assert not dependent or rank == 1 or lengths[-1] == 0 or size > rank
    assert not (dependent and rank > 1) or lengths[-1] == 0 or lengths[-1] == pytest.approx(1, abs=1e-4)


def test_torch_and_numpy_agree_within_rounding_and_read_the_same():
    v, some = normal(5000), ((50, 60), (7,), (9, 7, 3, 3), (1426,))
    ours, theirs = CompressorState(5000, some), CompressorState(5000, some)
    for _ in range(4):
        piece = PowerSGD(2).compress(v, 0, ours)
        other = PowerSGD(2).compress(torch.from_numpy(v), 0, theirs)
        np.testing.assert_allclose(other.q.numpy(), piece.q, atol=1e-4)
        received = expand(PowerSGD(2).payload([other], 0, 5000), 5000)
        assert received.tobytes() == other.q.numpy().tobytes()


def test_stated_bits_are_those_of_a_square_matrix():
    size = 1024 * 1024
    payload = PowerSGD(2).encode(normal(size), CompressorState(size, ((1024, 1024),)))
    assert 8 * len(payload) / size == pytest.approx(PowerSGD(2).facts.bits, rel=0.01)


def test_long_rows_are_pieces_of_their_own():
    v = normal(4 * 70_000)
    payload = PowerSGD(1).encode(v, CompressorState(len(v), ((4, 70_000),)))
    from taut.codecs.wire.layouts import LAYOUTS

    pieces = list(LAYOUTS[Kind.LOWRANK].pieces(header(payload), np.frombuffer(payload, np.uint8, offset=28), 0, len(v)))
    assert [(start, len(values)) for start, values in pieces] == [(70_000 * row, 70_000) for row in range(4)]


def test_a_vector_alone_falls_back_to_dense():
    codec, w = Feedback(PowerSGD(2)), np.zeros(7, np.float32)
    state = codec.start(w, 1, shapes=((7,),))
    w += 1.0
    assert header(codec.emit(state, 0, 7)).kind is Kind.DENSE


def body(*table: int, numbers: int, value: float = 1.0) -> bytes:
    head = Header(Kind.LOWRANK, 0.0, 0, 64, 64)
    return build(head, np.array(table, np.uint32), np.full(numbers, value, np.float32))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (body(numbers=0), "should have"),
        (body(0, numbers=0), "do not make up"),
        (body(2**32 - 1, numbers=9), "should have"),
        (body(1, 8, 7, 1, numbers=15), "do not make up"),
        (body(1, 2**32 - 1, 2**32 - 1, 1, numbers=9), "do not make up"),
        (body(2, 8, 8, 1, 0, 5, 0, numbers=16), "do not make up"),
        (body(1, 8, 8, 4, numbers=64), "saves nothing"),
        (body(1, 8, 8, 2**32 - 1, numbers=64), "saves nothing"),
        (body(1, 8, 8, 1, numbers=15), "instead of"),
        (body(1, 8, 8, 1, numbers=17), "instead of"),
        (body(1, 8, 8, 1, numbers=16, value=np.nan), "not finite"),
        (body(1, 8, 8, 1, numbers=16, value=1e30), "not finite"),
        (body(1, 8, 8, 3, numbers=48, value=1.5e19), "not finite"),
    ],
)
def test_refused(raw, says):
    with pytest.raises(MalformedMessage, match=says):
        validate(raw, 64)


def test_the_products_that_fit_are_taken():
    assert expand(body(1, 8, 8, 1, numbers=16, value=1.5e19), 64).max() == np.float32(1.5e19) ** 2


def test_rank_zero_is_refused():
    with pytest.raises(Misuse, match=r"rank=0.*at least 1"):
        parse("powersgd:rank=0")
    with pytest.raises(Misuse, match="whole number"):
        parse("powersgd:rank=1.5")
