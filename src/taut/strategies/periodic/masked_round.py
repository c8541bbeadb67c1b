"""Rounds of ``fedavg`` whose sums are masked: what they need, and what becomes of one that is withheld. Pure.

The mean of a round is what it would be without masks. A round to which fewer than three workers have anything to give is
withheld (``masked_group.py``): a worker keeps its steps, and gives them to the next round. Clients of such a round are
lost, as those of a worker that died. In the last round nobody can wait: all go back to the last mean.

A newcomer is given the last mean (``FedAvg.shown``): a donor's own weights would be the donor's update. It takes part
with keys of its own from the next round on, and its first round brings it up to date. Where fewer than three workers are
left, no round can come about any more, and the run fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.errors import Misuse, RunFailed
from taut.strategies.allreduce.masked_group import FEWEST, MaskedGroup
from taut.strategies.allreduce.pairwise_masks import check_installed

if TYPE_CHECKING:
    from taut.strategies.periodic.fedavg import FedAvgState

GIVEN = "fedavg:masked=on"


def check_masked(masked: bool, robust: str) -> None:
    """Raise ``Misuse`` where masks do not go with the other settings, or cannot be made."""
    if not masked:
        return
    if robust != "none":
        expected = "one of them: who merges robustly sees every worker's weights"
        raise Misuse(f"fedavg:masked=on,robust={robust}", expected, "leave one of them out")
    check_installed(GIVEN)


def check_enough(workers: int, chosen: int) -> None:
    """Raise ``Misuse`` unless a round has enough workers and chosen workers, or clients."""
    if workers < FEWEST or chosen < FEWEST:
        given = f"{workers} workers" if workers < FEWEST else f"{chosen} chosen in a round"
        raise Misuse(f"{GIVEN} with {given}", f"at least {FEWEST}: of two, each could tell the other's from the sum")


def check_left(state: FedAvgState) -> None:
    """Raise ``RunFailed`` where too few workers are left for any round that counts."""
    left = len(state.membership.members)
    if left < FEWEST and not (state.ended or state.draining):
        workers = "one worker is" if left == 1 else f"{left} workers are"
        raise RunFailed(
            f"{GIVEN}: {workers} left, and a masked sum takes at least {FEWEST}: each could tell the other's update from "
            f"it; begin with more workers, or without masked"
        )


def take_withheld(state: FedAvgState, group: MaskedGroup, clients: bool) -> None:
    """Go on after a round to which nobody gave anything. Without ``clients``, this worker's steps wait for the next."""
    state.withheld += not state.lent
    state.idle_round = True
    assert state.common is not None
    group.mean(state.common)  # told where a newcomer may lack it; else it stays
    if clients and group.offered:
        _, _, _, *times = group.extra
        state.lost_clients += len(times)
    if clients or group.ending == group.contributors:
        state.local.x[:] = state.common
    elif state.gave is not None:
        state.kept = state.gave
    elif state.newcomers:
        state.local.x[:] = state.common  # a newcomer has an earlier mean, perhaps; a worker without steps has this one
