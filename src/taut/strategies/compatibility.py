"""The rules by which strategy, topology, codec and finish go together, checked before the start; the rest is chosen.

The four are independent, but for what a method cannot do: a dense average has no use for a codec that sends signs, and a
method with symmetric weights none for a directed graph. The error for such a pair says what to use instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from taut.core.finishes import FINISHES
from taut.errors import Misuse
from taut.plugins import CODECS
from taut.strategies.info import ANY_CODEC, ANY_COMPRESSOR, ANY_FAITHFUL, ANY_FINE
from taut.strategies.phases import Phase, PhaseSchedule, parse_schedule
from taut.strategies.rate_scaling import parse_rate_scaling
from taut.strategies.registry import Choice, on_topology, parameters, parse

CROWD = 32  # workers that all send to each other: with more, handling messages takes long
FEW = 16  # workers are enough to see whether a shape has directions


@dataclass(frozen=True)
class Combination:
    """The four choices, resolved. ``strategy`` is as it runs on this topology: the last one, where there are phases."""

    strategy: Choice
    topology: str
    codec: str
    finish: str
    phases: int = 1
    majority: bool = False  # a phase is in lock-step: it goes on only with a majority of the workers
    admits_late: bool = True  # workers may join in mid-run, in whichever phase that is
    resync: int = 0  # steps between agreements on the state, where processors round differently

    @property
    def agrees(self) -> bool:
        """Return whether all replicas are equal at the end, within rounding at least."""
        return agrees(self.strategy)

    @property
    def streams(self) -> bool:
        """Return whether replicas agree because every update reaches every worker as its origin sent it.

        >>> [combine(name).streams for name in ("async", "averaging", "independent")]
        [True, False, False]
        """
        return not self.strategy.is_method and self.agrees

    @property
    def returns(self) -> str:
        """Return how a worker that was evicted brings in the steps that it made meanwhile, when it comes back
        (``Method.returns``); ``no``: it cannot come back."""
        return str(self.strategy.kind.returns) if self.admits_late else "no"


def combine(
    strategy: str | Choice | PhaseSchedule,
    topology: str | None = None,
    codec: str | None = None,
    finish: str | None = None,
    workers: int | None = None,
) -> Combination:
    """Return the choices that were set (None: not set), with the strategy's own for the rest; raise ``Misuse`` where they
    do not go together. ``workers``: how many start, to check the topology with.

    >>> chosen = combine("dpsgd", "ring", workers=4)
    >>> chosen.codec, chosen.finish, combine("async").codec, combine("async").finish
    ('dense', 'average', 'tether', 'any')
    >>> combine("relaysgd", codec="topk")
    Traceback (most recent call last):
    taut.errors.Misuse: codec 'topk' with strategy 'relaysgd': expected dense or fp16 or bf16 or int8 or fp8; relays do \
not conserve the mean, so that what a message leaves out would move it: take async on this topology, which relays \
compressed updates. Leave the codec out, or use it with async
    """
    if isinstance(strategy, Choice):
        strategy = PhaseSchedule((Phase(strategy),))
    schedule = parse_schedule(strategy) if isinstance(strategy, str) else strategy
    wired = topology if topology is not None else default_topology(schedule.last)
    choices = [on_topology(choice, wired) for choice in schedule.choices]
    if codec is not None and not any(takes_codec(choice, codec) for choice in choices):
        _refuse_codec(choices[-1], codec)
    if finish is not None and finish not in FINISHES:
        raise Misuse(f"finish {finish!r}", "one of " + ", ".join(FINISHES))
    for choice in choices:
        check_topology(choice, wired, workers)
    last = choices[-1]
    suits = [codec_for(choice, [codec]) for choice in choices if codec is None or takes_codec(choice, codec)]
    majority = any(choice.is_method and bool(choice.kind.majority) for choice in choices)
    late = all(not choice.is_method or choice.method().takes_newcomers for choice in choices)
    return Combination(
        last, wired, suits[-1], finish or default_finish(last), len(choices), majority, late, schedule.resync
    )


def crowding(strategy: str, topology: str, workers: int) -> str:
    """Return what to consider where so many workers send every update to each other; empty where they do not.

    >>> crowding("async", "complete", 64)[:68], crowding("async", "tree", 64), crowding("async", "complete", 32)
    ('64 workers send every update to each other, on 2016 connections: wit', '', '')
    """
    choice = combine(strategy, topology or None).strategy
    wired = topology or default_topology(choice)
    if workers <= CROWD or choice.is_method or wired != "complete" or not choice.kind.info.floods:
        return ""
    return (
        f"{workers} workers send every update to each other, on {workers * (workers - 1) // 2} connections: with a small "
        "model --topology tree, which merges updates on the way, or --strategy gossip --topology torus may be faster, "
        "with a large one --strategy averaging:64; `taut simulate --timing-only` tells (docs/scale.md)"
    )


def agrees(choice: Choice) -> bool:
    """Return whether replicas are equal after the drain: the method ends in consensus, or every update reaches all."""
    return bool(choice.kind.consensus if choice.is_method else choice.kind.complete)


def default_finish(choice: Choice) -> str:
    """Return the finish that the strategy asks for; otherwise any replica where all are equal, and else their average.

    >>> from taut.strategies import parse
    >>> default_finish(parse("async")), default_finish(parse("dpsgd"))
    ('any', 'average')
    """
    return choice.kind.info.finish or ("any" if agrees(choice) else "average")


def takes_codec(choice: Choice, codec: str) -> bool:
    """Return whether the strategy can use the codec, as both are set.

    >>> from taut.strategies import parse
    >>> [takes_codec(parse(strategy), "topk:density=0.01") for strategy in ("async", "sync", "sync:backup=1", "relaysgd")]
    [True, True, False, False]
    """
    name = codec_name(codec)
    if _takes(choice.kind, name):
        with suppress(Misuse):
            if choice.is_method:
                choice.method().check_codec(name)
            return True
    return False


def codec_name(codec: str) -> str:
    """Return the name of a codec as it is written."""
    return codec.partition(":")[0].strip()


def codecs_of(kind: type[Any]) -> list[str]:
    """Return the names of all codecs that a strategy's class can use, its own choice first.

    >>> from taut.strategies.gossip.choco import Choco
    >>> codecs_of(Choco)[0], "tether" in codecs_of(Choco)
    ('topk', False)
    """
    return [kind.codecs[0], *(name for name in CODECS if name != kind.codecs[0] and _takes(kind, name))]


def why_not(kind: type[Any], codec: str) -> str:
    """Return why a strategy's class cannot use the codec, in one sentence; empty if it can.

    >>> from taut.strategies.periodic.averaging import Averaging
    >>> why_not(Averaging, "topk"), why_not(Averaging, "dgc")
    ('', 'it adds momentum to what it is given, and would send more than the difference')
    """
    taken: Sequence[str] = kind.codecs
    if codec in taken or ANY_CODEC in taken:
        return ""
    if codec == "dense":
        return "it exchanges what a compressor writes; with dense it would be dpsgd"
    known = CODECS[codec]
    if not {ANY_COMPRESSOR, ANY_FAITHFUL}.intersection(taken) and not (ANY_FINE in taken and known.fine):
        return str((known.not_for_vectors if ANY_FINE in taken else "") or kind.info.limited)
    return str(known.not_for_vectors or (known.not_for_differences if ANY_COMPRESSOR not in taken else ""))


def _takes(kind: type[Any], codec: str) -> bool:
    return codec in CODECS and not why_not(kind, codec)


def _refuse_codec(choice: Choice, codec: str) -> None:
    name = codec_name(codec)
    if _takes(choice.kind, name):
        choice.method().check_codec(name)
    if name not in CODECS:
        raise Misuse(f"codec {codec!r}", " or ".join(codecs_of(choice.kind)))
    expected = " or ".join(codecs_of(choice.kind))
    remedy = f"{why_not(choice.kind, name)}. Leave the codec out, or use it with async"
    raise Misuse(f"codec {codec!r} with strategy {choice.name!r}", expected, remedy)


def codec_for(choice: Choice, wishes: Sequence[str | None]) -> str:
    """Return the first wish that this strategy can use (None is no wish), or else its own codec.

    >>> from taut.strategies import parse
    >>> codec_for(parse("dpsgd"), ["tether", None]), codec_for(parse("async"), [None, "threshold:tau=2^-8"])
    ('dense', 'threshold:tau=2^-8')
    """
    for wish in wishes:
        if wish is not None and takes_codec(choice, wish):
            return wish
    return str(choice.kind.codecs[0])


def codecs_in_use(schedule: PhaseSchedule, topology: str, wishes: Sequence[str | None]) -> list[str]:
    """Return the codecs that workers of this run encode with, one for each phase that does.

    >>> [codecs_in_use(parse_schedule(each), "complete", [None]) for each in ("sync", "sync for 9 steps, then async")]
    [[], ['tether']]
    """
    used = []
    for choice in (on_topology(each, topology) for each in schedule.choices):
        codec = codec_for(choice, wishes)
        if choice.method().streams or codec_name(codec) != "dense" if choice.is_method else choice.kind.complete:
            used.append(codec)
    return used


def default_topology(choice: Choice) -> str:
    """Return complete, unless the strategy is meant for other topologies."""
    meant: Sequence[str] = choice.kind.topologies
    return "complete" if not meant or "complete" in meant else meant[0]


def check_topology(choice: Choice, topology: str, workers: int | None = None) -> None:
    """Raise ``Misuse`` where the shape is not for this strategy, or not for so many workers.

    >>> from taut.strategies import parse
    >>> check_topology(parse("independent"), "ring")
    Traceback (most recent call last):
    taut.errors.Misuse: topology 'ring' with strategy 'independent': expected complete; async takes any connected one
    """
    from taut.topologies.registry import parse as parse_topology

    shape = parse_topology(topology)
    given = f"topology {topology!r} with strategy {choice.name!r}"
    if choice.kind.topologies and shape.name not in choice.kind.topologies:
        remedy = "" if choice.is_method else "async takes any connected one"
        raise Misuse(given, " or ".join(choice.kind.topologies), remedy)
    if workers is not None:
        shape.check(workers)
        if choice.is_method:
            choice.method().check_shape(shape, workers)
    directed = shape.wire(range(min(workers or FEW, FEW))).directed
    if directed and not (choice.is_method and choice.method().directed):
        raise Misuse(given, "one without directions", f"{shape.undirected}, or --strategy sgp")


def check_limited(strategy: str) -> None:
    """Refuse to limit the links of a strategy whose bytes do not pass through taut's own transport.

    >>> check_limited("sync:schedule=gloo")
    Traceback (most recent call last):
    taut.errors.Misuse: --link with sync:schedule=gloo: expected a schedule of taut's own; take --strategy sync
    """
    for choice in parse_schedule(strategy).choices:
        if choice.is_method and choice.method().backend:
            raise Misuse(f"--link with {choice}", "a schedule of taut's own", "take --strategy sync")


def with_clients(strategy: str, clients: int) -> str:
    """Return the strategy with so many clients, for the workers to train in turn.

    >>> with_clients("fedavg:fraction=0.1", 100)
    'fedavg:fraction=0.1,clients=100'
    >>> with_clients("sync", 100)
    Traceback (most recent call last):
    taut.errors.Misuse: --clients 100 with strategy sync: expected fedavg; take --strategy fedavg:fraction=0.1
    """
    schedule = parse_schedule(strategy)
    if len(schedule.phases) > 1 or "clients" not in parameters(schedule.last.name):
        raise Misuse(f"--clients {clients} with strategy {strategy}", "fedavg", "take --strategy fedavg:fraction=0.1")
    given = schedule.last.settings.get("clients", clients)
    if given != clients:
        raise Misuse(f"--clients {clients} with strategy {strategy}", "the same number", "leave one of them out")
    return str(parse({"name": schedule.last.name, **schedule.last.settings, "clients": clients}))


def check_rate_scaling(scale_lr: str, strategy: str, workers: int) -> str:
    """Return the scaling of learning rates, for a run that starts with so many workers. Backup workers are refused: the
    number of gradients in a step differs from step to step.

    >>> check_rate_scaling("linear", "sync", 3), check_rate_scaling("sqrt:8", "async", 3)
    ('linear:3', 'sqrt:8')
    >>> check_rate_scaling("linear", "sync:backup=1", 3)
    Traceback (most recent call last):
    taut.errors.Misuse: --scale-lr with sync:backup=1: expected the gradients of all in a step; take --strategy sync
    """
    for choice in parse_schedule(strategy).choices:
        if choice.settings.get("backup"):
            expected = "the gradients of all in a step"
            raise Misuse(f"--scale-lr with {choice}", expected, "take --strategy sync")
    return str(parse_rate_scaling(scale_lr).meant_for(workers))
