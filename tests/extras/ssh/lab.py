"""Two hosts with an sshd of their own, in network namespaces: b is 10.79.0.2, c is 10.79.0.3; the tests' commands run at
10.79.0.1. Each host has its own folder for temporary files. Needs root, Debian's iproute2 and openssh-server."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from commands import PATIENCE_S, Command

HOSTS = {"b": "10.79.0.2", "c": "10.79.0.3"}
SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
LAB = f"tautssh{os.getpid()}"
STILL = ""  # why there are no hosts here
if os.geteuid() != 0:
    STILL = "network namespaces need root"
elif shutil.which("ip") is None:
    STILL = "network namespaces need `ip`: apt install iproute2"
elif not Path(SSHD).exists():
    STILL = "no sshd here: apt install openssh-server"


def sh(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        signal.sigtimedwait([], 0.05)


@dataclass
class Lab:
    """``folder`` has keys and settings; ``tmp(host)`` is the folder for temporary files there."""

    folder: Path

    @property
    def ssh(self) -> str:
        return f"ssh -F {self.folder / 'config'}"

    def tmp(self, host: str) -> Path:
        return self.folder / f"tmp-{host}"

    def run(self, cwd: Path, *args: str, **environment: str) -> Command:
        """`taut ARGS` on the machine of the tests, with an `ssh` that knows the lab."""
        path = f"{self.folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return Command(cwd, *args, before=["ip", "netns", "exec", f"{LAB}-a"], PATH=path, **environment)

    def start(self, host: str) -> None:
        self.tmp(host).mkdir(exist_ok=True)
        sh("ip", "netns", "exec", f"{LAB}-{host}", SSHD, "-f", str(self.folder / f"sshd-{host}"))

    def processes(self, host: str) -> list[int]:
        """Processes there but for sshd's: it ends its own last, and does not see that a cable is pulled."""
        pids = map(int, sh("ip", "netns", "pids", f"{LAB}-{host}").split())
        names = {pid: Path(f"/proc/{pid}/comm") for pid in pids}
        return [pid for pid, name in names.items() if name.exists() and name.read_text().strip() != "sshd"]

    def clean(self) -> bool:
        """Whether neither host has a process or a file of a run."""
        return not self.files() and not any(self.processes(host) for host in HOSTS)

    def files(self, hosts: str = "bc") -> list[Path]:
        """The folders of runs there; caches of kernels stay."""
        return [path for host in hosts for path in self.tmp(host).glob("taut-ssh-*")]

    def kill(self, host: str) -> None:
        """End everything there at once, as when the power fails."""
        for pid in map(int, sh("ip", "netns", "pids", f"{LAB}-{host}").split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cable(self, host: str, how: str) -> None:
        sh("ip", "-n", f"{LAB}-sw", "link", "set", f"p{host}", how)


def make_network() -> None:
    sh("ip", "netns", "add", f"{LAB}-sw")
    sh("ip", "-n", f"{LAB}-sw", "link", "add", "br0", "type", "bridge")
    sh("ip", "-n", f"{LAB}-sw", "link", "set", "br0", "up")
    for name, address in {"a": "10.79.0.1", **HOSTS}.items():
        own = f"{LAB}-{name}"
        sh("ip", "netns", "add", own)
        sh("ip", "-n", own, "link", "set", "lo", "up")
        sh(*f"ip link add eth0 netns {own} type veth peer name p{name} netns {LAB}-sw".split())
        sh("ip", "-n", own, "addr", "add", f"{address}/24", "dev", "eth0")
        sh("ip", "-n", own, "link", "set", "eth0", "up")
        sh("ip", "-n", f"{LAB}-sw", "link", "set", f"p{name}", "master", "br0", "up")


def write_settings(folder: Path) -> None:
    """Write keys, one sshd_config for each host, and an ssh_config that knows them."""
    os.makedirs("/run/sshd", exist_ok=True)
    sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key"))
    known = []
    for name, address in HOSTS.items():
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / f"host-{name}"))
        known.append(f"{name},{address} " + (folder / f"host-{name}.pub").read_text())
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        (folder / f"sshd-{name}").write_text(
            f"ListenAddress {address}\nHostKey {folder}/host-{name}\nPidFile {folder}/pid-{name}\n"
            f"AuthorizedKeysFile {folder}/key.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
            f"SetEnv TMPDIR={folder}/tmp-{name}\n"
            f'ForceCommand export PATH={path}; exec sh -c "$SSH_ORIGINAL_COMMAND"\n'  # whatever this user's shell sets
        )
    (folder / "known").write_text("".join(known))
    (folder / "config").write_text(
        "".join(f"Host {name}\n  HostName {address}\n" for name, address in HOSTS.items())
        + "Host stranger\n  HostName 10.79.0.2\n  UserKnownHostsFile /dev/null\nHost nobody\n  HostName 10.79.0.99\n"
        + f"Host *\n  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile /dev/null\n"
        + f"  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  HostKeyAlgorithms ssh-ed25519\n  CheckHostIP no\n"
    )
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
