"""What ``taut.join_vector`` accepts and refuses, alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import taut
from taut.errors import Misuse, NonFiniteLoss
from taut.worker.vector.update_function import UpdateFunction


def sgd(w: Any, gradient: Any, lr: float) -> None:
    w -= lr * gradient


def read_only() -> Any:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    return array


class OfDLPack:
    """An array that has DLPack and nothing else."""

    def __init__(self) -> None:
        self.array = np.zeros(3, np.float32)

    def __dlpack__(self, **given: Any) -> Any:
        return self.array.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize(
    ("array", "options", "why"),
    [
        ([0.0, 1.0], {}, "join_vector(list): expected a NumPy array"),
        (np.zeros(3), {}, "type float64): expected float32"),
        (np.zeros(3, ">f4"), {}, "type >f4): expected float32"),
        (np.zeros(3, np.int32), {}, "type int32): expected float32"),
        (torch.zeros(3, dtype=torch.float64), {}, "type float64): expected float32"),
        (read_only(), {}, "read-only array): expected an array that is trained in place"),
        (np.zeros((3, 4), np.float32).T, {}, "not contiguous)"),
        (np.zeros(6, np.float32)[::2], {}, "not contiguous)"),
        (np.zeros(6, np.float32)[::-1], {}, "not contiguous)"),
        (torch.zeros(3, 4).T, {}, "not contiguous)"),
        (np.zeros(0, np.float32), {}, "an empty array)"),
        (np.zeros(3, np.float32), {"update": 0.1}, "update=0.1): expected a function"),
        (np.zeros(3, np.float32), {"update": sgd, "lr": -1}, "lr=-1: expected a number of at least 0"),
        (np.zeros(3, np.float32), {"update": sgd, "lr": "fast"}, "lr='fast': expected a number"),
        (np.zeros(3, np.float32), {"state": {"m": np.zeros(3, np.float32)}}, "state=...) without update"),
        (np.zeros(3, np.float32), {"update": sgd, "state": {"m": [0.0]}}, "state 'm': expected an array"),
        (np.zeros(3, np.float32), {"update": sgd, "state": {"m": np.zeros(5)}}, "'m' of 5 elements: expected 3"),
        (np.zeros(3, np.float32), {"parts": {"a": (2, 2)}}, "parts of 4 elements: expected 3"),
        (np.zeros(3, np.float32), {"parts": {"a": 3}}, "parts={'a': 3}: expected its shape"),
        (np.zeros(3, np.float32), {"parts": {"": (3,)}}, "names of parts"),
        (np.zeros(3, np.float32), {"parts": {"a": (3, 0), "b": (3,)}}, "sizes of at least 1"),
        (np.zeros(3, np.float32), {"validate": 7}, "validate=7): expected a function"),
        (np.zeros(3, np.float32), {"codec": "tpk"}, "tpk"),
    ],
)
def test_what_cannot_be_trained_is_refused(array: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse) as refused:
        taut.join_vector(array, **options)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    "array", [np.zeros(3, np.float32), np.zeros((3, 1), np.float32), torch.zeros(3), OfDLPack(), np.float32([0, 0, 0])]
)
def test_the_array_itself_is_trained(array: Any) -> None:
    held = array.array if isinstance(array, OfDLPack) else array
    with taut.join_vector(array) as worker:
        held += 1.0
        worker.exchange(0.5, samples=2)
        assert (worker.steps, worker.samples, worker.loss, worker.rank, worker.workers) == (1, 2, 0.5, 0, 1)
        worker.parts["vector"][:] = 4.0
    assert [float(each) for each in held.reshape(-1)] == [4.0] * 3 and worker.vector is array


def test_parts_are_views_with_their_shapes() -> None:
    w = np.arange(6, dtype=np.float32)
    with taut.join_vector(w, parts={"layer.weight": (2, 2), "layer.bias": (2,)}) as worker:
        assert {name: each.tolist() for name, each in worker.parts.items()} == {
            "layer.weight": [[0.0, 1.0], [2.0, 3.0]],
            "layer.bias": [4.0, 5.0],
        }
        worker.parts["layer.bias"] += 1
    assert w[4:].tolist() == [5.0, 6.0] and list(worker.model.state_dict()) == ["layer.weight", "layer.bias"]


@pytest.mark.parametrize(
    "gradient", [np.ones(2), [1, 1], np.ones((1, 2), np.float16), torch.ones(2), OfDLPack().array[:2] + 1]
)
def test_gradients_may_be_of_any_type(gradient: Any) -> None:
    w = np.zeros(2, np.float32)
    with taut.join_vector(w, sgd, lr=0.5) as worker:
        worker.step(gradient)
        worker.lr = 0.25
        worker.step(gradient, clip_norm=1e-9)
        assert worker.lr == 0.25
    assert w == pytest.approx([-0.5, -0.5])


def test_misuse_of_the_worker_is_named() -> None:
    w = np.zeros(2, np.float32)
    worker = taut.join_vector(w, sgd)
    for gradient, why in (
        (np.ones(3), "a gradient of 3: expected one of shape (2,)"),
        ("steep", "step(str): expected the gradient"),
        (np.float32(1), "a gradient of one element"),
    ):
        with pytest.raises(Misuse) as refused:
            worker.step(gradient)
        assert why in str(refused.value)
    with pytest.raises(Misuse, match="lr=nan"):
        worker.lr = float("nan")
    with pytest.raises(NonFiniteLoss, match="loss is nan"):
        worker.step(np.ones(2), float("nan"))
    assert w.tolist() == [0.0, 0.0] and worker.steps == 0
    with pytest.raises(ValueError, match="resize"):
        w.resize(4)  # NumPy itself keeps the array from changing its size while the worker has it
    worker.close()
    for late in (worker.exchange, lambda: worker.step(np.ones(2))):
        with pytest.raises(Misuse, match="after the end of the training"):
            late()


def test_a_step_needs_an_update_function() -> None:
    with taut.join_vector(np.zeros(2, np.float32)) as worker, pytest.raises(Misuse, match="to know what a step is"):
        worker.step(np.ones(2))


def test_an_update_function_keeps_its_arrays_through_a_state_dict() -> None:
    def made() -> tuple[np.ndarray, np.ndarray, np.ndarray, UpdateFunction]:
        w, moved, count = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros((), np.float32)

        def momentum(w: Any, gradient: Any, lr: float) -> None:
            moved[:] = 0.5 * moved + gradient
            count[...] += 1
            w -= lr * moved

        worker = taut.join_vector(
            w, momentum, lr=0.5, state={"moved": moved, "count": count}, parts={"a": (2,), "b": (1,)}, launcher=None
        )
        for _ in range(2):
            worker.step(np.ones(3))
        worker.close()
        return w, moved, count, worker.optimizer

    (w, moved, count, one), (_, fresh, counted, other) = made(), made()
    fresh[:], counted[...] = 0.0, 0.0
    other.load_state_dict(one.state_dict())
    assert fresh.tolist() == moved.tolist() == [1.5] * 3 and float(counted) == float(count) == 2.0
    assert w.tolist() == [-1.25] * 3
    with pytest.raises(ValueError, match="no 'moved' of shape"):
        one.load_state_dict({**other.state_dict(), "state": {0: {"step": torch.ones(())}}})
