"""Scans on several threads find what one thread finds, to the last bit; so do scans of vectors that lie anywhere."""

import os
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import parallel
from taut.codecs.kernels.cpu import kernels
from taut.codecs.wire.sign_list import room_for_words, scan_parts
from taut.errors import Misuse

LEAST = 2048  # so that small vectors are cut, too
SPECS = ("tether", "threshold")


@pytest.fixture(autouse=True, scope="module")
def _small_parts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LEAST", LEAST)
        yield
    parallel.set_threads(1)


def scan(spec, w, b, r, lo, out):
    if spec == "tether":
        return kernels.tether(w, b, lo, w.size, 2.0**-6, 2.0**-8, out)
    return kernels.threshold(w, b, r, lo, w.size, 2.0**-6, 1.0 / 3.0, out)


def vectors(size, shares, seed, shift=0):
    """w, b, r with a share of the elements over the limit that differs from stretch to stretch; ``shift``: of w's first
    byte against a cache line, in elements."""
    rng = np.random.default_rng(seed)
    room = np.empty(size + 32, np.float32)
    first = (-room.ctypes.data // 4) % 16 + shift
    w = room[first : first + size]
    w[:] = rng.standard_normal(size, np.float32)
    b, r = kernels.like(w, 1, filled=True), kernels.like(w, 2, filled=False)
    for part, share in zip(np.array_split(np.arange(size), len(shares)), shares, strict=True):
        hot = part[rng.random(part.size) < share]
        w[hot] += rng.choice([-1.0, 1.0], hot.size).astype(np.float32) * np.float32(0.05)
    return w, b, r


def found(spec, threads, size, lo, shares, seed, shift=0):
    w, b, r = vectors(size, shares, seed, shift)
    parallel.set_threads(threads)
    signs = scan(spec, w, b, r, lo, room_for_words(size))
    payload = [None if x is None else x.tobytes() for x in (signs.words, signs.bits)]
    return signs.count, payload, w.tobytes(), b.tobytes(), r.tobytes()


shares = st.lists(st.sampled_from([0.0, 0.001, 0.05, 0.0625, 0.07, 0.3, 1.0]), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SPECS), st.integers(2, 5), st.integers(1, 5 * LEAST), shares, st.integers(0, 15), st.data())
def test_threads_find_what_one_finds(spec, threads, size, shares, shift, data):
    lo = 64 * data.draw(st.integers(0, (size - 1) // 64))
    case = (size, lo, shares, size, shift)
    assert found(spec, threads, *case) == found(spec, 1, *case)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SPECS), st.integers(1, 700), shares, st.integers(1, 15))
def test_the_place_in_memory_changes_nothing(spec, size, shares, shift):
    assert found(spec, 1, size, 0, shares, size, shift) == found(spec, 1, size, 0, shares, size, 0)


@pytest.mark.parametrize("spec", SPECS)
def test_one_part_alone_may_be_dense_or_sparse(spec):
    """A part's bitmap becomes words again, and a part's words a bitmap, where the whole asks for it."""
    few = found(spec, 4, 4 * LEAST, 0, [0.2, 0.0, 0.001, 0.0], seed=1)
    many = found(spec, 4, 4 * LEAST, 0, [0.001, 1.0, 0.0, 0.2], seed=1)
    assert few[1][0] is not None
    assert many[1][1] is not None
    assert few == found(spec, 1, 4 * LEAST, 0, [0.2, 0.0, 0.001, 0.0], seed=1)
    assert many == found(spec, 1, 4 * LEAST, 0, [0.001, 1.0, 0.0, 0.2], seed=1)


def test_only_what_pays_is_cut():
    parallel.set_threads(4)
    assert parallel.split(64, 64 + LEAST) == [(64, 64 + LEAST)]
    assert len(parallel.split(0, 3 * LEAST - 1)) == 2
    parts = parallel.split(64, 5 * LEAST + 7)
    assert len(parts) == 4
    assert all(start % 64 == 0 for start, _ in parts)
    assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
    with pytest.raises(Misuse, match="-1 threads"):
        parallel.set_threads(-1)
    assert parallel._threads.threads == 4


def test_an_error_in_one_part_is_told():
    parallel.set_threads(2)

    def failing(start, stop, room):
        raise ZeroDivisionError(start)

    with pytest.raises(ZeroDivisionError):
        scan_parts(failing, 0, 2 * LEAST, room_for_words(2 * LEAST), kernels._write_bits)


def test_a_fork_makes_threads_of_its_own():
    case = ("tether", 2, 2 * LEAST, 0, [0.01], 3)
    here = found(*case)
    assert parallel._threads.pool is not None
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # were it to wait for the parent's threads
        os._exit(0 if found(*case) == here and parallel._threads.pool is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_negative_zero_that_is_not_sent_stays():
    """Adding nothing would make it a positive one, and replicas on other kernels would disagree."""
    for spec in SPECS:
        w, b, r = vectors(128, [0.0], seed=0)
        w[:], b[:] = -0.0, -0.0
        w[::2] = 0.25
        scan(spec, w, b, r, 0, room_for_words(128))
        assert np.signbit(b[1::2]).all()
        assert np.signbit(w[1::2]).all()
