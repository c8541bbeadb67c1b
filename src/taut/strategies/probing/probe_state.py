"""What a worker that is being probed knows: its steps and codecs so far, its links, and how far the others are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from taut.strategies.api import Heard, Local, MemberPlace
from taut.strategies.probing.link_measurement import LinkFigures, Measurement
from taut.strategies.probing.step_times import StepTimes

if TYPE_CHECKING:
    from taut.strategies.api import Vector


@dataclass(frozen=True, slots=True)
class CodecFigures:
    """The middle of what steps took, and their bits on average."""

    encode_s_per_element: float
    absorb_s_per_byte: float
    bits_per_element: float


class Shadow(Protocol):
    """One codec on a copy of the weights. ``nbytes``: of its payloads so far."""

    name: str
    nbytes: list[int]

    def follow(self, x: Vector) -> None:
        """The worker made a step, to x."""

    def figures(self) -> CodecFigures | None:
        """None where there were too few steps to say anything."""


class Probed(Local, Protocol):
    """A worker whose codecs can be watched."""

    def shadow(self, name: str, workers: int, step_s: float) -> Shadow:
        """That codec, on a copy of the weights as they are now; steps take ``step_s``."""


@dataclass
class ProbeState:
    """``done``: for each member that is ready, whom it has measured its link to. ``held``: this worker waits."""

    local: Probed
    place: MemberPlace
    times: StepTimes = field(default_factory=StepTimes)
    idle: int = 0  # turns without data, in a row
    shadows: list[Shadow] = field(default_factory=list)
    watched_s: float = 0.0  # when they were made
    codecs: dict[str, CodecFigures] = field(default_factory=dict)
    links: dict[int, LinkFigures] = field(default_factory=dict)
    held: bool = False
    ready: bool = False
    ended: bool = False
    over: bool = False
    complete: bool = False  # it is over because everything was measured
    done: dict[int, set[int]] = field(default_factory=dict)
    asked: int | None = None  # the worker that was last asked to measure, at the one who asks
    measurement: Measurement | None = None
    early: list[Heard] = field(default_factory=list)  # of versions that this worker has not heard of yet
