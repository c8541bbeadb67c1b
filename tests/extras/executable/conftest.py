"""An executable of a small job, and a bare root: a folder with the C library of Debian and busybox, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from taut.cli.main import app

USER = 1000  # who is in no /etc/passwd, as in many containers
BARE = Path(sys.prefix) / "bare"  # make test-executable makes it
ENTER = """
user=$1
shift
mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit 99
exec chroot --userspec=$user:$user "$0" /bin/env -i PATH=/bin HOME=/home /bin/sh -c 'cd /home && exec "$@"' sh "$@"
"""
TRAIN = """
import os, subprocess, sys
import torch
from torch.utils.data import DataLoader
import taut
from helpers import make_data

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = make_data()
batches = len(list(DataLoader(data, batch_size=64, num_workers=2)))
with taut.join(model, optimizer) as worker:
    for x, y in worker.batches(data, batch_size=32, epochs=int(sys.argv[-1])):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
worker.print(f"trained: batches={batches} words={sys.argv[1:]} user={os.getuid()} python={sys.executable}")
"""
HELPERS = """
import torch
def make_data():
    x = torch.randn(512, 8)
    return torch.utils.data.TensorDataset(x, x[:, :1])
"""

Enter = Callable[..., list[str]]


@pytest.fixture(scope="session")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(TRAIN)
    (folder / "helpers.py").write_text(HELPERS)
    words = [folder / "train.py", "--executable", "-o", folder / "job", "--workers", "2", "--strategy", "sync"]
    made = CliRunner().invoke(app, ["pack", *map(str, words), "--", "3"])
    assert made.exit_code == 0, made.output
    print(made.stderr)  # with -s: the size, and what is in it
    return folder / "job"


@pytest.fixture(scope="session")
def root(executable: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare") / "root"
    shutil.copytree(BARE, folder, symlinks=True)
    for name in ("proc", "dev", "tmp", "home"):
        (folder / name).mkdir()
    (folder / "tmp").chmod(0o1777)
    shutil.chown(folder / "home", USER, USER)
    said = subprocess.run([folder / "bin" / "busybox", "--list"], capture_output=True, text=True, check=True)
    for name in set(said.stdout.split()) - {"busybox"}:
        (folder / "bin" / name).symlink_to("busybox")
    shutil.move(executable, folder / "home")
    return folder


@pytest.fixture
def enter(root: Path) -> Enter:
    """Return what makes a command line that runs in the root, in which no other process is seen."""
    return lambda *words: ["unshare", "-m", "-p", "-f", "--kill-child", "sh", "-c", ENTER, str(root), str(USER), *words]
