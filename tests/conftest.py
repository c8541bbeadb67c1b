"""For all tests: one torch thread each, here and in the processes they start. Cores are few, and threads that wait for
each other on busy ones make a test of five seconds one of fifty."""

import atexit
import gc
import glob
import os
import sys
from typing import Any

import examples
import hypothesis
import pytest

gc.disable()  # until all tests are collected: imports make much and drop little

os.environ.setdefault("OMP_NUM_THREADS", "1")

if not glob.glob("/dev/nvidia[0-9]*"):  # Triton decides when it is imported: without a GPU its kernels are interpreted
    os.environ.setdefault("TRITON_INTERPRET", "1")

# How long an example takes says nothing on a machine that others use: pytest's own limit catches what hangs.
# What lands is judged on the same examples every time; `make hunt` looks for others, at random, and more of them.
hypothesis.settings.register_profile("taut", deadline=None, derandomize=True)
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=50)
hypothesis.settings.register_profile("hunt", deadline=None, max_examples=300)
hypothesis.settings.load_profile("taut")


def pytest_configure(config: pytest.Config) -> None:
    """`make test` tries half of the examples of a law, and a third where one example is dear; `make test-all` all."""
    examples.QUICK = config.option.markexpr == "not long"
    if examples.QUICK and not config.getoption("hypothesis_profile", None):
        hypothesis.settings.load_profile("quick")


def pytest_sessionstart(session: pytest.Session) -> None:
    """All tests, side by side: one server of zygotes for all processes, and of these processes themselves."""
    config = session.config
    conducts = not hasattr(config, "workerinput") and config.getoption("numprocesses", None)
    if conducts and config.args_source is pytest.Config.ArgsSource.TESTPATHS and sys.platform == "linux":
        import forked_zygotes

        forked_zygotes.server_address()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """The processes that run tests side by side are forks of the server, too: each would import torch and numba anew."""
    if "forked_zygotes" in sys.modules:
        for spec in specs:
            spec.python = sys.modules["forked_zygotes"].python_for_tests()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with processes come first: they take long and wait, and the others fill the time that is left."""
    paths = {item.path for item in items}
    later = {path: (path.parent.name != "integration", "_integration" not in path.name) for path in paths}
    items.sort(key=lambda item: later[item.path])


def pytest_collection_finish() -> None:
    """Real workers come from zygotes that share their imports."""
    gc.freeze()  # what was imported stays: the collector need not look at it again and again
    atexit.register(gc.unfreeze)  # else nanobind takes it for leaks
    gc.enable()
    if sys.platform == "linux" and "taut.testing.cluster" in sys.modules:
        from forked_zygotes import ForkedEngine

        sys.modules["taut.testing.cluster"].LocalCluster.engine = ForkedEngine


def pytest_unconfigure() -> None:
    if "forked_zygotes" in sys.modules:
        sys.modules["forked_zygotes"].close()
