"""Whatever one worker says, in whatever state of a run, under whatever strategy: the others take it or refuse it."""

from __future__ import annotations

import pytest
from fuzzers.peer_fuzz import fuzz_peers


@pytest.mark.parametrize("seed", range(3))
def test_no_message_of_a_worker_breaks_another(seed: int) -> None:
    lies = fuzz_peers(2_000, seed)
    assert lies.refused + lies.taken == 2_000
    assert lies.refused > 100 and lies.taken > 100
