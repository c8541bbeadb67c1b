"""A checkpoint's cut through the leases: what it does not contain, and the passes of a run that goes on from it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taut.core.sample_ranges import Span, joined
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.passes import Pass


def continued(lengths: Mapping[int, int], undone: Iterable[Span]) -> Leases:
    """The passes of a run that goes on from a checkpoint: ``undone`` is what is left of those begun.

    >>> leases = continued({0: 10, 1: 10}, [(0, 2, 4), (1, 5, 10)])
    >>> leases.returned, leases.passes[1].dealt, leases.samples_undone
    ([(0, 2, 4)], 5, 7)
    """
    leases = Leases({epoch: Pass(length, length, length, begun=True) for epoch, length in lengths.items()})
    for epoch, lo, hi in joined(undone):
        current = leases.passes[epoch]
        current.done -= hi - lo
        if hi == current.length:
            current.dealt = lo  # so that who is alone goes on in the very same order
        else:
            leases.returned.append((epoch, lo, hi))
    leases.untouched = list(leases.returned)
    return leases


def undone(leases: Leases, reached: Mapping[int, int], later: Iterable[Span]) -> list[Span]:
    """What a checkpoint does not contain of the passes begun: all that is not trained on now, from ``reached`` (by
    lease) where a worker came that far, and what was trained on ``later``."""
    spans = [*later, *leases.returned, *(span for spans in leases.reserved.values() for span in spans)]
    spans += [(epoch, each.dealt, each.end) for epoch, each in leases.passes.items()]
    spans += [(one.epoch, reached.get(number, one.lo), one.hi) for number, (_, one) in leases.open.items()]
    return joined(span for span in spans if leases.passes[span[0]].begun)
