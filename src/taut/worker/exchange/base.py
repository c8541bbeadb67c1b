"""How a worker exchanges with the others: by a stream of updates (``stream.py``), or in rounds (``rounds.py``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut.core.callbacks import do_nothing
from taut.core.staleness_counts import Counts
from taut.worker.comm.run_status import RunStatus
from taut.worker.exchange.turns import Turn, Wait
from taut.worker.model.snapshot import Snapshot

if TYPE_CHECKING:
    import torch

    from taut.strategies.allreduce.round_speeds import RoundSpeeds
    from taut.strategies.rate_scaling import RateScaling
    from taut.worker.joining.island_member import IslandMember
    from taut.worker.model.vector_views import FlatParamsCodec


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
    weighs_steps = True  # by their samples and learning rates; else neither is asked for
    counts_bytes = True  # all that is exchanged goes through the run's transport, which counts it
    shares_speeds = False  # in rounds, for parts of a global batch
    scaling: RateScaling | None = None  # of learning rates, by the number of workers
    member: IslandMember | None = None  # this process in its island, if it is of one
    before_own_turn: Callable[[], None] = staticmethod(do_nothing)  # called before each turn without data
    method_state: Any = None  # the method's, where there is one and it has started

    @property
    def coder(self) -> FlatParamsCodec | None:
        """Return the codec of a method that compresses vectors."""
        return None

    @abstractmethod
    def start(self) -> None:
        """Start: every expected worker is here, or the run is going."""

    def attach(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027
        """Attach the optimizer whose steps are meant."""

    def accompany(self, also: Mapping[str, Any]) -> None:  # noqa: B027
        """Take what the script has beside model and optimizer (``join(also=...)``)."""

    def at_batch(self) -> None:  # noqa: B027
        """Prepare for a batch, which is handed out next."""

    def share_speed(self, global_batch: int, speed: float) -> RoundSpeeds | None:
        """Note the speed of this worker (0: unknown) and the samples that all together want in a step (0: no matter),
        for the next round. Return the speeds of a round since the last call, where the strategy ``shares_speeds``."""
        return None

    def prepare(self, samples: int, rate: float, clip_norm: float | None, early: bool = True) -> tuple[float, bool]:
        """Prepare for the gradients of ``samples`` samples; return by what to weigh them, and whether the optimizer's
        step follows. If not, they are kept, and the next ones are added. ``clip_norm``: what they are to be clipped to;
        where gradients are exchanged, ``before_step`` clips. ``early``: they may be sent as soon as they are there."""
        return 1.0, True

    def clip(self, norm: float) -> None:  # noqa: B027
        """Clip the gradients that ``before_step`` exchanges next to this norm."""

    def drop_gradients(self) -> None:  # noqa: B027
        """Drop the gradients that are there: they are not finite, and the next turn is one without samples."""

    def arm(self, samples: int, rate: float) -> None:  # noqa: B027
        """Prepare for the last backward before the optimizer's step: gradients may be sent as soon as they are there."""

    def before_step(self, samples: int, rate: float, members: Collection[int]) -> Iterable[Wait | None]:
        """Return the turn in which the gradients of ``samples`` samples are exchanged, where the strategy does that. The
        optimizers with the numbers ``members`` (of those that were joined) move next, the first at learning rate
        ``rate``."""
        return ()

    @abstractmethod
    def after_step(self, samples: int, rate: float) -> Iterable[Wait | None]:
        """Return the turn that follows a local step."""

    @abstractmethod
    def idle(self) -> None:
        """Include what comes, and serve newcomers, while this worker waits for something else."""

    def own_turn(self, samples: int) -> Turn:
        """Take a turn that the script does not ask for; streams have none."""
        yield from ()

    @abstractmethod
    def wait(self, until: Callable[[RunStatus], bool], again: Callable[[], None]) -> None:
        """Wait for something of the supervisor's, calling ``again`` now and then, as long as that takes."""

    @abstractmethod
    def finish(self) -> None:
        """End, no data being left: return when the run is drained and the replica holds what it ends with."""

    @abstractmethod
    def leave(self) -> None:
        """Leave before the end; nothing of this worker's work is to be lost."""

    def abandon(self) -> None:  # noqa: B027
        """Give this exchange up: the worker was evicted, and rejoins with the same model."""

    def joined(self, have: dict[int, int]) -> None:  # noqa: B027
        """Note that the state came from a donor and contains these updates."""

    def unsent(self, gone: Collection[int]) -> list[Any]:
        """Return what did not reach those who are not ``gone``, and is not in the streams' logs, when this worker was
        evicted."""
        return []

    def welcomed(self, unsent: Sequence[Any]) -> None:  # noqa: B027
        """Send what did not reach the others before, when this worker has rejoined and started."""

    def have(self) -> dict[int, int]:
        """Return the updates that this replica contains."""
        return {}

    def figures(self) -> dict[str, float]:
        """Return what the strategy counts (dropped gradients, rounds, ...). From any thread."""
        return {}

    def staleness_counts(self) -> Counts:
        """Return how many updates were how late since the phase began, where that is measured. From any thread."""
        return ()

    def kept(self) -> dict[str, int]:
        """Return what a checkpoint keeps of this exchange."""
        return {}

    def restore(self, kept: Mapping[str, int]) -> None:  # noqa: B027
        """Go on from there. After ``start``."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Return whether replicas agree to the last bit at the end."""
