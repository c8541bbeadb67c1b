"""Elections where only time is simulated: the machines of ``strategies/election`` decide whether and when the others go
on without the dead while the supervisor is away. Words between workers take no time beside heartbeats."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from taut.core.failure_detector import HEARTBEAT_S
from taut.core.messages import View
from taut.strategies.election.election import Election

BEATS = 400  # after which there is no hope
RHYTHM = [round(1000 * HEARTBEAT_S)] * 64  # of the supervisor's pulses, in ms


def elected_s(members: Sequence[int], dead: Collection[int]) -> float | None:
    """Return how long the members without the ``dead`` take to agree on going on, once no supervisor is heard; None where
    they are no majority.

    >>> 1 < elected_s([0, 1, 2, 3], [3]) < 30, elected_s([0, 1], [1]), elected_s([0, 1, 2, 3], [2, 3])
    (True, None, None)
    """
    view = View(0, 1, list(members))
    machines = {rank: Election(rank) for rank in members if rank not in dead}
    for machine in machines.values():
        machine.entered(view)
        machine.agreed(view.stamp)
    for beat in range(BEATS):
        now_s = beat * HEARTBEAT_S
        for rank, machine in machines.items():
            answers = [(rank, machine.tick(now_s, uneasy=True, alone=True, rhythm=RHYTHM))]
            while answers:
                sender, answer = answers.pop()
                if answer.enter is not None:
                    machines[sender].entered(answer.enter)
                heard = [(to, word) for to, word in answer.tells if to in machines]
                answers += [(to, machines[to].heard(sender, word, now_s)) for to, word in heard]
        if all(not set(dead) & set(machine.view.members) for machine in machines.values()):
            return now_s
    return None
