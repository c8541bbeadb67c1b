"""The hosts of lab.py as fixtures, for the tests of `make test-ssh`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from lab import HOSTS, LAB, STILL, Lab, make_network, until, write_settings


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(400))
        if STILL:
            item.add_marker(pytest.mark.skip(reason=STILL))


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("ssh"))
    lab.folder.chmod(0o755)
    try:
        make_network()
        write_settings(lab.folder)
        yield lab
    finally:
        for name in ("sw", "a", *HOSTS):
            subprocess.run(["ip", "netns", "del", f"{LAB}-{name}"], check=False, capture_output=True)


@pytest.fixture
def lab(network: Lab) -> Iterator[Lab]:
    """The hosts, with nothing on them but an sshd each."""
    for host in HOSTS:
        for folder in network.tmp(host).glob("taut-ssh-*"):
            shutil.rmtree(folder)
        network.cable(host, "up")
        network.start(host)
    try:
        until(lambda: all((network.folder / f"pid-{host}").exists() for host in HOSTS))
        yield network
    finally:
        for host in HOSTS:
            network.kill(host)
            (network.folder / f"pid-{host}").unlink(missing_ok=True)
