"""transformers uses what torch has deprecated: its warnings are not taut's to mend. Nothing is downloaded."""

from __future__ import annotations

import os

import pytest

os.environ |= {"HF_HUB_OFFLINE": "1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))
