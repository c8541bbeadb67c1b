"""Keras on torch, before anything imports it; its warnings are not taut's to mend."""

from __future__ import annotations

import os

import pytest

os.environ["KERAS_BACKEND"] = "torch"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))
