"""A Ray cluster: connect to one, or start one on this machine; reserve a bundle for each worker; let go of both."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from taut.config import cores
from taut.engines.ray.resources import Resources, check_room, nodes_text, resources_text
from taut.errors import Misuse, RunFailed

ANSWER_S = 5.0  # for the port of a cluster to answer
BUSY_S = 30.0  # for bundles that others use now, where the user names no time
LOCAL = "local"


@dataclass(frozen=True)
class Connection:
    """This process's connection to a cluster. ``own``: it was made here, and is ended here; ``local``: so was the
    cluster, for this run alone; ``address``: this node's, by which other nodes reach it."""

    address: str
    own: bool
    local: bool = False

    def close(self) -> None:
        """End the connection; a cluster that was started for it ends, too."""
        if self.own:
            the_ray().shutdown()


def the_ray() -> Any:
    """Return the package ``ray``; ``Misuse`` where it is not installed."""
    try:
        import ray
    except ImportError:
        ray = None
    if ray is None or ray.__file__ is None:  # without a file: a folder of that name somewhere on the path
        raise Misuse("taut on a Ray cluster", "the package ray to be installed", "it needs Ray: pip install 'taut[ray]'")
    return ray


def connect(address: str | None, cpus: float) -> Connection:
    """Connect to the cluster at ``address``, else at ``RAY_ADDRESS``, else start one here with ``cpus`` or more.

    A process that is connected already stays as it is."""
    ray = the_ray()
    if ray.is_initialized():
        return Connection(own_address(), own=False)
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address == LOCAL:
        options |= {"num_cpus": max(cores(), math.ceil(cpus)), "include_dashboard": False}
    else:
        _check_address(address)
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Misuse(f"--ray-address {address}", f"a Ray cluster that takes this process ({reason})", _START) from None
    return Connection(own_address(), own=True, local=address == LOCAL)


_START = "`ray start --head` starts one and shows its address; without --ray-address one is started for the run"


def _check_address(address: str) -> None:
    """Raise ``Misuse`` where nothing answers at ``address``: Ray itself would try for a minute."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        remedy = "on a machine of the cluster; from elsewhere: ray job submit -- taut run --engine ray ..."
        raise Misuse(f"--ray-address {address}", "HOST:PORT, auto, or local", remedy)
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        reason = f"nothing came back for {ANSWER_S:.0f} s" if isinstance(error, TimeoutError) else error.strerror or error
        raise Misuse(f"--ray-address {address}", f"a Ray cluster that answers ({reason})", _START) from None


def node_addresses() -> dict[str, str]:
    """Return the address of each node that lives, by the node's id: the one that the nodes use among themselves."""
    return {node["NodeID"]: str(node["NodeManagerAddress"]) for node in the_ray().nodes() if node["Alive"]}


def own_address() -> str:
    """Return the address of this process's node."""
    return node_addresses()[the_ray().get_runtime_context().get_node_id()]


def node_resources() -> list[Resources]:
    """Return what each node that lives has in all."""
    return [node["Resources"] for node in the_ray().nodes() if node["Alive"]]


def reserve(workers: int, each: Resources, placement: str, wait_s: float) -> Any:
    """Return a placement group with one bundle for each worker, all of them there.

    Raise ``Misuse`` where the cluster is too small and nobody said that it grows (``wait_s``), ``RunFailed`` where the
    bundles did not come in time. Nothing stays reserved then."""
    ray = the_ray()
    from ray.util.placement_group import placement_group, remove_placement_group

    if not wait_s:
        check_room(workers, each, node_resources(), placement)
    try:
        group = placement_group([dict(each)] * workers, strategy=placement, name="taut")
    except ValueError as error:
        raise Misuse(f"--ray-resources {resources_text(each)}", "resources that Ray knows", str(error)) from None
    deadline = time.monotonic() + (wait_s or BUSY_S)
    try:
        while not group.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                check_room(workers, each, node_resources(), placement)
                free = ray.available_resources()
                raise RunFailed(
                    f"the Ray cluster has room for {workers} workers with {resources_text(each)} each "
                    f"({nodes_text(node_resources(), each)}), but others use it: free are now "
                    f"{resources_text({name: free.get(name, 0.0) for name in each})}; --ray-wait-s 600 waits for longer"
                )
    except BaseException:
        remove_placement_group(group)
        raise
    return group
