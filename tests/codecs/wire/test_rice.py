"""Coded words: what is written is read, in few bits; a body has one form, and everything else is refused."""

import math
import tracemalloc

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs.kernels.cpu import rice_read, rice_write
from taut.codecs.wire import rice
from taut.codecs.wire.rice import LONGEST, decode, encode
from taut.errors import MalformedMessage, Misuse

BLOCK = 128


def made(indices, seed=0):
    """Words at ``indices``, with random signs."""
    at = np.asarray(indices, np.uint32)
    return at << 1 | np.random.default_rng(seed).integers(0, 2, at.size, np.uint32)


def scattered(count, length, seed=0):
    rng = np.random.default_rng(seed)
    return made(np.sort(rng.choice(length, count, replace=False)), seed)


@st.composite
def scans(draw):
    """Words and the length of their range. Gaps come in runs of one magnitude, as layers give them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    runs = draw(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 30)), min_size=1, max_size=4))
    gaps = np.concatenate([rng.integers(0, 2**bits, size, endpoint=True) for size, bits in runs])
    indices = np.cumsum(gaps + 1) - 1
    indices = indices[indices < LONGEST]
    if not indices.size:
        indices = np.array([draw(st.integers(0, LONGEST - 1))])
    room = LONGEST - 1 - int(indices[-1])
    length = int(indices[-1]) + 1 + draw(st.one_of(st.just(0), st.just(room), st.integers(0, room)))
    return made(indices, draw(st.integers(0, 9))), length


def by_the_book(words, other=0):
    """The format as the docstring has it, bit by bit; ``other``: what to add to the first block's best parameter."""
    gaps = np.diff(words >> 1, prepend=np.uint32(2**32 - 1)) - np.uint32(1)
    parameters, low, unary = [], [], []
    for start in range(0, words.size, BLOCK):
        block = [int(gap) for gap in gaps[start : start + BLOCK]]
        k = next(k for k in range(31) if sum(math.ceil((gap >> k) / 2) for gap in block) <= len(block))
        k += other if start == 0 else 0
        parameters.append(k)
        for gap, word in zip(block, words[start : start + BLOCK], strict=True):
            low += [int(word) & 1, *((gap >> bit) & 1 for bit in range(k))]
            unary += [0] * (gap >> k) + [1]
    planes = [np.packbits(np.array(bits, np.uint8), bitorder="little") for bits in (low, unary)]
    return np.concatenate([np.array(parameters, np.uint8), *planes])


def refused_or_exact(body, count, length):
    """The law for whatever comes: refused, or the one body of the words it gives. Returns whether it was taken."""
    try:
        words = decode(body, count, length)
    except MalformedMessage:
        return False
    assert words.size == count
    assert encode(words, length).tobytes() == body.tobytes()  # encode refuses what does not rise within the range
    return True


@settings(max_examples=some(150), deadline=None)
@given(scans())
def test_what_is_written_is_read_and_is_small(scan):
    words, length = scan
    body = encode(words, length)
    assert (decode(body, words.size, length) == words).all()
    assert body.size <= 4 * words.size + 3
    assert body.tobytes() == by_the_book(words).tobytes()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 20, 127, 128, 129, 256, 300])
@pytest.mark.parametrize("at", [0, 0.5, 1])
def test_one_enormous_gap_does_not_blow_up_the_size(count, at):
    before = int(count * at)
    words = made([*range(before), *range(LONGEST - count + before, LONGEST)])
    body = encode(words, LONGEST)
    assert body.size <= 4 * count + 3
    assert (decode(body, count, LONGEST) == words).all()


def test_quotients_of_about_64_bits_are_written_whole_wherever_they_start():
    for gap in range(40, 70):
        for before in range(9):  # small gaps in between keep the parameter at 0
            gaps = np.array([*[0] * before, gap, *[0] * 50, gap // 2, gap // 2, *[0] * 20])
            words = made(np.cumsum(gaps + 1) - 1, gap)
            body = encode(words, 999)
            assert body[0] <= 1 and body.tobytes() == by_the_book(words).tobytes()
            assert (decode(body, words.size, 999) == words).all()


def test_every_element_at_once_takes_two_bits_each():
    words = made(np.arange(100_000))
    body = encode(words, 100_000)
    assert (decode(body, words.size, 100_000) == words).all()
    assert body.size <= 100_000 / 4 + 100_000 / BLOCK + 3


@pytest.mark.parametrize("density", [0.001, 0.012, 0.05])
def test_random_indices_come_close_to_the_entropy(density):
    words = made(np.flatnonzero(np.random.default_rng(1).random(int(20_000 / density), np.float32) < density))
    entropy = -(density * math.log2(density) + (1 - density) * math.log2(1 - density)) / density
    assert 8 * encode(words, int(20_000 / density)).size / words.size <= 1.08 * (entropy + 1)


def test_layers_of_different_density_cost_no_more_than_each_alone():
    alone = [scattered(2048, length, seed) for seed, length in enumerate((4_000, 2_000_000, 40_000))]
    together = np.concatenate([alone[0], alone[1] + np.uint32(8_000), alone[2] + np.uint32(4_008_000)])
    assert encode(together, 3_000_000).size <= 1.01 * sum(encode(words, 2_000_000).size for words in alone)


def test_words_need_not_be_aligned_or_ours_to_write():
    words = scattered(300, 9_000)
    body = encode(words, 9_000)
    words.flags.writeable = False
    assert encode(words, 9_000).tobytes() == body.tobytes()
    shifted = np.frombuffer(b"x" + body.tobytes(), np.uint8)[1:]
    assert (decode(shifted, 300, 9_000) == words).all()


@pytest.mark.parametrize("count", [1, 2, 7, 130])
@pytest.mark.parametrize("spread", [2, 60, 100_000])
def test_every_flipped_bit_and_every_other_length_is_refused_or_exact(count, spread):
    length = count * spread
    body = encode(scattered(count, length), length)
    assert refused_or_exact(body, count, length)
    for at in range(8 * body.size):
        flipped = body.copy()
        flipped[at // 8] ^= 1 << at % 8
        refused_or_exact(flipped, count, length)
    for size in range(body.size):
        assert not refused_or_exact(body[:size], count, length)
    for more in (b"\0", b"\1", b"\xff" * 9):
        assert not refused_or_exact(np.frombuffer(body.tobytes() + more, np.uint8), count, length)


def test_20_000_mutated_bodies_are_refused_or_exact():
    rng = np.random.default_rng(5)
    subjects = [(n, n * spread) for n in (1, 5, 40, 128, 200) for spread in (2, 20, 3_000)]
    bodies = [encode(scattered(count, length), length) for count, length in subjects]
    taken = 0
    for turn in range(20_000):
        which = turn % len(subjects)
        body, (count, length) = bodies[which].copy(), subjects[which]
        for _ in range(rng.integers(1, 4)):
            at = rng.integers(body.size)
            body[at] = rng.integers(256) if turn % 3 else body[at] ^ (1 << rng.integers(8))
        if turn % 7 == 0:
            count, length = int(rng.integers(0, 300)), int(rng.integers(1, LONGEST))
        taken += refused_or_exact(body, count, length)
    assert 2_000 < taken < 15_000  # signs and low bits may be others; most of the rest may not


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40), st.integers(-2, 200), st.integers(-2, LONGEST + 2))
def test_any_bytes_are_refused_or_exact(raw, count, length):
    refused_or_exact(np.frombuffer(raw, np.uint8), count, length)


@pytest.mark.parametrize("count", [1, 5, 64, 130])
def test_nothing_is_written_beyond_the_buffers(count):
    """More quotients than words, and the stores of eight bytes at the end of a body."""
    words = scattered(count, 50 * count)
    parameters, low_nbytes, unary_nbytes = rice._planned(words, 50 * count)
    whole = parameters.size + low_nbytes + unary_nbytes
    room = np.zeros(whole + 64, np.uint8)
    room[whole + 8 :] = 0xAB
    rice_write.write(words, parameters, low_nbytes, room[: whole + 8])
    assert (room[whole + 8 :] == 0xAB).all()
    room[whole:] = 0
    out = np.full(count + 200, 0xABCDABCD, np.uint32)
    for at in range(8 * (whole - unary_nbytes), 8 * whole):
        more = room.copy()
        more[at // 8] |= 1 << at % 8
        more[at // 8 + 1 : whole] |= 0xFF if at % 2 else 0
        rice_read.read(more, whole, 50 * count, out[:count])
        assert (out[count:] == 0xABCDABCD).all()


@pytest.mark.parametrize("other", [-1, 1])
def test_a_parameter_that_is_not_the_best_is_refused(other):
    words = scattered(300, 9_000)
    with pytest.raises(MalformedMessage, match="not the best"):
        decode(by_the_book(words, other), 300, 9_000)
    assert (decode(by_the_book(words), 300, 9_000) == words).all()


def test_what_is_wrong_is_named():
    body = encode(scattered(300, 9_000), 9_000)
    with pytest.raises(MalformedMessage, match="beyond the range"):
        decode(body, 300, 8_000)
    with pytest.raises(MalformedMessage, match="301 words"):
        decode(body, 301, 9_000)
    above = body.copy()
    above[1] = 31
    with pytest.raises(MalformedMessage, match="above 30"):
        decode(above, 300, 9_000)
    long = np.concatenate([body, np.zeros(2_000, np.uint8)])
    with pytest.raises(MalformedMessage, match="as long as"):
        decode(long, 300, 9_000)


def test_a_claimed_count_takes_no_memory():
    body = np.full(1_000, 255, np.uint8)
    encode(scattered(3, 9), 9)  # the kernels are loaded
    tracemalloc.start()
    for count in (4_000, 10**9, LONGEST):
        assert not refused_or_exact(body, count, LONGEST)
    peak_nbytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_nbytes < 50_000


@pytest.mark.parametrize(
    ("indices", "length", "said"),
    [
        ([5, 5], 9, "index 5 after 5: expected rising"),
        ([*range(200), 3], 999, "index 3 after 199"),
        ([*range(128), 127], 999, "index 127 after 127"),
        ([3, 9], 9, "index 9: expected indices below 9"),
        ([], 9, "0 words"),
        ([1, 2], 1, "2 words in a range of 1"),
        ([1], LONGEST + 1, "range of 2147483649"),
    ],
)
def test_words_that_do_not_rise_within_the_range_are_misuse(indices, length, said):
    with pytest.raises(Misuse, match=said):
        encode(made(indices), length)


def test_the_answers_of_the_kernel_have_a_name_each():
    assert len(rice._WRONG) == 6 and all(rice._WRONG[1:])
