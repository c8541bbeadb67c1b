"""The record of what ``taut probe`` measured: typed, in one JSON file, read back or refused whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from taut.core.files import write_atomically
from taut.errors import Misuse, StorageFailed

VERSION = 1
Positive = Annotated[float, Meta(gt=0.0)]
Share = Annotated[float, Meta(ge=0.0)]
Rank = Annotated[int, Meta(ge=0)]


class CodecProbe(Struct, frozen=True, forbid_unknown_fields=True):
    """One codec at one worker, on updates of the model that is trained."""

    encode_s_per_element: Share
    absorb_s_per_byte: Share
    bits_per_element: Share


class WorkerProbe(Struct, frozen=True, forbid_unknown_fields=True):
    """One worker. ``step_s``: the middle of ``timed`` steps, compute and data together; ``spread``: standard deviation of
    their logarithm; ``data_share``: of the time, how much went into waiting for data; ``batch``: samples per step."""

    rank: Rank
    host: str
    step_s: Positive
    spread: Share
    timed: Annotated[int, Meta(ge=1)]
    batch: Annotated[int, Meta(ge=1)]
    data_share: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0
    codecs: dict[str, CodecProbe] = {}

    @property
    def mean_step_s(self) -> float:
        """Return the mean of a step, as the adviser simulates it: of a lognormal, median * exp(spread^2 / 2)."""
        return self.step_s * math.exp(self.spread**2 / 2.0)


class LinkProbe(Struct, frozen=True, forbid_unknown_fields=True):
    """The link between two workers, seen from ``one``: bytes per second to ``other`` and back, and the round trip of a
    small message (the least and the middle of several). By one clock alone."""

    one: Rank
    other: Rank
    round_trip_s: Positive
    typical_trip_s: Positive
    out_bytes_per_s: Positive
    back_bytes_per_s: Positive

    @property
    def bytes_per_s(self) -> float:
        """Return the speed of the slower direction, which decides for everything that waits for both."""
        return min(self.out_bytes_per_s, self.back_bytes_per_s)


class Probe(Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster and a script, measured. ``local``: all workers were on this machine. ``gone``: workers that were lost,
    and why; they are not among ``workers``."""

    version: int
    taut: str
    made_at: str
    script: str
    args: list[str]
    local: bool
    parameters: Annotated[int, Meta(ge=1)]
    workers: Annotated[list[WorkerProbe], Meta(min_length=1)]
    links: list[LinkProbe] = []
    gone: dict[str, str] = {}


def write_probe(path: Path, probe: Probe) -> None:
    """Write a probe, whole or not at all."""
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(probe), indent=2) + b"\n")
    except OSError as error:
        raise StorageFailed(f"{path}: the probe could not be written: {error.strerror}") from error


def read_probe(path: Path) -> Probe:
    """Read a probe; raise ``Misuse`` for a file that is none, is broken, or is of another version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Misuse(f"--probe {path} ({error.strerror})", "a file that `taut probe` wrote", "make one first") from None
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version != VERSION:
            raise Misuse(f"--probe {path} of version {version}", f"version {VERSION}", "run `taut probe` again")
        probe = msgspec.json.decode(data, type=Probe)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Misuse(f"--probe {path} ({error})", "a file that `taut probe` wrote", "run `taut probe` again") from None
    check(probe, path)
    return probe


class _Versioned(Struct, frozen=True):
    version: int


def check(probe: Probe, path: Path) -> None:
    """Check what the types do not say: every rank once, and links between different workers."""
    ranks = [worker.rank for worker in probe.workers]
    if len(set(ranks)) != len(ranks):
        raise Misuse(f"--probe {path}: ranks {ranks}", "each worker once", "run `taut probe` again")
    for link in probe.links:
        if link.one == link.other:
            raise Misuse(f"--probe {path}: a link {link.one}-{link.other}", "two workers", "run `taut probe` again")
