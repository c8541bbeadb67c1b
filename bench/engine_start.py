"""How long from a command of another engine or launcher to the first step of both workers, beside ``taut run -n 2``?

    python bench/engine_start.py --engine torchrun | mpi | ssh | ray

All commands are started in turn, several times, on one machine; files come from memory and kernels from the cache, as on
any second start. Beside the seconds there is the CPU time of all processes of a command from its start to its end, which
others on the machine change little.

torchrun, mpi: its own start is measured, too: the first step of a plain loop in each process, without taut, and when the
first of those processes began. The bar is on what comes after that, as it is with Ray. Each of their processes imports
torch, which ``taut run`` does once, so the second bar is on the time in times of the plain loop's. ssh: an sshd with keys
of its own listens on this machine, and b is a name for it (needs root and Debian's openssh-server). ray: the cluster runs
already and has room; what counts begins when its actors answer (needs Ray). ``make test-ssh``, ``test-mpi`` and
``test-ray`` install what is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from processes import JOBS, LIMIT_S, TAUT, median_ratio
from report import Row, arguments, report, row

WORKERS = 2
BAR = 1.3
LOCAL = [str(TAUT), "run", "--workers", str(WORKERS), "--threads", "1"]
LAUNCHERS = {
    "torchrun": [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORKERS)],
    "mpi": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", str(WORKERS), sys.executable],
}
PLAIN = """
import time
began = time.monotonic()
import os, sys, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 8)).square().mean().backward()
optimizer.step()
open(os.path.join(sys.argv[1], str(os.getpid())), "w").write(f"{time.monotonic()} {began}")
"""


@dataclass(frozen=True)
class Started:
    """A start: seconds to the last worker's first step; of these, the seconds of the engine's ``own`` start; CPU time."""

    step_s: float
    own_s: float
    cpu_s: float


def started(command: Sequence[str], *, plain: bool = False) -> Started:
    """Run ``command`` with the script of one step, or with a ``plain`` loop, to its end."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        (out := Path(folder) / "steps").mkdir()
        script = JOBS / "first_step.py"
        if plain:
            (script := Path(folder) / "plain.py").write_text(PLAIN)
        settings = {"TAUT_RUNS_DIR": f"{folder}/runs", "TAUT_STRATEGY": "sync"}  # so that each worker gets data
        environment = {**os.environ, **settings, "OMP_NUM_THREADS": "1"}
        used_s, begun_s, wall_s = cpu_s(), time.monotonic(), time.time()
        words = [*command, str(script), str(out)]
        done = subprocess.run(words, check=False, timeout=LIMIT_S, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stderr}")
        stamps = [[float(word) for word in path.read_text().split()] for path in out.iterdir()]
        used_s = cpu_s() - used_s
    if len(stamps) != WORKERS:
        raise SystemExit(f"{len(stamps)} of {WORKERS} workers made a step: the others got no data")
    answered = re.search(r"actors answer at (\d+\.\d+)", done.stderr)
    own_s = float(answered[1]) - wall_s if answered else min(each[-1] for each in stamps) - begun_s if plain else 0.0
    return Started(max(each[0] for each in stamps) - begun_s, own_s, used_s)


def cpu_s() -> float:
    """CPU time of this process's children, and of theirs, until now: those that have ended, and those that run."""
    found: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text(errors="replace").rpartition(")")[2].split()
            found[int(path.parent.name)] = int(words[1]), sum(map(int, words[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, (parent, _) in found.items() if parent in ours} - ours:
        ours |= more
    return sum(found[pid][1] for pid in ours) / os.sysconf("SC_CLK_TCK")


def keep_orphans() -> None:
    """Be the parent of descendants whose own parent ends, so that their CPU time is counted."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


# ------------------------------------------------------------------------------------------------------- engines


@contextmanager
def sshd() -> Iterator[list[str]]:
    """Start an sshd for as long as the block runs; give the command of a run on b, which is this machine."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        os.makedirs("/run/sshd", exist_ok=True)
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/{name}"], check=True)
        known = Path(folder, "host.pub").read_text()
        Path(folder, "known").write_text(f"[127.0.0.1]:{port} {known}")
        Path(folder, "sshd").write_text(
            f"ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host\nPidFile none\nAuthorizedKeysFile {folder}/key.pub\n"
            "StrictModes no\nUsePAM no\nPermitRootLogin prohibit-password\n"
        )
        Path(folder, "config").write_text(
            f"Host b\n  HostName 127.0.0.1\n  Port {port}\n  UserKnownHostsFile {folder}/known\n"
            f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n"
        )
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        with subprocess.Popen([program, "-D", "-f", f"{folder}/sshd"]) as process:
            try:
                ssh = ["--ssh-command", f"ssh -F {folder}/config", "--ssh-python", sys.executable]
                yield [str(TAUT), "run", "--hosts", f"b:{WORKERS}", "--threads", "1", *ssh]
            finally:
                process.terminate()


@contextmanager
def ray_cluster() -> Iterator[list[str]]:
    """Start a Ray cluster for as long as the block runs; give the command of a run on it."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    from ray.cluster_utils import Cluster

    head = {"num_cpus": WORKERS, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        taut = [sys.executable, "-m", "taut", "run", "--workers", str(WORKERS), "--threads", "1", "--log", "info"]
        yield [*taut, "--engine", "ray", "--ray-address", cluster.address]
    finally:
        cluster.shutdown()


@contextmanager
def launcher(name: str) -> Iterator[list[str]]:
    yield LAUNCHERS[name]


def commands(engine: str) -> contextlib.AbstractContextManager[list[str]]:
    engines: dict[str, Callable[[], contextlib.AbstractContextManager[list[str]]]] = {"ssh": sshd, "ray": ray_cluster}
    return launcher(engine) if engine in LAUNCHERS else engines[engine]()


# ------------------------------------------------------------------------------------------------------- figures


def measure(engine: str, repetitions: int) -> list[Row]:
    kept: dict[str, list[Started]] = {"taut run": [], engine: [], "plain": []}
    with commands(engine) as command:
        for repetition in range(repetitions + 1):  # the first warms the caches
            taken = {"taut run": started(LOCAL), engine: started(command)}
            taken["plain"] = started(command, plain=True) if engine in LAUNCHERS else taken[engine]
            for name, value in taken.items() if repetition else ():
                kept[name].append(value)
    local, other, plain = (kept[name] for name in ("taut run", engine, "plain"))
    rows = [
        row(f"{name}: first step", median([each.step_s for each in kept[name]]), "s") for name in ("taut run", engine)
    ]
    rows += [row(f"{name}: CPU time", median([each.cpu_s for each in kept[name]]), "s") for name in ("taut run", engine)]
    excepted = engine != "ssh"  # whose own start is part of taut
    whole = median_ratio([each.step_s for each in other], [each.step_s for each in local])
    rows += [
        row(f"{engine} / taut run", whole, "x", at_most=None if excepted else BAR),
        row(f"{engine} / taut run, CPU time", median_ratio([s.cpu_s for s in other], [s.cpu_s for s in local]), "x"),
    ]
    if engine == "ssh":
        return rows
    own = [each.own_s for each in plain]
    without_own = [each.step_s - its for each, its in zip(other, own, strict=True)]
    ratio = median_ratio(without_own, [each.step_s for each in local])
    rows += [
        row(f"{engine}: its own start", median(own), "s"),
        row(f"{engine} without its own start / taut run", ratio, "x", at_most=BAR),
    ]
    if engine not in LAUNCHERS:
        return rows
    ratio = median_ratio([each.step_s for each in other], [each.step_s for each in plain])
    return [
        *rows,
        row(f"{engine} without taut: first step", median([each.step_s for each in plain]), "s"),
        row(f"{engine} / {engine} without taut", ratio, "x", at_most=BAR),
    ]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def main(args: argparse.Namespace) -> None:
    keep_orphans()
    report(f"engine_start-{args.engine}", measure(args.engine, 1 if args.quick else args.repetitions), args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--engine", choices=[*LAUNCHERS, "ssh", "ray"], default="torchrun")
    parser.add_argument("--repetitions", type=int, default=7)
    main(parser.parse_args())
