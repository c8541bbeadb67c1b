"""The tether's slack follows the optimizer's steps, whatever the weights, and its gain follows what the steps are."""

import math

import numpy as np
import pytest

from taut.codecs import Tether, parse, snap
from taut.codecs.algorithms.tether import LEEWAY, STEPS, WARM_EXCHANGES
from taut.codecs.math.step_size import EVEN
from taut.worker.checkpoints.reflect import recall, remembered

SIZE = 3000


def start(w, workers=4):
    return Tether().start(w, workers, snap(w, [len(w)]))


def adam_steps(rng, rate):
    """Yield steps of about one length, whose signs wander slowly."""
    heading = rng.standard_normal(SIZE)
    yield np.sign(heading) * rate
    while True:
        heading = 0.9 * heading + math.sqrt(0.19) * rng.standard_normal(SIZE)
        yield heading * rate


def gradient_steps(rng, rate):
    """Yield steps whose lengths differ by orders of magnitude between elements."""
    scale = np.exp(1.5 * rng.standard_normal(SIZE))
    while True:
        yield rng.standard_normal(SIZE) * scale * rate


def train(state, steps, count, codec=None):
    codec, sent = codec or Tether(), []
    for _, step in zip(range(count), steps, strict=False):
        state.w += step.astype(np.float32)
        payload = codec.emit(state, 0, SIZE)
        sent.append(state.words_sent)
        assert payload is None or len(payload) > 28
    return np.diff([0, *sent]) / SIZE


@pytest.mark.parametrize("weights", [0.0, 1e-3, 0.05, 1.0])
@pytest.mark.parametrize("rate", [2.0**-13, 2.0**-9])
def test_neither_zeros_nor_large_weights_flood_or_starve(weights, rate):
    rng = np.random.default_rng(0)
    w = (rng.standard_normal(SIZE) * weights).astype(np.float32)
    state = start(w)
    density = train(state, adam_steps(rng, rate), 150)
    assert abs(math.log2(state.limit / (STEPS * rate))) <= LEEWAY + 0.5
    assert density.max() < 0.2
    assert 0.005 < density[50:].mean() < 0.06


def test_the_slack_is_refined_as_the_rate_falls_and_coarsened_as_it_rises():
    rng, w = np.random.default_rng(0), np.full(SIZE, 0.1, np.float32)
    state, steps = start(w), adam_steps(rng, 1.0)
    limits = []
    for rate in (2.0**-12, 2.0**-8, 2.0**-12):
        train(state, (step * rate for step in steps), 200)
        limits.append(state.limit)
    assert limits[1] >= 8 * limits[0]
    assert limits[2] <= 2 * limits[0]
    assert all(math.log2(limit).is_integer() for limit in limits)


def test_what_others_send_is_no_step():
    rng = np.random.default_rng(0)
    one, other = (start(np.zeros(SIZE, np.float32)) for _ in range(2))
    loud = Tether(slack=2.0**-4)
    sender = loud.start(np.zeros(SIZE, np.float32), 4)
    for step, _ in zip(adam_steps(rng, 2.0**-10), range(40), strict=False):
        for state in (one, other):
            state.w += step.astype(np.float32)
            Tether().emit(state, 0, SIZE)
        sender.w += np.float32(1.0)
        Tether().absorb(one, loud.emit(sender, 0, SIZE))
    assert one.limit == other.limit
    assert one.step_size.size == pytest.approx(other.step_size.size, rel=1e-3)


def test_gain_grows_as_the_root_of_the_workers_for_steps_of_one_length_and_more_slowly_for_gradients():
    for kind, full in ((adam_steps, 4.0), (gradient_steps, 2.0)):
        state = start(np.zeros(SIZE, np.float32), workers=16)
        steps = kind(np.random.default_rng(1), 2.0**-10)
        train(state, steps, WARM_EXCHANGES - 1)
        assert state.quantum == state.limit / 16
        train(state, steps, 2)
        assert state.quantum == full * state.limit / 16
        Tether().retune(state, 16, 64.0)
        assert state.quantum == state.limit / 32  # four times the staleness that a gain of 1 bears


def test_a_gain_that_is_given_holds_for_all_optimizers():
    codec = parse("tether:gain=3")
    state = codec.start(np.zeros(SIZE, np.float32), 4)
    train(state, gradient_steps(np.random.default_rng(1), 2.0**-10), 60, codec)
    assert state.quantum == 0.75 * state.limit


def test_weight_decay_alone_is_no_movement():
    """Of a large embedding few rows are touched, and all decay a little."""
    rng, w = np.random.default_rng(0), np.full(SIZE, 0.02, np.float32)
    state = Tether().start(w, 4)
    touched = rng.random(SIZE) < 0.05
    train(state, (np.where(touched, step, step * 1e-3) for step in adam_steps(rng, 2.0**-10)), 20)
    assert state.step_size.evenness > EVEN
    assert state.limit == pytest.approx(STEPS * 2.0**-10, rel=1.0)


def test_fragments_and_checkpoints_change_nothing():
    """The sample is of all elements, whichever are scanned; and a state that was kept goes on as it was."""
    steps = adam_steps(np.random.default_rng(0), 2.0**-10)
    state = start(np.zeros(SIZE, np.float32))
    for turn, step in zip(range(70), steps, strict=False):
        state.w += step.astype(np.float32)
        lo = (0, 1536)[turn % 2]
        Tether().emit(state, lo, (1536, SIZE)[turn % 2])
    assert state.step_size.measured > 60
    tensors = {}
    kept = remembered(state, tensors)
    fresh = start(state.b.copy())
    fresh.w[:] = state.w
    recall(fresh, kept, tensors.__getitem__)
    for step, _ in zip(steps, range(30), strict=False):
        for one in (state, fresh):
            one.w += step.astype(np.float32)
        assert Tether().emit(fresh, 0, SIZE) == Tether().emit(state, 0, SIZE)
    assert fresh.limit == state.limit
    assert fresh.step_size.measured == state.step_size.measured


def test_a_vector_that_never_moves_sends_nothing():
    state = start(np.full(SIZE, 0.1, np.float32))
    assert [Tether().emit(state, 0, SIZE) for _ in range(5)] == [None] * 5
    assert Tether().flush(state) == []


def test_exchanging_seldom_coarsens_the_slack_by_the_root_of_the_steps_at_most():
    limits = []
    for between in (1, 4):
        state, steps = start(np.zeros(SIZE, np.float32)), adam_steps(np.random.default_rng(0), 2.0**-10)
        for turn, step in zip(range(200), steps, strict=False):
            state.w += step.astype(np.float32)
            if turn % between == between - 1:
                state.steps = between
                Tether().emit(state, 0, SIZE)
        limits.append(state.limit)
    assert limits[0] <= limits[1] <= 2 * limits[0]


def test_a_checkpoint_from_before_the_slack_followed_steps_goes_on_from_its_slack():
    old = {
        "limit": 2.0**-6,
        "quantum": 2.0**-7,
        "tau": 2.0**-8,
        "steering": {"$record": {"target": 0.012, "warm_steps": 3}},
    }
    state = start(np.full(SIZE, 0.1, np.float32))
    recall(state, old, {}.__getitem__)
    assert (state.limit, state.quantum) == (2.0**-6, 2.0**-7)
    train(state, adam_steps(np.random.default_rng(0), 2.0**-12), 100)
    assert state.limit == STEPS * 2.0**-12
