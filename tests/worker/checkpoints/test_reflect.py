"""What is read back into a strategy's state from a checkpoint."""

from __future__ import annotations

import json

import numpy as np

from taut.strategies.allreduce.sync import Sync
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


# The state of `sync` after three steps of one worker, as commit e875dcc wrote it: buckets were "lanes".
SYNC_BEFORE = """{"lanes": {"$records": [{"lo": 0, "hi": 4, "first": 0, "last": 1, "machine": {"$completed": 3},
"launched": false}]}, "wishes": {"$records": [{"numbers": [0.1], "steps": true, "share": 1.0}]}, "waiting": false,
"draining": false, "finished": false, "rate": 0.1, "clip_norm": 0.0, "rounds": 3, "present": null, "transfer": {"$record":
{"limit_nbytes": 1099511627776, "asked": null, "came": null, "over": false, "asks": 0, "taken": 0, "wanted": {}, "_given":
{}, "_pieces": [], "_nbytes": 0}}, "votes": true, "global_batch": 0, "speed": 0.0, "short": 1.0}"""


def test_a_checkpoint_of_sync_from_before_buckets_had_that_name_is_read() -> None:
    world = MethodWorld(Sync(), [np.ones(4, np.float32)])
    state = world.actors[0].method_state
    recall(state, json.loads(SYNC_BEFORE), {}.__getitem__)
    assert state.buckets[0].machine.completed == state.rounds == 3
    world.run(2)
    assert state.buckets[0].machine.completed == state.rounds == 5, "it goes on from there"
