"""What ``taut.jax.join`` accepts, trains and refuses, alone."""

from __future__ import annotations

from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

import taut.jax
from taut.errors import Misuse, NonFiniteLoss

X = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
Y = X @ np.float32([1.0, 2.0, -1.0, 0.5]) + 3.0


def params() -> Any:
    return {"weight": jnp.zeros(4), "bias": jnp.zeros(())}


@jax.jit
def loss_and_gradient(params: Any, x: Any, y: Any) -> Any:
    def loss(params: Any) -> Any:
        return jnp.square(x @ params["weight"] + params["bias"] - y).mean()

    return jax.value_and_grad(loss)(params)


def batches() -> list[Any]:
    return [(X[at : at + 8], Y[at : at + 8]) for at in range(0, 64, 8)]


OPTIMIZERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "adamw": lambda: optax.adamw(optax.cosine_decay_schedule(0.1, 100), mu_dtype=jnp.bfloat16),
    "lamb": lambda: optax.lamb(0.1),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.rmsprop(0.1)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    "masked": lambda: optax.masked(optax.adam(0.1), {"weight": True, "bias": False}),
    "accumulated": lambda: optax.MultiSteps(optax.adam(0.1), 2),
}


def plain(optimizer: Any) -> Any:
    update, (mine, state) = jax.jit(optimizer.update), (params(), optimizer.init(params()))
    for x, y in batches():
        updates, state = update(loss_and_gradient(mine, x, y)[1], state, mine)
        mine = optax.apply_updates(mine, updates)
    return mine


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_steps_are_those_of_the_plain_loop(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    with taut.jax.join(params(), optimizer) as worker:
        for x, y in batches():
            loss, gradient = loss_and_gradient(worker.params, x, y)
            worker.step(gradient, loss, samples=len(x))
    assert (worker.steps, worker.samples) == (8, 64) and worker.loss == pytest.approx(float(loss))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, 1e-4, 1e-6), worker.params, plain(optimizer))


@settings(max_examples=5)
@given(st.integers(1, 7))
def test_a_state_that_was_saved_continues_to_the_last_bit(saved_after: int) -> None:
    def steps_of(worker: Any, rows: list[Any]) -> None:
        for x, y in rows:
            worker.step(loss_and_gradient(worker.params, x, y)[1])

    ends = []
    for interrupted in (False, True):
        worker = taut.jax.join(params(), optax.adamw(0.1), launcher=None)
        steps_of(worker, batches()[:saved_after])
        state, weights = worker.optimizer.state_dict(), worker.params
        if interrupted:
            worker.close()
            worker = taut.jax.join(weights, optax.adamw(0.1), launcher=None)
            worker.optimizer.load_state_dict(state)
        steps_of(worker, batches()[saved_after:])
        worker.close()
        ends.append(worker.vector.tobytes())
    assert ends[0] == ends[1]


def test_parameters_that_a_script_holds_are_never_changed() -> None:
    """JAX's arrays are immutable, so those that were given out may not share memory with what is trained."""
    start = {"weight": np.zeros(4, np.float32), "bias": np.zeros((), np.float32)}
    with taut.jax.join(start, optax.sgd(0.1)) as worker:
        held = [(worker.params, [])]
        for x, y in batches():
            worker.step(loss_and_gradient(held[-1][0], x, y)[1])
            held.append((worker.params, [each.copy() for each in jax.tree.leaves(jax.device_get(worker.params))]))
    for tree, copies in held[1:]:
        assert all(np.array_equal(one, other) for one, other in zip(jax.tree.leaves(tree), copies, strict=True))
    assert not start["weight"].any(), "what was given is copied"


def test_a_step_of_the_scripts_own() -> None:
    with taut.jax.join(params()) as worker:
        mine = worker.params
        for x, y in batches():
            loss, gradient = loss_and_gradient(mine, x, y)
            mine = worker.exchange(jax.tree.map(lambda one, down: one - 0.1 * down, mine, gradient), loss, samples=8)
        with pytest.raises(Misuse, match="to know what a step is"):
            worker.step(gradient)
        with pytest.raises(Misuse, match="without parameters"):
            worker.exchange()
    expected = plain(optax.sgd(0.1))
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, 1e-4), worker.params, expected)
    assert worker.samples == 64


def test_models_of_flax_and_equinox() -> None:
    graph, trained, rest = nnx.split(nnx.Linear(4, 2, rngs=nnx.Rngs(0)), nnx.Param, ...)
    network, static = equinox.partition(equinox.nn.MLP(4, 2, 8, 1, key=jax.random.key(0)), equinox.is_inexact_array)

    def of_flax(params: Any) -> Any:
        return jnp.square(nnx.merge(graph, params, rest)(X)).mean()

    def of_equinox(params: Any) -> Any:
        return jnp.square(jax.vmap(equinox.combine(params, static))(X)).mean()

    for start, loss_of, names in (
        (trained, of_flax, {"kernel.value", "bias.value"}),
        (network, of_equinox, {f"layers.{layer}.{name}" for layer in (0, 1) for name in ("weight", "bias")}),
    ):
        before = loss_of(start)
        with taut.jax.join(start, optax.adam(0.05), validate=loss_of, better="lower") as worker:
            assert {*worker.parts} == names
            for _ in range(20):
                worker.step(*reversed(jax.value_and_grad(loss_of)(worker.params)))
        assert worker.score == pytest.approx(float(loss_of(worker.params))) and worker.score < before / 2


def test_the_rate_is_a_factor_of_the_updates() -> None:
    with taut.jax.join(params(), optax.sgd(1.0), lr=0.5) as worker:
        worker.step({"weight": jnp.ones(4), "bias": jnp.ones(())})
        worker.lr = 0.25
        worker.step({"weight": jnp.ones(4), "bias": jnp.ones(())})
    assert worker.vector.tolist() == [-0.75] * 5


needs_value = optax.GradientTransformationExtraArgs(
    lambda params: optax.EmptyState(), lambda updates, state, params, *, value: (updates, state)
)


@pytest.mark.parametrize(
    ("tree", "optimizer", "why"),
    [
        ({}, None, "a pytree without arrays"),
        ({"a": 1.0}, None, "the leaf 'a' of type float: expected arrays of float32"),
        ({"a": {"b": np.zeros(2, np.int32)}}, None, "the leaf 'a.b' of type int32: expected float32"),
        ({"a": jnp.zeros(2, jnp.bfloat16)}, None, "of type bfloat16: expected float32"),
        ({"a": np.zeros(2)}, None, "of type float64: expected float32"),
        (equinox.nn.MLP(2, 2, 2, 1, key=jax.random.key(0)), None, "equinox.partition"),
        (np.zeros(2, np.float32), "adam", "join(params, str): expected an optimizer of optax, or none"),
        (np.zeros(2, np.float32), needs_value, "and nothing else; make the steps yourself"),
    ],
)
def test_what_cannot_be_trained_is_refused(tree: Any, optimizer: Any, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        taut.jax.join(tree, optimizer)
    assert why in str(refused.value)


def test_gradients_of_another_form_are_refused_before_anything_changes() -> None:
    with taut.jax.join(params(), optax.sgd(0.1)) as worker:
        for gradient, why in (
            ({"weight": jnp.ones(4)}, "gradients in a pytree that differs in 'bias'"),
            ({"weight": jnp.ones(5), "bias": jnp.ones(())}, "'weight' of shape (5,): expected (4,)"),
        ):
            with pytest.raises(Misuse) as refused:
                worker.step(gradient)
            assert why in str(refused.value)
        with pytest.raises(NonFiniteLoss):
            worker.step(params(), jnp.nan)
    assert not worker.vector.any() and worker.steps == 0
