"""A bundle is what was put in, and damaged bundles are handed on to be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.transport.frame_packing import SMALL_NBYTES, bundle, opened, unbundle
from taut.transport.framing import nbytes

FRAMES = st.lists(st.binary(max_size=30) | st.just(b"b") | st.just(b"b\x01\x00"), min_size=1, max_size=8)


def carry(frames: list[bytes]) -> list[bytes]:
    return opened(bundle(frames, 10**6))


@given(FRAMES)
def test_what_is_bundled_comes_back(frames: list[bytes]) -> None:
    assert carry(frames) == frames
    assert len(bundle(frames, 10**6)) == 1


@given(FRAMES, st.sampled_from([bytes(SMALL_NBYTES + 1), b"b" * (SMALL_NBYTES + 1)]))
def test_large_messages_stay_in_frames(frames: list[bytes], large: bytes) -> None:
    assert len(bundle([*frames, large], 10**6)) == len(frames) + 1
    assert carry([*frames, large]) == [*frames, large]
    assert carry([large]) == [large]


@given(FRAMES)
def test_a_message_over_the_limit_is_refused(frames: list[bytes]) -> None:
    size = nbytes(frames)
    assert opened(bundle(frames, size)) == frames
    with pytest.raises(Misuse, match=f"{size} bytes.*parts"):
        bundle(frames, size - 1)


@given(st.binary(max_size=40).map(lambda body: b"b" + body))
def test_a_damaged_bundle_is_no_error(frame: bytes) -> None:
    frames = unbundle(frame)
    assert frames == [frame] or nbytes(frames) < len(frame)
