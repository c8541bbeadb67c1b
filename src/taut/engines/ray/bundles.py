"""The workers' actors while the run goes: a thread asks each what is new, and replaces one that is lost.

An actor is asked `look`, then `begin`, then `news` again and again (actor.py). What happens to the workers are events for
the engine's `poll`. A worker that was killed, or whose actor or node is lost, is replaced until one worker has finished.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.engines.base import Exit
from taut.engines.local import describe_exit
from taut.engines.ray.actor import News, Node, Task
from taut.engines.ray.cluster import the_ray
from taut.errors import Misuse

RESTARTS = 20  # of one worker
WAIT_S, AGAIN_S = 0.2, 0.5  # for news; before another try
SILENT_S = 10.0  # for an answer, which takes a second, when the run is over
NODE_STEP = 10_000_000  # process ids of the second node begin here: above those of any system
TOO_LATE = "came when the run was over"


@dataclass(frozen=True)
class Start:
    """How a worker is started: an ``actor`` for a bundle, what it is asked at first, and its work on a node."""

    actor: Callable[[int], Any]
    look: tuple[str, str, str]  # the working folder, the script, its digest
    task: Task
    environment: Callable[[Node, int], dict[str, str]]  # for a node, and the base of its process ids


@dataclass
class Bundle:
    """A bundle, and the actor in it. ``pid`` is 0 until its worker has started; ``offset``: how much output is here."""

    index: int
    actor: Any = None
    call: Any = None  # that is under way
    again: Callable[[], Any] | None = None  # makes the same call once more
    asked_s: float = 0.0  # when the call was made first
    node: Node | None = None
    pid: int = 0
    offset: int = 0
    starts: int = 0  # actors so far
    begun: bool = False  # a worker was started here once


class Bundles:
    """The bundles of all workers. ``events``: a worker's process id and index when it starts, its ``Exit`` when it ends;
    ``over``: no more workers are started; ``compiling``: as the engine has it."""

    def __init__(self, start: Start, logs: Sequence[Path], own_log: Path) -> None:
        self.all = [Bundle(index) for index in range(len(logs))]
        self.events: queue.SimpleQueue[tuple[int, int] | Exit] = queue.SimpleQueue()
        self.over = False
        self.compiling: tuple[int, int] | None = None
        self._start, self._logs, self._own_log = start, logs, own_log
        self._nodes = {the_ray().get_runtime_context().get_node_id(): 0}  # numbers; this process's own is 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="engine", daemon=True)
        for bundle in self.all:
            self._fill(bundle)

    def watch(self) -> None:
        """Begin to watch the actors, in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Watch no longer."""
        self.over = True
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _fill(self, bundle: Bundle) -> None:
        """Put a new actor into the bundle, and ask it what its node is like."""
        actor = self._start.actor(bundle.index)
        bundle.actor, bundle.node, bundle.pid, bundle.offset, bundle.starts = actor, None, 0, 0, bundle.starts + 1
        self._ask(bundle, lambda: actor.look.remote(*self._start.look))

    def _ask(self, bundle: Bundle, call: Callable[[], Any]) -> None:
        bundle.again, bundle.asked_s = call, time.monotonic()
        bundle.call = call()

    def _base(self, node: Node) -> int:
        """Return what is added to process ids of a node, which repeat between machines."""
        return NODE_STEP * self._nodes.setdefault(node.node_id, len(self._nodes))

    # ------------------------------------------------------------------------------------------------ answers

    def _watch(self) -> None:
        try:
            while not self._closing.is_set():
                self._turn()
        except Exception as error:  # the connection to Ray, or a fault of ours: nobody would tell of the workers any more
            self._append(self._own_log, f"{type(error).__name__}: {error}\n".encode())
            for bundle in self.all:
                if bundle.pid or not bundle.begun:
                    self.events.put(Exit(bundle.pid, f"lost with Ray, see {self._own_log}", False, bundle.index, 1))

    def _turn(self) -> None:
        calls = {bundle.call: bundle for bundle in self.all if bundle.call is not None}
        if not calls:
            self._closing.wait(WAIT_S)
            return
        for call in the_ray().wait(list(calls), timeout=WAIT_S)[0]:
            self._heard(calls[call])
        if self.over:
            self._give_up_silent()

    def _give_up_silent(self) -> None:
        """Wait no longer for nodes that do not answer, once the others have finished: Ray itself waits for a minute."""
        for bundle in self.all:
            if bundle.call is not None and time.monotonic() - bundle.asked_s > SILENT_S:
                the_ray().kill(bundle.actor)
                self._lost(bundle, f"silent for {SILENT_S:.0f} s")

    def _heard(self, bundle: Bundle) -> None:
        """Take an actor's answer, and ask it the next thing."""
        ray = the_ray()
        try:
            answer = ray.get(bundle.call)
        except ray.exceptions.ActorUnavailableError:  # it may come back: Ray does not know yet
            self._closing.wait(AGAIN_S)
            assert bundle.again is not None
            bundle.call = bundle.again()
        except ray.exceptions.RayActorError as error:
            self._lost(bundle, reason_of(error))
        except ray.exceptions.RayError as error:  # a fault of ours, or of the node: the actor is of no use
            ray.kill(bundle.actor)
            self._lost(bundle, reason_of(error))
        else:
            self._answered(bundle, answer)

    def _answered(self, bundle: Bundle, answer: Node | News | None) -> None:
        actor = bundle.actor
        if isinstance(answer, Node):
            bundle.node = answer
            if answer.missing:
                self._lost(bundle, answer.missing)
                return
            environment = self._start.environment(answer, self._base(answer))
            self._ask(bundle, lambda: actor.begin.remote(self._start.task, environment))
            return
        if isinstance(answer, News):
            self._told(bundle, answer)
            if answer.code is not None:
                self._ended(bundle, answer.code)
                return
        self._ask(bundle, lambda: actor.news.remote(bundle.offset))

    def _told(self, bundle: Bundle, news: News) -> None:
        self.compiling = news.compiling
        if news.pid and not bundle.pid:
            assert bundle.node is not None
            bundle.pid, bundle.begun = news.pid + self._base(bundle.node), True
            self.events.put((bundle.pid, bundle.index))
        if news.output:
            bundle.offset += len(news.output)
            self._append(self._logs[bundle.index], news.output)
            if news.code is not None and not bundle.pid:
                self._append(self._own_log, news.output)

    def _append(self, log: Path, output: bytes) -> None:
        with suppress(OSError), open(log, "ab") as file:  # a full disk does not end a run
            file.write(output)

    # ------------------------------------------------------------------------------------------------ ends

    def _ended(self, bundle: Bundle, code: int) -> None:
        """Note that a worker ended. One that was killed is replaced; once one has finished, no more are."""
        bundle.call = None
        late = self.over and bundle.starts > 1 and code == Misuse.exit_code  # it found that the run is over
        reason = TOO_LATE if late else describe_exit(code)
        self.events.put(Exit(bundle.pid, reason, code == 0 or late, bundle.index, 0 if late else code))
        if code == 0:
            self._stop_replacing()
        elif code < 0:
            the_ray().kill(bundle.actor)
            self._replace(bundle, reason)

    def _lost(self, bundle: Bundle, reason: str) -> None:
        """Note that an actor is gone, and its worker with it."""
        where = bundle.node.host if bundle.node is not None else "an unknown node"
        bundle.call = None
        self._append(self._own_log, f"worker {bundle.index} on {where}: {reason}\n".encode())
        if bundle.pid:
            self.events.put(Exit(bundle.pid, f"killed by the loss of its actor on {where}", False, bundle.index, -9))
        self._replace(bundle, reason)

    def _replace(self, bundle: Bundle, reason: str) -> None:
        if not self.over and bundle.starts <= RESTARTS:
            self._closing.wait(AGAIN_S)
            self._fill(bundle)
        elif not bundle.begun:
            late = self.over  # the others have finished without it
            self.events.put(Exit(0, TOO_LATE if late else reason, late, bundle.index, 0 if late else 1))

    def _stop_replacing(self) -> None:
        """Start no more workers, and give up those that wait for a node."""
        self.over = True
        for bundle in self.all:
            if bundle.call is not None and not bundle.pid and bundle.starts > 1:
                bundle.call = None
                the_ray().kill(bundle.actor)


def reason_of(error: Exception) -> str:
    """Return the last line of Ray's text that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
