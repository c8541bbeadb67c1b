"""Workers as actors of a Ray cluster, one in each bundle of a placement group.

The workers' data goes directly between them, encrypted, as with every engine; Ray carries what starts them, their
output and how they ended. When an actor or its node is lost, its worker is reported as killed, and another actor is
started in the same bundle: Ray places it as soon as a node has room, which may be one that joins the cluster later, and
its worker joins the run.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from taut.engines.base import Engine, Exit
from taut.engines.ray.actor import Node, Task, WorkerActor, fingerprint
from taut.engines.ray.bundles import Bundles, Start, reason_of
from taut.engines.ray.cluster import Connection, connect, node_addresses, node_resources, reserve, the_ray
from taut.engines.ray.resources import actor_options, check_room
from taut.errors import Misuse, RunFailed, TautError
from taut.quantities import parse_resources
from taut.transport.keys import read_token_file
from taut.worker.joining.main_script import module_of

if TYPE_CHECKING:
    from taut.config import Settings

log = logging.getLogger(__name__)
LOOK_S = 90.0  # for the actors to start, which imports taut
CLOSE_S = 5.0  # for the actors to end their workers
LOOPBACK = "127.0.0.1"


class RayEngine(Engine):
    """Workers on the nodes of a Ray cluster.

    Arguments beside those of every engine: the settings ``ray_*``; ``function``: instead of the script, a function that
    runs in the actors' own processes; ``runtime_env``: of the actors, as Ray takes it."""

    name: ClassVar[str] = "ray"
    own_settings: ClassVar[tuple[str, ...]] = ("ray_address", "ray_resources", "ray_placement", "ray_wait_s")
    kept_settings: ClassVar[tuple[str, ...]] = own_settings

    def __init__(
        self,
        *args: Any,
        log_dir: str | Path,
        ray_address: str | None = None,
        ray_resources: str = "CPU=1",
        ray_placement: str = "PACK",
        ray_wait_s: float = 0.0,
        function: Callable[[], object] | None = None,
        runtime_env: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(*args, log_dir=log_dir, **settings)
        self._address, self._each, self._wait_s = ray_address, parse_resources(ray_resources), ray_wait_s
        self._placement, self._function, self._runtime_env = ray_placement, function, runtime_env
        if token_file := self.environment.pop("TAUT_TOKEN_FILE", None):  # a file of this machine
            self.environment["TAUT_TOKEN"] = read_token_file(token_file)
        self._unstarted = set(range(len(self.logs)))
        self._connection: Connection | None = None
        self._group: Any = None
        self._bundles: Bundles | None = None

    @classmethod
    def adapted(cls, settings: Settings, script: str | Path) -> Settings:
        """Connect to the cluster; the supervisor listens at this node's address, and a worker has as many threads as CPUs
        where nothing else was set."""
        each = parse_resources(settings.ray_resources)
        cpus = each.get("CPU", 0.0)
        if settings.devices is not None:
            raise Misuse(
                f"--devices {settings.devices} beside --engine ray", "--ray-resources", "as in GPU=1: Ray deals them"
            )
        connection = connect(settings.ray_address, cpus * settings.workers)
        try:
            if not settings.ray_wait_s:
                check_room(settings.workers, each, node_resources(), settings.ray_placement)
        except TautError:
            connection.close()
            raise
        chosen = settings.sources.get("bind", "default") != "default"
        bind = settings.bind if chosen or connection.local else connection.address
        return replace(settings, bind=bind, threads=settings.threads or max(1, int(cpus)))

    # ------------------------------------------------------------------------------------------------ start

    def start(self) -> None:
        self._connection = connect(self._address, self._each.get("CPU", 0.0) * len(self.logs))
        self._group = reserve(len(self.logs), self._each, self._placement, self._wait_s)
        script = self._shipped_script()
        digest = "" if self._function is not None else fingerprint(self.script)
        settings = {"threads": self.threads, "start": self.start_by, "preload": self.preload, "kernels": self.kernels}
        task = Task(script, self.args, settings, self._function)
        how = Start(self._actor, (os.getcwd(), script, digest), task, self._environment)
        self._bundles = Bundles(how, self.logs, self.own_log)
        self._check_nodes(self._bundles)
        log.info("the Ray actors answer at %.3f", time.time())
        self._bundles.watch()

    def _actor(self, index: int) -> Any:
        """Return a new actor in bundle ``index``."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=index)
        options = actor_options(self._each) | {"scheduling_strategy": where, "max_concurrency": 4, "max_restarts": 0}
        if self._runtime_env:
            options["runtime_env"] = self._runtime_env
        return the_ray().remote(WorkerActor).options(**options).remote()

    def _shipped_script(self) -> str:
        """Return the script's path from the working folder, which another node may have elsewhere."""
        if module_of(self.script) or self._function is not None:
            return self.script
        relative = os.path.relpath(self.script)
        return os.path.abspath(self.script) if relative.startswith("..") else relative

    def _check_nodes(self, bundles: Bundles) -> None:
        """Wait until every actor has told what its node is like. Raise ``TautError`` where a script cannot run there."""
        ray = the_ray()
        calls = [bundle.call for bundle in bundles.all]
        waiting = ray.wait(calls, num_returns=len(calls), timeout=LOOK_S)[1]
        if waiting:
            raise RunFailed(f"{len(waiting)} of {len(calls)} Ray actors did not start within {LOOK_S:.0f} s")
        for call in calls:
            try:
                node = ray.get(call)
            except ray.exceptions.RayError as error:
                raise RunFailed(f"a Ray actor could not be started: {reason_of(error)}") from None
            if node.missing:
                remedy = (
                    "put it there, on a file system that all share, or send it: ray job submit --working-dir . -- ..."
                )
                raise Misuse(
                    f"{self.script} on node {node.host} ({node.missing})", "the same script on every node", remedy
                )

    def _environment(self, node: Node, base: int) -> dict[str, str]:
        """Return the variables for a worker on ``node``: it listens at its own node's address, unless all are on this
        machine."""
        told = self.environment | ({"TAUT_PROCESS_BASE": str(base)} if base else {})
        if self.environment.get("TAUT_BIND", LOOPBACK) == LOOPBACK:
            return told
        told.pop("TAUT_ADVERTISE", None)  # that is the supervisor's
        return told | {"TAUT_BIND": node_addresses().get(node.node_id, node.host)}

    # ------------------------------------------------------------------------------------------------ contract

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        exits: list[Exit] = []
        if self._bundles is None:
            return exits
        self.compiling = self._bundles.compiling
        while True:
            try:
                events = self._bundles.events
                event = events.get(timeout=timeout_s) if timeout_s > 0 else events.get_nowait()
            except queue.Empty:
                return exits
            timeout_s = 0.0
            if isinstance(event, Exit):
                self._unstarted.discard(event.index)
                self.pids.pop(event.pid, None)
                exits.append(event)
            else:
                pid, index = event
                self._unstarted.discard(index)
                self.pids[pid] = self.started[pid] = index

    @property
    def running(self) -> bool:
        return bool(self._unstarted or self.pids)

    def terminate(self) -> None:
        self._end(hard=False)

    def kill(self) -> None:
        self._end(hard=True)

    def _end(self, *, hard: bool) -> None:
        if self._bundles is None:
            return
        self._bundles.over = True
        for bundle in self._bundles.all:
            if bundle.call is not None:
                bundle.actor.end.remote(hard)

    def close(self) -> None:
        if self._connection is None:
            return
        ray = the_ray()
        if self._bundles is not None:
            self._bundles.close()
            begun = [bundle.actor.close.remote() for bundle in self._bundles.all if bundle.node is not None]
            if begun:
                ray.wait(begun, num_returns=len(begun), timeout=CLOSE_S)
            for bundle in self._bundles.all:
                ray.kill(bundle.actor)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
        self._connection.close()
        self._connection = None
