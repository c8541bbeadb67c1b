"""Words in few bits: Golomb-Rice codes of the gaps between the indices, and one bit for each sign.

A scan gives words, ``index << 1 | sign``, whose indices rise. The gap before a word is its index minus the
index before it minus 1 (for the first, the index itself). With a parameter k, a gap is written as its low k bits and,
in unary, its quotient gap >> k:

    bits = (k + 1) + (gap >> k) + 1        low bits and sign, quotient, end of the quotient

which for random indices is within about 2% of the entropy at the best k. Every block of 128 words (the last may have
fewer) has a k of its own, which suits the density of its layer. The body, bits from the low end of each byte:

1. **Parameters**: one byte for each block, its k, 0 to 30.
2. **Low plane**: for each word, k + 1 bits: the sign, above it the low k bits of the gap. No gaps between words
   or blocks; zeros up to a whole byte at the end.
3. **Unary plane**: for each word, gap >> k zeros and then a one. Again without gaps, and zeros up to a whole byte.

k is the smallest number for which k + 1 would not save a bit: the sum of ceil((gap >> k) / 2) over the block is at most
the number of its words. (The size is convex in k, so this is the smallest of the best.) One enormous gap makes k larger,
and a body never has more than 4 bytes a word and 3. Words have one body only: ``decode`` refuses all others.

Rice, "Some practical universal noiseless coding techniques", 1979; Golomb, "Run-length encodings", 1966.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.errors import MalformedMessage, Misuse

U8 = npt.NDArray[np.uint8]
U32 = npt.NDArray[np.uint32]

LONGEST = 2**31  # elements of a range: the words have 31 bits for an index

_WRONG = (  # the errors that the kernel returns
    "",
    "a parameter above 30",
    "planes that are not as long as the parameters say",
    "padding that is not zero, or not one quotient for each word",
    "an index beyond the range",
    "a parameter that is not the best",
)


def encode(words: U32, length: int) -> U8:
    """Return the body for ``words`` (at least one, contiguous, rising in index) of a range of ``length`` elements.

    >>> words = np.array([3 << 1, 10 << 1 | 1, 11 << 1], np.uint32)
    >>> encode(words, 16).tolist()
    [1, 6, 98]
    """
    parameters, low_nbytes, unary_nbytes = _planned(words, length)
    whole = parameters.size + low_nbytes + unary_nbytes
    body = np.zeros(whole + cpu.rice_write.SPARE_NBYTES, np.uint8)
    cpu.rice_write.write(words, parameters, low_nbytes, body)
    return body[:whole]


def decode(body: U8, count: int, length: int) -> U32:
    """Return the ``count`` words that ``body`` was made of. Raises ``MalformedMessage`` for any body that ``encode``
    cannot have written for this many words in a range of ``length``, before it takes more memory than twice the body.

    >>> decode(np.array([1, 6, 98], np.uint8), 3, 16).tolist()
    [6, 21, 22]
    """
    blocks = -(-count // cpu.rice_read.BLOCK)
    if not 1 <= count <= length <= LONGEST or 8 * blocks + 2 * count > 8 * body.size:
        raise MalformedMessage(f"{count} coded words in {body.size} bytes, for a range of {length} elements")
    padded = np.empty(body.size + cpu.rice_read.SPARE_NBYTES, np.uint8)
    padded[: body.size] = body
    padded[body.size :] = 0
    words = np.empty(count, np.uint32)
    wrong = cpu.rice_read.read(padded, body.size, length, words)
    if wrong:
        raise MalformedMessage(f"coded words with {_WRONG[wrong]}: {count} words in {body.size} bytes")
    return words


def _planned(words: U32, length: int) -> tuple[U8, int, int]:
    """Return each block's parameter, and the bytes of the two planes."""
    if not 1 <= words.size <= length <= LONGEST:
        raise Misuse(f"{words.size} words in a range of {length}", "1 to 2^31 elements, and a word for each at most")
    parameters = np.empty(-(-words.size // cpu.rice_write.BLOCK), np.uint8)
    low_bits, unary_bits = cpu.rice_write.plan(words, length, parameters)
    if not low_bits:
        raise _not_rising(words, length)
    return parameters, (low_bits + 7) // 8, (unary_bits + 7) // 8


def _not_rising(words: U32, length: int) -> Misuse:
    """Return the error for words that the kernel refused."""
    indices = words >> 1
    falls = np.flatnonzero(indices[1:] <= indices[:-1])
    if falls.size:
        before, after = indices[falls[0] : falls[0] + 2]
        return Misuse(f"index {after} after {before}", "rising indices", "sort the words, and add up what comes twice")
    return Misuse(f"index {indices[-1]}", f"indices below {length}", "give the length of the range that was scanned")
