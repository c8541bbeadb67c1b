"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import fuzzers
import pytest

import taut
from taut.errors import Misuse

SCRIPTS = "taut.cli.jobs."  # these are run as programs, and train when imported


def modules() -> list[str]:
    found = [
        each.name
        for package in (taut, fuzzers)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None)
    ]
    return [name for name in found if not name.startswith(SCRIPTS)]


def with_examples() -> list[str]:
    """Return the modules whose text has an example."""
    found = []
    for name in modules():
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.origin is not None
        if ">>> " in Path(spec.origin).read_text(encoding="utf-8"):
            found.append(name)
    return found


@pytest.mark.parametrize("module", with_examples())
def test_examples_run(module: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    for each in found:
        told: list[str] = []
        assert runner.run(each, out=told.append).failed == 0, "".join(told)
    assert runner.tries > 0, "the search went blind"


def test_every_module_can_be_imported() -> None:
    for name in modules():
        try:
            importlib.import_module(name)
        except Misuse as missing:
            if not missing.remedy.startswith("pip install 'taut["):  # an extra, whose classes are this module's bases
                raise
