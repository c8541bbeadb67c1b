"""What a method that exchanges vectors is: events in, actions out, as for every strategy; its messages never get lost.

A *method* sees its worker's vector x (weights after the local step, or gradients before it), which it changes in place
while it handles an event, and nothing else of the world. The shell (``worker/exchange/rounds.py``, the simulator) tells
it:

    Stepped    the worker made a local step and waits: x is the method's until it answers ``Proceed``
    Heard      a message came (once, in order per sender: ``channels.py`` sees to that)
    MembersChanged  the members changed, and with them the graph
    Ended      the worker has no data left; it goes on taking turns (``Stepped`` with no samples) for the others' sake
    Draining   the run is over, for everybody
    Leaving    this worker goes, and the others go on; it stays, in turns without data, while the method is ``owing``

and carries out its answers: ``Tell`` (post a message), ``Proceed`` (after ``Stepped``: take the next step) and
``Finished`` (after ``Draining``: nobody waits for this worker any more, and it waits for nobody).

Between ``Proceed`` and the next ``Stepped`` the worker trains, and ``Heard`` is held back until it stops, so that x is
never touched by two. A method that is ``concurrent`` is told at once, and must leave x alone then.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from msgspec import Struct

from taut.core.events import Ended, Heard, Tell
from taut.core.messages import Note
from taut.core.staleness_counts import Counts
from taut.strategies.info import (
    ADVISED,
    ANY_CODEC,
    ANY_COMPRESSOR,
    ANY_FAITHFUL,
    ANY_FINE,
    Completeness,
    StrategyInfo,
    Variant,
)
from taut.strategies.local import CodedLocal, Local, Vector, VectorCoder, Wish

if TYPE_CHECKING:
    from taut.topologies.graph import Graph
    from taut.topologies.shape import Shape

# From other files, for those who write a method.
__all__ = [
    "ADVISED",
    "ANY_CODEC",
    "ANY_COMPRESSOR",
    "ANY_FAITHFUL",
    "ANY_FINE",
    "CodedLocal",
    "Completeness",
    "Ended",
    "Heard",
    "Local",
    "Note",
]
__all__ += ["StrategyInfo", "Tell", "Variant", "Vector", "VectorCoder", "Wish"]


@lru_cache(maxsize=64)
def _wired(shape: Shape, members: tuple[int, ...], round: int) -> Graph:
    return shape.wire(members, round)


@dataclass(frozen=True)
class Membership:
    """The members as one of them sees them: its own rank, all (sorted, itself among them) and the topology over them. All
    who have the same ``version`` have the same members."""

    rank: int
    members: tuple[int, ...]
    shape: Shape
    version: int = 0

    def graph(self, round: int = 0) -> Graph:
        if self.shape.varies:
            return _wired(self.shape, self.members, round)
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        # Kept: to find it by the members costs their hash, at every step of each of thousands in a simulation.
        return _wired(self.shape, self.members, 0)

    def neighbours(self, round: int = 0) -> list[int]:
        return self.graph(round).neighbours(self.rank)

    @cached_property
    def others(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.members if rank != self.rank)


# ------------------------------------------------------------------------------------------------------- events


class Stepped(Struct, frozen=True):
    """A local step on ``samples`` samples at learning rate ``rate`` is over (none: the worker has run out of data)."""

    samples: int
    rate: float = 0.0


class MembersChanged(Struct, frozen=True):
    """The members changed. Who is missing from ``membership`` is gone and will say nothing more."""

    membership: Membership


class Draining(Struct, frozen=True):
    """The run is over for everybody."""


class Leaving(Struct, frozen=True):
    """This worker goes before the end: it makes no more steps, and tells what is still worth sending. What its codec
    keeps beyond that is handed on by the shell (``residual_handoff.py``)."""


class HeldUp(Struct, frozen=True):
    """This worker has waited in its turn for far longer than it ever does: somebody may have died. It has data to train
    on meanwhile, or has got some. Only methods that ``drifts`` are told."""


MethodEvent = Stepped | Heard | MembersChanged | Ended | Draining | Leaving | HeldUp

# ------------------------------------------------------------------------------------------------------ actions


class Proceed(Struct, frozen=True):
    """The worker may take its next step; x is its own again."""


class Finished(Struct, frozen=True):
    """This worker's part is over. x is what it ends with."""


class Refuse(Struct, frozen=True):
    """A message of ``sender`` is refused for this reason, and the method goes on without it. (Where nothing follows from
    a refusal, raising ``MalformedMessage`` is the same.)"""

    sender: int
    why: str


MethodAction = Tell | Proceed | Finished | Refuse


class Method(ABC):
    """A frozen dataclass of hyper-parameters; ``start`` makes the state, ``on`` changes it and answers.

    ``vector``: what x is. ``consensus``: after ``Finished`` all replicas are equal. ``topologies``: the shapes it is
    meant for (empty: any). ``directed``: whether it works on directed graphs. ``codecs``: those it can use, its own
    choice first (``info.ANY_CODEC``, ``ANY_COMPRESSOR``). ``streams``: it talks in what the codec emits of the weights;
    else a codec that is not dense is a ``coder`` of its local's, for vectors.
    """

    name: ClassVar[str]
    info: ClassVar[StrategyInfo] = StrategyInfo()
    paper: ClassVar[str] = ""
    vector: ClassVar[Literal["weights", "gradients"]] = "weights"
    consensus: ClassVar[bool] = False
    concurrent: ClassVar[bool] = False
    directed: ClassVar[bool] = False
    topologies: ClassVar[tuple[str, ...]] = ()
    codecs: ClassVar[tuple[str, ...]] = ("dense",)
    streams: ClassVar[bool] = False
    admits_late: ClassVar[bool] = True
    # Who comes in mid-run is given all that a step changes, at a moment that all have agreed on (``state_transfer.py``).
    hands_over: ClassVar[bool] = False
    # What a worker that was given up does, when it comes back, with what it did meanwhile. "sum": it is added to what the
    # others have; "mix": its weights are averaged with theirs, as the method does anyway; "take": it is dropped, and the
    # worker takes the others' state.
    returns: ClassVar[Literal["sum", "mix", "take"]] = "take"
    majority: ClassVar[bool] = False  # in lock-step: of two halves that cannot hear each other one at most may go on
    # Others may wait for this worker's turn: when it has no data left, it goes on taking turns for their sake.
    lockstep: ClassVar[bool] = True
    drifts: ClassVar[bool] = False  # a worker whose round is held up trains on meanwhile
    # Even while it drains, because the last turn is agreed upon by taking it.
    turns_until_finished: ClassVar[bool] = False
    shapes_gradient: ClassVar[bool] = False
    # Of its state, in a run of several workers that goes on from a checkpoint with the mean of their weights: what all
    # have alike, and what is each one's own. The rest begins anew.
    keeps_common: ClassVar[tuple[str, ...]] = ()
    keeps_own: ClassVar[tuple[str, ...]] = ()

    @property
    def backend(self) -> str | None:
        """Return the name of the torch.distributed backend that exchanges in taut's place, where one does."""
        return None

    @property
    def summed_numbers(self) -> int:
        """Return how many numbers the method sums beside a vector, in an all-reduce; 0: it has no all-reduce."""
        return 0

    @property
    def schedule(self) -> str:
        """Return the name of the collective that its all-reduces follow."""
        return "ring"

    @property
    def fragments(self) -> int:
        """Return how many parts of the vector take turns in its all-reduces."""
        return 1

    @property
    def shares_speeds(self) -> bool:
        """Return whether the workers of a round tell each other how fast they compute, for the parts of a global batch
        to follow: rounds are of all workers, who wait for each other, and count by their samples. The method's state has
        ``speed``, this worker's own (0: unknown), and ``speeds``, those of the last round until they are taken."""
        return False

    def map_groups(self, state: Any, made: Callable[[Any], Any]) -> None:  # noqa: B027
        """Put ``made(machine)`` in the place of each machine in ``state`` that does an all-reduce."""

    @abstractmethod
    def start(self, membership: Membership, local: Local) -> Any:
        """Return the state of a worker in this membership whose x is the run's initial state (or a donor's)."""

    @abstractmethod
    def on(self, state: Any, event: MethodEvent, now: float) -> list[MethodAction]:
        """Tell ``state`` (changed in place) that ``event`` happened; return what is to be done about it."""

    def shown(self, state: Any) -> Vector | None:
        """Return the weights that a newcomer is given; None: x."""
        return None

    @property
    def takes_newcomers(self) -> bool:
        """Return whether workers may join in mid-run, as the method is set."""
        return self.admits_late

    @property
    def resync_steps(self) -> int:
        """Return after how many steps workers agree on their state again, where their processors round differently and
        replicas must stay equal; 0: never."""
        return 0

    def shape_gradient(self, state: Any, gradient: Vector, rate: float) -> None:
        """Change the gradient in place before the optimizer sees it; called only where ``shapes_gradient``."""
        raise AssertionError(f"{self.name} shapes gradients, and does not say how")

    def check_shape(self, shape: Shape, workers: int) -> None:  # noqa: B027
        """Raise ``Misuse`` where the method cannot start with so many workers in this shape, beyond what ``directed`` and
        ``topologies`` say. Asked once, before the run."""

    def check_codec(self, codec: str) -> None:  # noqa: B027
        """Raise ``Misuse`` where the method, as it is set, cannot use this codec (its name), though it is one of
        ``codecs``."""

    def check_optimizer(self, optimizer: str, settings: Mapping[str, Any]) -> None:  # noqa: B027
        """Raise ``Misuse`` for an optimizer (by its name, and the settings of one of its parameter groups) that does not
        go with the method. Asked by each worker, before it trains."""

    def unsent(self, state: Any, gone: Collection[int]) -> list[Any]:
        """Return what the codec of this worker, which was evicted, emitted, or what it relays, and may not have reached
        those who are not ``gone``, for ``welcomed``. Asked only where ``returns`` is "sum"."""
        return []

    def welcomed(self, state: Any, unsent: Sequence[Any]) -> list[MethodAction]:
        """Send ``unsent`` to everybody, this worker included: it rejoined, and ``state`` is new."""
        return []

    def owed(self, state: Any) -> int:
        """Return how many turns without data (``Stepped`` with no samples) the worker must take before it trains again:
        the rounds it missed. Each is answered at once."""
        return 0

    def agreed_rate(self, state: Any) -> float | None:
        """Return the learning rate that all use for the step that follows this turn; None: each its own."""
        return None

    def agreed(self, state: Any) -> int:
        """Return, of a method that needs a ``majority``, the version of the membership in which all members have told
        this worker their last round; 0 while some have not."""
        return 0

    def owing(self, state: Any) -> bool:
        """Return whether something that this worker, which is ``Leaving``, did or passes on is not with the others yet:
        it stays until that is so, and takes turns without data, where others wait for turns."""
        return False

    def dispensable(self, state: Any) -> bool:
        """Return whether nothing of this worker's training is in what it waits for: it may leave without waiting for
        it."""
        return False

    def drifting(self, state: Any) -> bool:
        """Whether the worker trains on, or may, since its round is held up; not when that is over."""
        return False

    def spare(self, state: Any) -> bool:
        """Whether this worker waits while others train, as a rule, and not only for their messages."""
        return False

    def rounds_over(self, state: Any) -> int:
        """Return how many rounds, or other exchanges that are waited for, this worker has behind it. Of a method that
        ``drifts``: how long they take, as a rule, tells when one is held up."""
        return 0

    def figures(self, state: Any) -> dict[str, float]:
        """Return what this method counts (dropped gradients, rounds, ...), for the statistics."""
        return {}

    def staleness_counts(self, state: Any) -> Counts:
        """Return how late updates were, where workers do not meet in rounds. From any thread."""
        return ()
