"""The examples in docstrings run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import fuzzers
import pytest

import taut

SCRIPTS = "taut.cli.jobs."  # these are run as programs, and train when imported


def modules() -> list[str]:
    found = [
        each.name
        for package in (taut, fuzzers)
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda name: None)
    ]
    return [name for name in found if not name.startswith(SCRIPTS)]


def examples(module: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [each for each in found if each.examples]


@pytest.mark.parametrize("module", modules())
def test_examples_run(module: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_ONLY_FIRST_FAILURE)
    for each in examples(module):
        told: list[str] = []
        assert runner.run(each, out=told.append).failed == 0, "".join(told)


def test_there_are_examples() -> None:
    """Should the search go blind, the test above would pass with nothing run."""
    assert sum(len(examples(module)) > 0 for module in modules()) > 20
