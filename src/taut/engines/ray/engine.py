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
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from taut.engines.base import Engine, Exit
from taut.engines.local import describe_exit
from taut.engines.ray.actor import News, Node, Task, WorkerActor, fingerprint
from taut.engines.ray.cluster import Connection, connect, node_addresses, node_resources, reserve, the_ray
from taut.engines.ray.resources import actor_options, check_room
from taut.engines.script import module_of
from taut.errors import Misuse, RunFailed, TautError
from taut.quantities import parse_resources
from taut.transport.keys import read_token_file

if TYPE_CHECKING:
    from taut.config import Settings

log = logging.getLogger(__name__)
RESTARTS = 20  # of one worker
LOOK_S = 90.0  # for the actors to start, which imports taut
WAIT_S, AGAIN_S, CLOSE_S = 0.2, 0.5, 5.0  # for news; before another try; for the actors to end their workers
LOOPBACK = "127.0.0.1"
NODE_STEP = 10_000_000  # process ids of the second node begin here: above those of any system


@dataclass
class Place:
    """A bundle, and the actor in it. ``pid`` is 0 until its worker has started; ``offset``: how much output is here."""

    index: int
    actor: Any = None
    call: Any = None  # that is under way
    again: Callable[[], Any] | None = None  # makes the same call once more
    node: Node | None = None
    pid: int = 0
    offset: int = 0
    starts: int = 0


@dataclass
class _Numbers:
    """Numbers of nodes, by which process ids of several machines are told apart. This process's node has number 0."""

    known: dict[str, int] = field(default_factory=dict)

    def base(self, node_id: str) -> int:
        return NODE_STEP * self.known.setdefault(node_id, len(self.known))


class RayEngine(Engine):
    """Workers on the nodes of a Ray cluster.

    Arguments beside those of every engine: the settings ``ray_*``; ``function``: instead of the script, a function that
    runs in the actors' own processes; ``runtime_env``: of the actors, as Ray takes it."""

    name: ClassVar[str] = "ray"
    own_settings: ClassVar[tuple[str, ...]] = ("ray_address", "ray_resources", "ray_placement", "ray_wait_s")

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
        self.places = [Place(index) for index in range(len(self.logs))]
        self._unstarted = set(range(len(self.logs)))
        self._events: queue.SimpleQueue[tuple[int, int] | Exit] = queue.SimpleQueue()
        self._numbers, self._over, self._closing = _Numbers(), False, threading.Event()
        self._connection: Connection | None = None
        self._group: Any = None
        self._thread: threading.Thread | None = None

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
        ray = the_ray()
        self._connection = connect(self._address, self._each.get("CPU", 0.0) * len(self.logs))
        self._numbers.base(ray.get_runtime_context().get_node_id())
        self._group = reserve(len(self.logs), self._each, self._placement, self._wait_s)
        for place in self.places:
            self._fill(place)
        self._check_nodes()
        log.info("the Ray actors answer at %.3f", time.time())
        self._thread = threading.Thread(target=self._watch, name="engine", daemon=True)
        self._thread.start()

    def _fill(self, place: Place) -> None:
        """Put a new actor into the place, and ask it what its node is like."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=place.index)
        options = actor_options(self._each) | {"scheduling_strategy": where, "max_concurrency": 4, "max_restarts": 0}
        if self._runtime_env:
            options["runtime_env"] = self._runtime_env
        place.actor = the_ray().remote(WorkerActor).options(**options).remote()
        place.node, place.pid, place.offset, place.starts = None, 0, 0, place.starts + 1
        script = self._shipped_script()
        digest = "" if self._function is not None else fingerprint(self.script)
        self._ask(place, lambda: place.actor.look.remote(os.getcwd(), script, digest))

    def _ask(self, place: Place, call: Callable[[], Any]) -> None:
        place.again = call
        place.call = call()

    def _shipped_script(self) -> str:
        """Return the script's path from the working folder, which another node may have elsewhere."""
        if module_of(self.script) or self._function is not None:
            return self.script
        relative = os.path.relpath(self.script)
        return os.path.abspath(self.script) if relative.startswith("..") else relative

    def _check_nodes(self) -> None:
        """Wait until every actor has told what its node is like. Raise ``TautError`` where a script cannot run there."""
        ray = the_ray()
        calls = [place.call for place in self.places]
        waiting = ray.wait(calls, num_returns=len(calls), timeout=LOOK_S)[1]
        if waiting:
            raise RunFailed(f"{len(waiting)} of {len(calls)} Ray actors did not start within {LOOK_S:.0f} s")
        for call in calls:
            try:
                node = ray.get(call)
            except ray.exceptions.RayError as error:
                raise RunFailed(f"a Ray actor could not be started: {_reason(error)}") from None
            if node.missing:
                remedy = (
                    "put it there, on a file system that all share, or send it: ray job submit --working-dir . -- ..."
                )
                raise Misuse(
                    f"{self.script} on node {node.host} ({node.missing})", "the same script on every node", remedy
                )

    def _environment(self, node: Node) -> dict[str, str]:
        """Return the variables for a worker on ``node``: it listens at its own node's address, unless all are on this
        machine."""
        base = self._numbers.base(node.node_id)
        told = self.environment | ({"TAUT_PROCESS_BASE": str(base)} if base else {})
        if self.environment.get("TAUT_BIND", LOOPBACK) == LOOPBACK:
            return told
        told.pop("TAUT_ADVERTISE", None)  # that is the supervisor's
        return told | {"TAUT_BIND": node_addresses().get(node.node_id, node.host)}

    # ------------------------------------------------------------------------------------------------ watch

    def _watch(self) -> None:
        try:
            self._follow()
        except Exception as error:  # the connection to Ray, or a fault of ours: nobody would tell of the workers any more
            self._append(self.own_log, f"{type(error).__name__}: {error}\n".encode())
            for place in self.places:
                if place.pid or place.index in self._unstarted:
                    self._events.put(Exit(place.pid, f"lost with Ray, see {self.own_log}", False, place.index, 1))

    def _follow(self) -> None:
        ray = the_ray()
        while not self._closing.is_set():
            calls = {place.call: place for place in self.places if place.call is not None}
            if not calls:
                self._closing.wait(WAIT_S)
                continue
            for call in ray.wait(list(calls), timeout=WAIT_S)[0]:
                self._heard(calls[call])

    def _heard(self, place: Place) -> None:
        """Take an actor's answer, and ask it the next thing."""
        ray = the_ray()
        try:
            answer = ray.get(place.call)
        except ray.exceptions.ActorUnavailableError:  # it may come back: Ray does not know yet
            self._closing.wait(AGAIN_S)
            assert place.again is not None
            place.call = place.again()
        except ray.exceptions.RayActorError as error:
            self._lost(place, _reason(error))
        except ray.exceptions.RayError as error:  # a fault of ours, or of the node: the actor is of no use
            ray.kill(place.actor)
            self._lost(place, _reason(error))
        else:
            self._answered(place, answer)

    def _answered(self, place: Place, answer: Node | News | None) -> None:
        actor = place.actor
        if isinstance(answer, Node):
            place.node = answer
            if answer.missing:
                self._lost(place, answer.missing)
                return
            settings = {"threads": self.threads, "start": self.start_by, "preload": self.preload, "kernels": self.kernels}
            task = Task(self._shipped_script(), self.args, settings, self._function)
            environment = self._environment(answer)
            self._ask(place, lambda: actor.begin.remote(task, environment))
            return
        if isinstance(answer, News):
            self._told(place, answer)
            if answer.code is not None:
                self._ended(place, answer.code)
                return
        self._ask(place, lambda: actor.news.remote(place.offset))

    def _told(self, place: Place, news: News) -> None:
        self.compiling = news.compiling
        if news.pid and not place.pid:
            assert place.node is not None
            place.pid = news.pid + self._numbers.base(place.node.node_id)
            self._events.put((place.pid, place.index))
        if news.output:
            place.offset += len(news.output)
            self._append(self.logs[place.index], news.output)
            if news.code is not None and not place.pid:
                self._append(self.own_log, news.output)

    def _append(self, log: Path, output: bytes) -> None:
        with suppress(OSError), open(log, "ab") as file:  # a full disk does not end a run
            file.write(output)

    def _ended(self, place: Place, code: int) -> None:
        """Note that a worker ended. One that was killed is replaced; once one has finished, no more are."""
        place.call = None
        late = self._over and place.starts > 1 and code == Misuse.exit_code  # it found that the run is over
        reason = "came when the run was over" if late else describe_exit(code)
        self._events.put(Exit(place.pid, reason, code == 0 or late, place.index, 0 if late else code))
        if code == 0:
            self._stop_replacing()
        elif code < 0:
            the_ray().kill(place.actor)
            self._replace(place, reason)

    def _lost(self, place: Place, reason: str) -> None:
        """Note that an actor is gone, and its worker with it."""
        where = place.node.host if place.node is not None else "an unknown node"
        place.call = None
        self._append(self.own_log, f"worker {place.index} on {where}: {reason}\n".encode())
        if place.pid:
            self._events.put(Exit(place.pid, f"killed by the loss of its actor on {where}", False, place.index, -9))
        self._replace(place, reason)

    def _replace(self, place: Place, reason: str) -> None:
        if not self._over and place.starts <= RESTARTS:
            self._closing.wait(AGAIN_S)
            self._fill(place)
        elif place.index in self._unstarted and not place.pid:
            self._events.put(Exit(0, reason, False, place.index, 1))

    def _stop_replacing(self) -> None:
        """Start no more workers, and give up those that wait for a node."""
        self._over = True
        for place in self.places:
            if place.call is not None and not place.pid and place.starts > 1:
                place.call = None
                the_ray().kill(place.actor)

    # ------------------------------------------------------------------------------------------------ contract

    def poll(self, timeout_s: float = 0.0) -> list[Exit]:
        exits: list[Exit] = []
        while True:
            try:
                event = self._events.get(timeout=timeout_s) if timeout_s > 0 else self._events.get_nowait()
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
        self._over = True
        for place in self.places:
            if place.call is not None:
                place.actor.end.remote(hard)

    def close(self) -> None:
        if self._connection is None:
            return
        ray = the_ray()
        self._over = True
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        actors = [place.actor for place in self.places if place.actor is not None]
        begun = [place.actor.close.remote() for place in self.places if place.node is not None]
        if begun:
            ray.wait(begun, num_returns=len(begun), timeout=CLOSE_S)
        for actor in actors:
            ray.kill(actor)
        if self._group is not None:
            ray.util.remove_placement_group(self._group)
        self._connection.close()
        self._connection = None


def _reason(error: Exception) -> str:
    """Return the last line of Ray's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
