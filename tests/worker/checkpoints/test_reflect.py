"""What is read back into a strategy's state from a checkpoint."""

from __future__ import annotations

import numpy as np

from taut.strategies.server.easgd import EASGD
from taut.testing.worlds.method_world import MethodWorld
from taut.worker.checkpoints.reflect import recall, remembered


def test_a_checkpoint_from_before_a_field_was_renamed_is_read() -> None:
    method = EASGD(every=1, alpha=0.5)
    state = MethodWorld(method, [np.ones(4, np.float32)]).actors[0].method_state
    state.center.view[:] = 7.0
    kept = remembered(state, tensors := {}, "method")
    kept["centre"] = kept.pop("center")  # as it was written until then
    fresh = MethodWorld(method, [np.ones(4, np.float32)]).actors[0].method_state
    recall(fresh, kept, tensors.__getitem__)
    assert fresh.center.view.tolist() == [7.0] * 4
