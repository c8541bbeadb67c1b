"""No handler of the supervisor raises, whatever valid message comes in whatever state of the run."""

from __future__ import annotations

from fuzzers.handler_fuzz import STATES, fuzz_handlers
from fuzzers.random_messages import KINDS


def test_no_random_message_breaks_a_handler() -> None:
    """A few thousand; ``make fuzz`` says a million."""
    handled = fuzz_handlers(count=3_000, seed=0)
    assert set(handled.kinds) == {kind.__name__ for kind in KINDS}
    assert set(handled.states) >= set(STATES) - {"recovered"}
    assert handled.answers > 1_000
