"""taut beside libraries that are not installed."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import taut.jax
import taut.keras
from taut.errors import Misuse


@pytest.mark.parametrize("missing", ["jax", "optax"])
def test_what_is_missing_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "optax":
        pytest.importorskip("jax")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Misuse) as refused:
        taut.jax.join({"w": np.zeros(2, np.float32)}, optimizer="adam")
    assert str(refused.value).startswith(f"taut.jax without {missing}: expected JAX and optax; pip install 'taut[jax]'")


def test_keras_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keras", None)
    with pytest.raises(Misuse) as refused:
        taut.keras.join(None)
    assert str(refused.value) == "taut.keras without keras: expected its package; pip install 'taut[keras]'"


@pytest.mark.parametrize(("extra", "missing"), [("lightning", "lightning.pytorch"), ("hf", "transformers")])
def test_a_class_whose_base_is_missing_names_the_extra(extra: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for name in [name for name in sys.modules if name.startswith(f"taut.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Misuse) as refused:
        importlib.import_module(f"taut.{extra}")
    assert str(refused.value).endswith(f"pip install 'taut[{extra}]'")


def test_taut_imports_none_of_the_libraries() -> None:
    libraries = {"jax", "optax", "lightning", "transformers", "keras"}
    code = f"import sys, taut, taut.jax, taut.keras; taut.join; taut.join_vector; print(*{libraries} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
