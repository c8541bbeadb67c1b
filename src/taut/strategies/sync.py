"""Synchronous data-parallel training: every optimizer step uses the mean gradient over all workers' samples.

    g  <-  sum_i s_i g_i / sum_i s_i        s_i: samples of worker i; all optimizers make the same step

That is one worker with the sum of the batches. A worker without data takes part with weight 0, and its optimizer moves
along. The run ends in the round in which all say that they have ended, the same for all, so replicas stay equal to the
last bit, whoever dies.

The vector is cut into lanes (buckets of gradients), each an all-reduce of its own, so that the first can be under way
while backward still works on the others: ``launch``. What goes with the gradients: samples * learning rate and samples *
clipping norm, so that a rate that depends on the worker's own count of steps cannot drive replicas apart, and those
without data know it too; and which parameters had a gradient at all.

With a codec (``local.coder``) what each worker sends is compressed, with feedback of its own, in one lane
(``gathering.py``); where that would be more than a ring sends, the ring is used as without.

Papers: Li et al. 2020, "PyTorch Distributed" (buckets); Chen et al. 2016, "Revisiting Distributed Synchronous SGD"
(backup workers, ``quorum.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from taut.core.events import Ended
from taut.errors import MalformedMessage, Misuse
from taut.strategies.gathering import Gathering, VectorCoder, pays
from taut.strategies.group import Group
from taut.strategies.method import (
    COMPRESSORS,
    Draining,
    Finished,
    Heard,
    Local,
    Method,
    MethodAction,
    MethodEvent,
    Place,
    Placed,
    Proceed,
    Stepped,
    Tell,
    check_whole,
)
from taut.strategies.quorum import Quorum
from taut.written import did_you_mean

if TYPE_CHECKING:
    from taut.strategies.method import Vector

SCHEDULES = ("ring", "tree", "halving-doubling", "torus")
BACKENDS = ("gloo", "nccl")  # of torch.distributed; see worker/torch_group.py
ELEMENTS_PER_MIB = (1 << 20) // 4


@dataclass
class Lane:
    """A range of the vector, with the machine that averages it. ``first..last``: the tensors that lie in it."""

    lo: int
    hi: int
    first: int
    last: int
    machine: Group | Quorum
    launched: bool = False

    @property
    def done(self) -> bool:
        """Its part of this step is: the mean is here."""
        return self.launched and self.machine.done


@dataclass
class Averaging:
    """A worker's state. ``rate``: the learning rate agreed upon in the last round; None if nobody had data.
    ``clip_norm``: the worker's wish before a turn, what was agreed upon after it; 0 for none."""

    local: Local
    lanes: list[Lane]
    waiting: bool = False  # the worker waits for the rest of the round
    draining: bool = False
    finished: bool = False
    rate: float | None = None
    clip_norm: float = 0.0
    rounds: int = 0
    present: Vector | None = None  # per tensor: how many workers had a gradient


@dataclass(frozen=True)
class Sync(Method):
    """``--strategy sync``. ``schedule``: of the all-reduce, or ``gloo`` or ``nccl`` to leave it to torch.distributed;
    ``every``: micro-batches per step; ``backup``: how many workers may be late; ``bucket_mib``: size of a bucket of
    gradients, 0 for all in one.

    >>> Sync(schedule="tree", every=4).consensus
    True
    >>> Sync(every=0)
    Traceback (most recent call last):
    taut.errors.Misuse: sync: every=0: expected a whole number of at least 1
    """

    name: ClassVar[str] = "sync"
    paper: ClassVar[str] = "Chen et al. 2016"
    vector: ClassVar[Literal["weights", "gradients"]] = "gradients"
    consensus: ClassVar[bool] = True
    concurrent: ClassVar[bool] = True
    turns_until_finished: ClassVar[bool] = True
    admits_late: ClassVar[bool] = False
    majority: ClassVar[bool] = True
    codecs: ClassVar[tuple[str, ...]] = ("dense", "threshold", *COMPRESSORS)

    schedule: str = "ring"
    every: int = 1
    backup: int = 0
    bucket_mib: float = 4.0

    def __post_init__(self) -> None:
        known = (*SCHEDULES, *BACKENDS)
        if self.schedule not in known:
            remedy = did_you_mean(self.schedule, known, "take 'ring'")
            raise Misuse(f"sync: schedule={self.schedule}", f"one of {', '.join(known)}", remedy)
        check_whole(self, "every", 1)
        check_whole(self, "backup", 0)
        if not 0 <= self.bucket_mib < 2**20:
            raise Misuse(f"sync: bucket_mib={self.bucket_mib}", "0 (one bucket) or more")
        if self.backup and self.schedule != "ring":
            expected = "no schedule beside backup: one worker collects the gradients"
            raise Misuse(f"sync: backup={self.backup} with schedule={self.schedule}", expected, "leave schedule out")

    @property
    def backend(self) -> str | None:
        """The torch.distributed backend that does it, if one does. Where there is none (a simulation), a ring does."""
        return self.schedule if self.schedule in BACKENDS else None

    @property
    def launches(self) -> bool:
        """Lanes may be launched while backward goes on."""
        return not self.backup and self.backend is None

    def check_codec(self, codec: str) -> None:
        if codec == "dense" or self.launches:
            return
        setting = f"backup={self.backup}" if self.backup else f"schedule={self.schedule}"
        raise Misuse(f"codec {codec!r} with sync:{setting}", "dense, or none", f"leave {setting} out, or the codec")

    def start(self, place: Place, local: Local) -> Averaging:
        sizes: Sequence[int] = getattr(local, "sizes", [len(local.x)])
        present: Vector | None = getattr(local, "present", None)
        coder: VectorCoder | None = getattr(local, "coder", None)
        if coder is not None:
            self.check_codec(coder.name)
            if pays(coder.bits, coder.workers):
                machine = Gathering(place, len(local.x), coder)
                return Averaging(local, [Lane(0, len(local.x), 0, len(sizes), machine)], present=present)
        return Averaging(local, self._lanes(place, sizes), present=present)

    def _lanes(self, place: Place, sizes: Sequence[int]) -> list[Lane]:
        schedule = "ring" if self.backend else self.schedule
        lanes = []
        for number, (first, last) in enumerate(buckets(sizes, self.bucket_mib if self.launches else 0.0)):
            lo, hi = sum(sizes[:first]), sum(sizes[:last])
            machine = Quorum(place, hi - lo, self.backup) if self.backup else Group(place, hi - lo, schedule, number)
            lanes.append(Lane(lo, hi, first, last, machine))
        return lanes

    def launch(self, state: Averaging, lane: int, samples: int, rate: float) -> list[MethodAction]:
        """This lane's part of x is final: send it. Only before ``Stepped``, which launches the rest."""
        return self._take(state, self._begin(state, state.lanes[lane], samples, rate))

    def on(self, state: Averaging, event: MethodEvent, now: float) -> list[MethodAction]:
        tells: list[Tell] = []
        match event:
            case Stepped(samples, rate):
                state.waiting = True
                for lane in state.lanes:
                    tells += self._begin(state, lane, samples, rate)
            case Heard(sender, note, payload):
                lanes = [lane for lane in state.lanes if lane.machine.hears(note)]
                if not lanes:
                    raise MalformedMessage(f"{note.kind!r} is no message of sync's")
                tells += lanes[0].machine.heard(sender, note, payload)
            case Placed(place):
                self._reopen(state, place.version)
                for lane in state.lanes:
                    tells += lane.machine.placed(place)
            case Ended():
                pass
            case Draining():
                state.draining = True
        return self._take(state, tells)

    def _begin(self, state: Averaging, lane: Lane, samples: int, rate: float) -> list[Tell]:
        if lane.launched:
            return []
        lane.launched = True
        present = () if state.present is None else state.present[lane.first : lane.last].tolist()
        extra = (samples * rate, samples * state.clip_norm, *present)
        return lane.machine.begin(state.local.x[lane.lo : lane.hi], samples, state.draining, extra, keeps=True)

    def _reopen(self, state: Averaging, version: int) -> None:
        """Somebody went in mid-step: its gradient must not be in some lanes and not in others. Who has all lanes has the
        step, and hands it on; who has not gives all lanes up, and if nobody has, the survivors make the step again."""
        if all(lane.done for lane in state.lanes):
            return
        for machine in [lane.machine for lane in state.lanes if lane.done]:
            if isinstance(machine, Group) and machine.place.version != version:
                machine.reopen()

    def _take(self, state: Averaging, tells: list[Tell]) -> list[MethodAction]:
        """When all lanes have come to their end, the mean is written to x, not before (see ``_reopen``), and the worker
        goes on."""
        actions: list[MethodAction] = [*tells]
        if state.waiting and all(lane.done for lane in state.lanes):
            state.waiting = False
            state.rounds += 1
            for lane in state.lanes:
                self._write(state, lane)
                lane.launched = False
            actions.append(Proceed())
            machine = state.lanes[0].machine
            if machine.ending == machine.contributors and not state.finished:
                state.finished = True
                actions.append(Finished())
        return actions

    def _write(self, state: Averaging, lane: Lane) -> None:
        total = lane.machine.mean(state.local.x[lane.lo : lane.hi])
        if lane is state.lanes[-1]:
            rates = [number / total for number in lane.machine.extra[:2]] if total else [None, 0.0]
            state.rate, state.clip_norm = rates[0], rates[1] or 0.0
        if state.present is not None:
            state.present[lane.first : lane.last] = lane.machine.extra[2:] if total else 0.0

    def agreed_rate(self, state: Averaging) -> float | None:
        return state.rate

    def owed(self, state: Averaging) -> int:
        machine = state.lanes[0].machine
        return machine.owed if isinstance(machine, Quorum) else 0

    def figures(self, state: Averaging) -> dict[str, float]:
        machine = state.lanes[0].machine
        dropped = machine.dropped if isinstance(machine, Quorum) else 0
        coded = isinstance(machine, Gathering)
        return {"rounds": float(state.rounds), "dropped": float(dropped), **({"coded": 1.0} if coded else {})}


def buckets(sizes: Sequence[int], mib: float) -> list[tuple[int, int]]:
    """Tensors of these sizes, from the last to the first (the order in which backward makes their gradients), in runs
    of about ``mib`` MiB: first and one after the last of each.

    >>> buckets([1 << 18, 1 << 18, 10, 1 << 20], 2.0)
    [(3, 4), (0, 3)]
    >>> buckets([5, 5], 0)
    [(0, 2)]
    """
    if not mib:
        return [(0, len(sizes))]
    found: list[tuple[int, int]] = []
    last, elements = len(sizes), 0
    for number in reversed(range(len(sizes))):
        elements += sizes[number]
        if elements >= mib * ELEMENTS_PER_MIB or number == 0:
            found.append((number, last))
            last, elements = number, 0
    return found
