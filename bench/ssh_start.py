"""How long from ``taut run --hosts b:2 SCRIPT`` to the first step of both workers, beside ``taut run -n 2 SCRIPT``?

An sshd with keys of its own listens on this machine; b and c are names for it. ``b:2`` is what ssh and the checks cost;
``b,c`` imports torch twice, on the cores of one machine, where two hosts would have their own. All are started in turn,
several times. Needs root and Debian's openssh-server (``make test-ssh`` installs it).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launchers import WORKERS, seconds
from processes import JOBS, TAUT, median_ratio
from report import Row, arguments, report, row


@contextmanager
def sshd() -> Iterator[str]:
    """Start an sshd for as long as the block runs; give the ssh command that reaches it as b and as c."""
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
            f"Host b c\n  HostName 127.0.0.1\n  Port {port}\n  UserKnownHostsFile {folder}/known\n"
            f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n"
        )
        program = shutil.which("sshd") or "/usr/sbin/sshd"
        with subprocess.Popen([program, "-D", "-f", f"{folder}/sshd"]) as process:
            try:
                yield f"ssh -F {folder}/config"
            finally:
                process.terminate()


def measure(repetitions: int) -> list[Row]:
    job = JOBS / "first_step.py"
    times: dict[str, list[float]] = {"local": [], "b:2": [], "b,c": []}
    with sshd() as ssh:
        flags = ["--quiet", "--ssh-command", ssh, "--ssh-python", sys.executable]
        for repetition in range(repetitions + 1):  # the first warms the caches
            taken = {"local": seconds([str(TAUT), "run", "--workers", str(WORKERS), "--quiet"], job)}
            taken |= {hosts: seconds([str(TAUT), "run", "--hosts", hosts, *flags], job) for hosts in ("b:2", "b,c")}
            if repetition:
                for name, value in taken.items():
                    times[name].append(value)
    return [
        row("taut run: first step", statistics.median(times["local"]), "s"),
        row("taut run --hosts b:2: first step", statistics.median(times["b:2"]), "s"),
        row("taut run --hosts b,c: first step", statistics.median(times["b,c"]), "s"),
        row("--hosts b:2 / taut run", median_ratio(times["b:2"], times["local"]), "x", at_most=1.3),
        row("--hosts b,c, of one machine / taut run", median_ratio(times["b,c"], times["local"]), "x"),
    ]


def main(args: argparse.Namespace) -> None:
    report("ssh_start", measure(2 if args.quick else 7), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())
