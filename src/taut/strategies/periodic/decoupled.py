"""Decoupled DiLoCo: rounds of a quorum, fragment by fragment, while all train on; whoever is late loses nothing.

    w_i    =  n_i^2 / s_i                     n_i: samples, s_i: steps since the fragment was last merged from worker i
    D      =  theta - sum w_i x_i / sum w_i   over those that came before the round was closed; the outer step is diloco's

A round is closed with ``quorum`` contributions, after a grace as long as waiting costs nothing (``quorum_group.py``). A
worker whose contribution is in it goes on as in the streaming form. Any other takes the result when it comes,

    x_i  <-  x_i + theta_new - theta_old

and keeps its own change, its samples and its steps for the fragment's next round. It waits for no round but one that it
is in itself.

In the paper the synchronizer is a program of its own. Here the worker of the lowest rank collects, and the next one goes
on if it dies. The paper's radial-directional average is not built: D is the weighted mean.
Paper: Douillard et al. 2026, "Decoupled DiLoCo for resilient distributed pre-training", arXiv:2604.21428.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from taut.strategies.allreduce.quorum_group import QuorumGroup
from taut.strategies.api import MethodAction, MethodEvent, Stepped


@dataclass
class Fragment:
    """A part of the vector. ``common``: all workers have the same theta; ``samples``, ``steps``: since its last round."""

    lo: int
    hi: int
    common: bool = False
    samples: int = 0
    steps: int = 0

    def count(self, samples: int, steps: int) -> None:
        self.samples += samples
        self.steps += steps

    def take(self) -> tuple[int, int]:
        """Return samples and steps, which are to be given to a round, and begin to count anew."""
        found, self.samples, self.steps = (self.samples, self.steps), 0, 0
        return found


@dataclass
class LateWork:
    """What a worker keeps beside ``diloco``'s state, with a quorum. ``given``: samples and steps in the round under way;
    ``behind``: this round was closed without the worker, which only takes its result; ``counted``: steps since its last
    own round that its fragments have counted."""

    given: tuple[int, int] = (0, 0)
    behind: bool = False
    counted: int = 0

    def join(self, steps: int, behind: bool) -> int:
        """Begin a round, or take the result of one; return the steps that are new since the last time."""
        fresh, self.behind, self.counted = steps - self.counted, behind, steps if behind else 0
        return fresh

    @staticmethod
    def weight(samples: int, steps: int) -> float:
        """Return w.

        >>> LateWork.weight(64, 8), LateWork.weight(0, 0)
        (512.0, 0.0)
        """
        return samples * samples / max(1, steps)

    def missed(self, group: QuorumGroup | None) -> bool:
        """Return whether the finished round is without this worker."""
        return self.behind or bool(group and group.missed)

    def conclude(self, fragment: Fragment, group: QuorumGroup | None) -> int:
        """Give back to the fragment what the finished round did not include; return the steps that still count for the
        worker's own next round."""
        if not self.behind and group and group.missed:
            fragment.count(*self.given)
        kept, self.behind, self.given = self.counted if self.behind else 0, False, (0, 0)
        return kept


def pressed(state: Any, event: MethodEvent) -> list[MethodAction]:
    """Tell the group, of which this worker may be the coordinator, whether the worker needs the mean."""
    waits = state.begun and state.turn and not state.group.done
    if waits or (isinstance(event, Stepped) and not state.begun):
        return list(state.group.press(waits))
    return []
