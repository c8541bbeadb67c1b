"""Synchronous data-parallel training: every optimizer step uses the mean gradient over all workers' samples.

    g  <-  sum_i s_i g_i / sum_i s_i        s_i: samples of worker i; all optimizers make the same step

That is one worker with the sum of the batches. A worker without data takes part with weight 0, and its optimizer moves
along. The run ends in the round in which all say that they have ended: replicas stay equal bit by bit, whoever dies.

The vector is cut into buckets of gradients, each an all-reduce of its own, so that the first can be under way
while backward still works on the others: ``launch``. What goes with the gradients: samples * clipping norm and samples *
each number of the optimizer's groups (learning rates, momentum, ...), so that a schedule that depends on the worker's own
count of steps cannot drive replicas apart, and those without data know them too; which parameters had a gradient;
samples * global batch, by which the rates of a round with fewer samples are scaled; and the worker's speed, which its
part of that batch follows.

A script may have several optimizers (``local.wishes``). A round is for those that this worker's script steps now; where
others step another one in the same round, that one takes the mean over their samples alone, and moves here, too.

Who joins in mid-run, or comes back, is given the state of one who has it (``state_transfer.py``); ``local.since`` is
``round_agreement.NEW`` then. Its own numbers count only where none but such have data, since its schedule begins anew.

With a codec (``local.coder``) what each worker sends is compressed, with feedback of its own, in one bucket
(``compressed_group.py``); where that would be more than a ring sends, the ring is used as without, and of the codecs
fp16 and bf16 its pieces are halves (``wire``).

Equal gradients make equal steps only where processors round alike. Where they do not, replicas drift apart by about 1e-8
of their norm, and take their mean every ``resync`` steps and at the end (``phases.py``).

Papers: Li et al. 2020, "PyTorch Distributed" (buckets); Chen et al. 2016, "Revisiting Distributed Synchronous SGD"
(backup workers, ``backup_workers.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from taut import collectives
from taut.collectives.wire import FULL, WIRES
from taut.errors import MalformedMessage, Misuse
from taut.specs import check_choice, check_whole
from taut.strategies import api as m
from taut.strategies.allreduce.backup_workers import BackupGroup
from taut.strategies.allreduce.compressed_group import CompressedGroup, pays
from taut.strategies.allreduce.group import Group
from taut.strategies.allreduce.sync_state import GradientBucket, SyncState, cut_buckets

BACKENDS = ("gloo", "nccl")  # of torch.distributed; see worker/exchange/torch_distributed.py
NUMBERS = 8  # that go with each bucket at least, before which of its tensors had a gradient (``SyncState.head``)


@dataclass(frozen=True)
class Sync(m.Method):
    """``--strategy sync``. ``schedule``: of the all-reduce, or ``gloo`` or ``nccl`` to leave it to torch.distributed;
    ``every``: micro-batches per step; ``backup``: how many workers may be late; ``bucket_mib``: size of a bucket of
    gradients, 0 for all in one; ``resync``: after so many steps workers agree on the weights again, where their
    processors round differently, 0 for never; ``wire``: float32, bf16 or fp16, in which the pieces of sums are sent.

    >>> Sync(schedule="tree", every=4).consensus
    True
    >>> Sync(every=0)
    Traceback (most recent call last):
    taut.errors.Misuse: sync: every=0: expected a whole number of at least 1
    """

    name = "sync"
    info = m.StrategyInfo(
        m.Completeness.SYNCHRONOUS,
        (m.Variant(), m.Variant("schedule=halving-doubling"), m.Variant("schedule=tree")),
        coded_kinds=("share",),
    )
    paper = "Chen et al. 2016"
    vector = "gradients"
    consensus = True
    concurrent = True
    turns_until_finished = True
    hands_over = True
    majority = True
    codecs = ("dense", "threshold", m.ANY_COMPRESSOR)

    schedule: str = "ring"
    every: int = 1
    backup: int = 0
    bucket_mib: float = 4.0
    resync: int = 200
    wire: str = FULL

    def __post_init__(self) -> None:
        check_choice(self, "schedule", (*collectives.REGISTRY, *BACKENDS), "take 'ring'")
        check_whole(self, "every", 1)
        check_whole(self, "backup", 0)
        check_whole(self, "resync", 0)
        check_choice(self, "wire", WIRES)
        if self.wire != FULL and (self.backup or self.backend):
            setting = f"backup={self.backup}" if self.backup else f"schedule={self.schedule}"
            raise Misuse(f"sync: wire={self.wire} with {setting}", "a schedule of taut's own", f"leave {setting} out")
        if not 0 <= self.bucket_mib < 2**20:
            raise Misuse(f"sync: bucket_mib={self.bucket_mib}", "0 (one bucket) or more")
        if self.backup and self.schedule != "ring":
            expected = "no schedule beside backup: one worker collects the gradients"
            raise Misuse(f"sync: backup={self.backup} with schedule={self.schedule}", expected, "leave schedule out")

    @property
    def summed_numbers(self) -> int:
        return NUMBERS

    @property
    def shares_speeds(self) -> bool:
        return not self.backup  # rounds without the gradients of late workers are meant to be short

    @property
    def backend(self) -> str | None:
        """Return the torch.distributed backend that does the all-reduce, if one does; in a simulation a ring does."""
        return self.schedule if self.schedule in BACKENDS else None

    @property
    def launches(self) -> bool:
        """Return whether buckets may be launched while backward goes on."""
        return not self.backup and self.backend is None

    @property
    def resync_steps(self) -> int:
        return self.resync

    @property
    def takes_newcomers(self) -> bool:
        return self.backend is None

    def check_codec(self, codec: str) -> None:
        if codec != "dense" and self.wire != FULL:
            raise Misuse(f"codec {codec!r} with sync:wire={self.wire}", "one of the two", "leave wire out, or the codec")
        if codec == "dense" or self.launches:
            return
        setting = f"backup={self.backup}" if self.backup else f"schedule={self.schedule}"
        raise Misuse(f"codec {codec!r} with sync:{setting}", "dense, or none", f"leave {setting} out, or the codec")

    def start(self, membership: m.Membership, local: m.Local) -> SyncState:
        sizes, coder = local.sizes or [len(local.x)], local.coder
        wishes = list(local.wishes) or [m.Wish([0.0])]
        if coder is not None:
            self.check_codec(coder.name)
            if pays(coder.bits, coder.workers):
                machine = CompressedGroup(membership, len(local.x), coder, since=local.since)
                buckets = [GradientBucket(0, len(local.x), 0, len(sizes), machine)]
                return SyncState(local, buckets, wishes, present=local.present)
        wire = coder.name if coder is not None and coder.name in WIRES else self.wire
        return SyncState(local, self._buckets(membership, sizes, local.since, wire), wishes, present=local.present)

    def _buckets(self, membership: m.Membership, sizes: Sequence[int], since: int, wire: str) -> list[GradientBucket]:
        schedule = "ring" if self.backend else self.schedule
        buckets = []
        for number, (first, last) in enumerate(cut_buckets(sizes, self.bucket_mib if self.launches else 0.0)):
            lo, hi = sum(sizes[:first]), sum(sizes[:last])
            quorum = BackupGroup(membership, hi - lo, self.backup, since) if self.backup else None
            machine = quorum or Group(membership, hi - lo, schedule, number, since, wire)
            buckets.append(GradientBucket(lo, hi, first, last, machine))
        return buckets

    def map_groups(self, state: SyncState, made: Callable[[Any], Any]) -> None:
        for bucket in state.buckets:
            bucket.machine = made(bucket.machine)

    def launch(self, state: SyncState, number: int, samples: int, rate: float) -> list[m.MethodAction]:
        """Send a bucket: its part of x is final. Only before ``Stepped``, which launches the rest."""
        bucket = state.buckets[number]
        return self._take(state, bucket.machine.begin(*self._given(state, bucket, samples, rate), keeps=True))

    def on(self, state: SyncState, event: m.MethodEvent, now: float) -> list[m.MethodAction]:
        tells: list[m.Tell] = []
        match event:
            case m.Stepped(samples, rate):
                state.waiting = True
                for bucket in state.buckets:
                    if not bucket.launched:
                        tells += bucket.machine.begin(*self._given(state, bucket, samples, rate), keeps=True)
            case m.Heard(sender, note, payload) if state.transfer.hears(note):
                state.transfer.heard(sender, note, payload)
            case m.Heard(sender, note, payload):
                buckets = [bucket for bucket in state.buckets if bucket.machine.hears(note)]
                if not buckets:
                    raise MalformedMessage(f"{note.kind!r} is no message of sync's")
                tells += buckets[0].machine.heard(sender, note, payload)
            case m.MembersChanged(membership):
                self._reopen(state, membership.version)
                state.transfer.members_changed(membership.members)
                for bucket in state.buckets:
                    tells += bucket.machine.members_changed(membership)
            case m.Ended():
                pass
            case m.Draining():
                state.draining = True
        return self._take(state, tells + state.transfer.ask(state.buckets[0].machine))

    def agreed(self, state: SyncState) -> int:
        machines = [bucket.machine for bucket in state.buckets]
        return machines[0].membership.version if all(machine.agreed for machine in machines) else 0

    # ------------------------------------------------------------------------------------------- newcomers

    def bare(self, state: SyncState) -> bool:
        """Return whether this worker lacks the state that the others have."""
        return state.buckets[0].machine.bare

    def state_lost(self, state: SyncState) -> bool:
        """Return whether this worker lacks the state, and no worker is left that has it."""
        return state.transfer.state_lost(state.buckets[0].machine)

    def takers(self, state: SyncState) -> list[int]:
        """Return the workers to be given this worker's state now, between two steps of its optimizer."""
        machine = state.buckets[0].machine
        return state.transfer.takers(machine, machine.completed) if state.waiting or state.finished else []

    def give(self, state: SyncState, to: int, data: bytes) -> list[m.MethodAction]:
        return [*state.transfer.give(to, state.buckets[0].machine.completed, data, state.finished)]

    def handed(self, state: SyncState, starting: bool = False) -> bytes | None:
        """Return the state to take over now: before ``starting``, or in a turn, whose gradient is dropped then."""
        return state.transfer.whole(state.buckets[0].machine) if state.waiting or starting else None

    def took(self, state: SyncState, votes: bool) -> list[m.MethodAction]:
        """Go on after a state was taken over. ``votes``: the position in the learning rate's schedule came with it."""
        round, tells = state.transfer.done(), list[m.Tell]()
        state.votes = votes
        for bucket in state.buckets:
            tells += bucket.machine.take_over(round)
        if not state.transfer.over:
            return self._take(state, tells)
        state.waiting, state.finished, state.rate = False, True, None
        return [*tells, m.Proceed(), m.Finished()]

    def refuse(self, state: SyncState) -> list[m.MethodAction]:
        """Ask another worker for the state: the one that came cannot be read."""
        state.transfer.shun()
        return [*state.transfer.ask(state.buckets[0].machine)]

    # --------------------------------------------------------------------------------------------- one step

    def _given(
        self, state: SyncState, bucket: GradientBucket, samples: int, rate: float
    ) -> tuple[m.Vector, int, bool, tuple[float, ...]]:
        """Return what this worker gives to the round of a bucket, which is launched with it."""
        bucket.launched = True
        present = () if state.present is None else state.present[bucket.first : bucket.last].tolist()
        state.wishes[0].numbers[0] = rate
        return state.local.x[bucket.lo : bucket.hi], samples, state.draining, (*state.head(samples), *present)

    def _reopen(self, state: SyncState, version: int) -> None:
        """Reopen buckets after a worker went in mid-step: its gradient must not be in some buckets and not in others. A
        worker that has all buckets has the step, and hands it on; one that has not gives all buckets up, and if none has,
        the survivors make the step again."""
        if all(bucket.done for bucket in state.buckets):
            return
        for machine in [bucket.machine for bucket in state.buckets if bucket.done]:
            if isinstance(machine, Group) and machine.membership.version != version:
                machine.reopen()

    def _take(self, state: SyncState, tells: list[m.Tell]) -> list[m.MethodAction]:
        """Write the mean to x and let the worker go on, when all buckets are done, not before (see ``_reopen``)."""
        actions: list[m.MethodAction] = [*tells]
        if state.waiting and all(bucket.done for bucket in state.buckets):
            state.waiting = False
            state.rounds += 1
            length = state.head_length
            for bucket in state.buckets:
                total = bucket.machine.mean(state.local.x[bucket.lo : bucket.hi])
                if state.present is not None:
                    state.present[bucket.first : bucket.last] = bucket.machine.extra[length:] if total else 0.0
                bucket.launched = False
            state.agree(bucket.machine.extra[:length] if total else [0.0] * length, total, bucket.machine.contributors)
            actions.append(m.Proceed())
            machine = state.buckets[0].machine
            if machine.ending == machine.contributors and not state.finished:
                state.finished = True
                actions.append(m.Finished())
        return actions

    def agreed_rate(self, state: SyncState) -> float | None:
        return state.rate

    def owed(self, state: SyncState) -> int:
        machine = state.buckets[0].machine
        return machine.owed if isinstance(machine, BackupGroup) else 0

    def figures(self, state: SyncState) -> dict[str, float]:
        machine = state.buckets[0].machine
        dropped = machine.dropped if isinstance(machine, BackupGroup) else 0
        coded = isinstance(machine, CompressedGroup)
        taken = {"taken_over": state.transfer.taken} if state.transfer.taken else {}
        return {"rounds": state.rounds, "dropped": float(dropped), **({"coded": 1.0} if coded else {}), **taken}
