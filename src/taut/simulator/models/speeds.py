"""How long a step takes: the worker's own speed, and chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.errors import Misuse
from taut.simulator.models.portable_math import exp, exponential_quantile, normal_quantile
from taut.simulator.models.rng import Rng
from taut.specs import did_you_mean, number

DRAWS = {"constant": None, "lognormal": 0.3, "uniform": 0.2, "exponential": None}  # name -> parameter of an example
FORMS = "constant, lognormal:SIGMA, uniform:SHARE or exponential"
_LEAST = 2.0**-54  # below every draw but zero, whose quantile would be infinite


@dataclass(frozen=True)
class Speeds:
    """``step_s``: the mean duration of a step of a worker of average speed, without the costs of exchanging.
    ``draw``: how steps of one worker vary about their mean, which stays the same:

        constant           every step the same
        lognormal:sigma    exp(sigma * z - sigma^2 / 2),  z normal
        uniform:share      evenly from 1 - share to 1 + share
        exponential        mean 1

    ``spread``: sigma of a lognormal factor that each worker has for the whole run (the middle worker's is 1).
    ``stragglers``: by rank, how many times slower.

    >>> Speeds(0.02, "lognormal:0.3", stragglers={1: 4.0}).draw
    'lognormal:0.3'
    """

    step_s: float = 0.01
    draw: str = "constant"
    spread: float = 0.0
    stragglers: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parse_draw(self.draw)
        if not 0.0 < self.step_s < 1e9:
            raise Misuse(f"a step of {self.step_s!r} s", "a duration above zero", "as in --step-time 20ms")
        if not 0.0 <= self.spread <= 5.0:
            raise Misuse(f"a spread of {self.spread!r}", "0 (all workers alike) to 5", "0.1 is usual for equal machines")
        for rank, times in self.stragglers.items():
            if rank < 0 or not 0.0 < times < 1e9:
                raise Misuse(f"straggler {rank}x{times}", "a worker and how many times slower", "as in --straggler 1x4")


def parse_draw(written: str) -> tuple[str, float]:
    """Return the kind of ``draw`` and its parameter (0 if it has none).

    >>> parse_draw("lognormal:0.3"), parse_draw("constant")
    (('lognormal', 0.3), ('constant', 0.0))
    """
    kind, colon, rest = written.partition(":")
    blame = f"speed {written!r}"
    if kind not in DRAWS:
        raise Misuse(blame, FORMS, did_you_mean(kind, DRAWS, "as in --speed lognormal:0.3"))
    example = DRAWS[kind]
    if example is None:
        if colon:
            raise Misuse(blame, f"{kind!r} alone: it has no parameter")
        return kind, 0.0
    try:
        value = number(rest, blame)
    except ValueError:
        raise Misuse(blame, f"{kind} with a number", f"as in {kind}:{example}") from None
    if kind == "uniform" and not 0.0 <= value <= 1.0:
        raise Misuse(blame, "a share from 0 to 1", f"as in {kind}:{example}: 20% more or less")
    if kind == "lognormal" and not 0.0 <= value <= 5.0:
        raise Misuse(blame, "a sigma from 0 to 5", f"as in {kind}:{example}")
    return kind, value


class Pace:
    """Durations of steps: each of a worker's steps has its own draw, whatever order they are asked for in.

    >>> Pace(Speeds(0.01, stragglers={1: 4.0}), Rng(0)).step_ns(1, 0)
    40000000
    """

    def __init__(self, speeds: Speeds, rng: Rng) -> None:
        self.speeds = speeds
        self._kind, self._parameter = parse_draw(speeds.draw)
        self._key = rng.key
        self._of_worker: dict[int, tuple[float, Rng]] = {}

    def factor(self, rank: int) -> float:
        """Return how many times slower than ``step_s`` this worker is, on average."""
        drawn = Rng(self._key, "worker", rank).normal() if self.speeds.spread else 0.0
        return exp(self.speeds.spread * drawn) * self.speeds.stragglers.get(rank, 1.0)

    def step_ns(self, rank: int, step: int) -> int:
        """Return the duration of this worker's step number ``step``, at least 1."""
        known = self._of_worker.get(rank)
        if known is None:
            mean_ns = self.speeds.step_s * 1e9 * self.factor(rank)
            known = self._of_worker[rank] = (mean_ns, Rng(self._key, "step", rank))
        mean_ns, rng = known
        kind = self._kind
        if kind == "lognormal":
            sigma = self._parameter
            mean_ns *= exp(sigma * (normal_quantile(rng.at(step) or _LEAST) - 0.5 * sigma))
        elif kind == "uniform":
            mean_ns *= 1.0 + self._parameter * (2.0 * rng.at(step) - 1.0)
        elif kind == "exponential":
            mean_ns *= exponential_quantile(rng.at(step))
        return max(1, int(mean_ns + 0.5))
