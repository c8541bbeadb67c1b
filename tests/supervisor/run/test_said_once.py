"""What all workers get wrong is said once, not by each of them."""

from __future__ import annotations

from scripted import Scripted

from taut.core.messages import Failed

WRONG = "Misuse: batch_size=-4: expected a whole number of at least 1"


def test_a_mistake_that_all_workers_make_is_in_one_event_and_once_in_the_error() -> None:
    run = Scripted(4)
    run.train(0, 1, 2, 3)
    for rank in (3, 1, 2, 0):
        run.say(rank, Failed(WRONG))
    events = [event.text for event in run.events]
    assert [text for text in events if WRONG in text] == [f"worker 3: {WRONG}"]
    assert "worker 0: as worker 3" in events
    assert run.outcome.error == f"no worker is left (workers 0, 1, 2, 3: {WRONG})"
    assert len(run.outcome.failures) == 4, "each worker's own, for programs"
