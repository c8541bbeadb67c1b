"""How a worker exchanges with the others: by a stream of updates (``stream.py``), or in rounds (``rounds.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut.errors import SupervisorLost
from taut.worker.comm.comm_thread import AGAIN_S, CommThread
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.turns import Turn
from taut.worker.model.snapshot import Snapshot

if TYPE_CHECKING:
    import torch

    from taut.worker.time_split import Stopwatch


def run_turn(turn: Turn, comm: CommThread, watch: Stopwatch | None, again: Callable[[], None] | None = None) -> None:
    """Carry out ``turn`` in this thread, blocking where it waits. ``watch``: to charge the waits to. ``again`` is called
    now and then in a wait for the supervisor."""
    asked_s = comm.clock.now() if again is not None else 0.0
    for wait in turn:
        if wait is None:
            continue
        if wait.pauses:
            if comm.supervisor_lost():
                raise SupervisorLost("the supervisor fell silent while this worker needed an answer of it")
            comm.pause(wait.idle, wait.until)
            if again is not None and comm.clock.now() - asked_s > AGAIN_S:
                again()
                asked_s = comm.clock.now()
        else:
            comm.wait(lambda _: wait.until(), wait.idle, again, wait.on_supervisor)  # noqa: B023
        if watch is not None:
            watch.charge("wait")


class Exchange(ABC):
    """Everything here belongs to the training thread. ``sent`` and ``included`` count updates or turns."""

    sent = 0
    included = 0
    staleness = 1.0
    gathering = False  # gradients of several micro-batches, for a step that is still to come
    lacks_state = False  # the run's, when it starts: it comes in mid-run, and will be given it
    took_over: Callable[[Snapshot], None] = staticmethod(lambda state: None)  # called when it was
    stepping_itself = False  # the optimizer's step that is being made is not the script's
    exchanges_gradients = False  # in `before_step`, and clips them where `worker.step` is asked to

    @abstractmethod
    def start(self) -> None:
        """Everybody expected is here, or the run is going."""

    def attach(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027
        """The optimizer whose steps are meant."""

    def accompany(self, also: Mapping[str, Any]) -> None:  # noqa: B027
        """What the script has beside model and optimizer (``join(also=...)``)."""

    def at_batch(self) -> None:  # noqa: B027
        """A batch is handed out next."""

    def prepare(self, samples: int, rate: float, clip_norm: float | None) -> tuple[float, bool]:
        """``worker.step`` is about to compute the gradients of ``samples`` samples: by what to weigh them, and whether
        the optimizer's step follows. If not, they are kept, and the next ones are added. ``clip_norm``: what they are to
        be clipped to; where gradients are exchanged, ``before_step`` sees to that."""
        return 1.0, True

    def arm(self, samples: int, rate: float) -> None:  # noqa: B027
        """The next backward is the last before the optimizer's step: gradients may be sent as soon as they are there."""

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> None:  # noqa: B027
        """The gradients of ``samples`` samples are there; the optimizers with the numbers ``members`` (of those that were
        joined) move next, the first at learning rate ``rate``."""

    @abstractmethod
    def after_step(self, samples: int, rate: float) -> None:
        """A local step is over."""

    @abstractmethod
    def idle(self) -> None:
        """While waiting for something else: include what comes, and serve whoever joins."""

    @abstractmethod
    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        """Wait for something of the supervisor's, calling ``again`` now and then, as long as that takes."""

    @abstractmethod
    def finish(self) -> None:
        """No data is left. Returns when the run is drained and the replica holds what it ends with."""

    @abstractmethod
    def leave(self) -> None:
        """This worker goes before the end; nothing of its work is to be lost."""

    def abandon(self) -> None:  # noqa: B027
        """This worker was given up, and takes another place with the same model: this exchange is no more."""

    def joined(self, have: dict[int, int]) -> None:  # noqa: B027
        """The state came from a donor and contains these updates."""

    def unsent(self, gone: Collection[int]) -> list[Any]:
        """This worker was given up: what did not reach those who are not ``gone``, and is not in the streams' logs."""
        return []

    def welcomed(self, unsent: Sequence[Any]) -> None:  # noqa: B027
        """This worker came back, and has started: this did not reach the others before."""

    def have(self) -> dict[int, int]:
        """The updates that this replica contains."""
        return {}

    def figures(self) -> dict[str, float]:
        """What the strategy counts (dropped gradients, rounds, ...). From any thread."""
        return {}

    def kept(self) -> dict[str, int]:
        """What a checkpoint keeps of it."""
        return {}

    def restore(self, kept: Mapping[str, int]) -> None:  # noqa: B027
        """Go on from there. After ``start``."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """At the end, replicas agree to the last bit."""
