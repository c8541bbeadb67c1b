"""Hosts in network namespaces, 10.83.0.1 and so on, each on a cable of its own rate. Needs root and Debian's iproute2."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator

LAB = f"tautnet{os.getpid()}"
NETWORK = "10.83.0"
WHY_NOT = ""  # there are no hosts here
if os.geteuid() != 0:
    WHY_NOT = "network namespaces need root"
elif shutil.which("ip") is None or shutil.which("tc") is None:
    WHY_NOT = "network namespaces need `ip` and `tc`: apt install iproute2"


def sh(words: str) -> str:
    return subprocess.run(words.split(), check=True, capture_output=True, text=True).stdout


def address(host: int) -> str:
    return f"{NETWORK}.{host}"


def on(host: int) -> list[str]:
    """Return the words before a command that is to run on this host."""
    return f"ip netns exec {LAB}-{host}".split()


def cable(host: int, how: str) -> None:
    """Plug a host's cable in ("up"), or pull it out ("down")."""
    sh(f"ip -n {LAB}-sw link set p{host} {how}")


def break_connections(host: int, to: int) -> None:
    """End the TCP connections from one host to another, with what is under way in them."""
    sh(f"ip netns exec {LAB}-{host} ss -K dst {address(to)}")


def bytes_sent(host: int) -> int:
    """Return how many bytes a host has sent so far."""
    (link,) = json.loads(sh(f"ip -n {LAB}-{host} -s -j link show dev eth0"))
    return int(link["stats64"]["tx"]["bytes"])


@contextlib.contextmanager
def hosts(count: int, rate: str) -> Iterator[None]:
    """Make so many hosts, each with ``rate`` (such as 256kbit) in both directions; remove them whatever happens."""
    try:
        sh(f"ip netns add {LAB}-sw")
        sh(f"ip -n {LAB}-sw link add br0 type bridge")
        sh(f"ip -n {LAB}-sw link set br0 up")
        for host in range(1, count + 1):
            own = f"{LAB}-{host}"
            sh(f"ip netns add {own}")
            sh(f"ip -n {own} link set lo up")
            sh(f"ip link add eth0 netns {own} type veth peer name p{host} netns {LAB}-sw")
            sh(f"ip -n {own} addr add {address(host)}/24 dev eth0")
            sh(f"ip -n {own} link set eth0 up")
            sh(f"ip -n {LAB}-sw link set p{host} master br0 up")
            for where, device in ((own, "eth0"), (f"{LAB}-sw", f"p{host}")):
                sh(f"ip netns exec {where} tc qdisc add dev {device} root tbf rate {rate} burst 16kb latency 400ms")
        yield
    finally:
        for name in ("sw", *range(1, count + 1)):
            subprocess.run(["ip", "netns", "del", f"{LAB}-{name}"], check=False, capture_output=True)
