"""The costs of codecs on this machine: measured by ``taut codecs --measure``, kept in the user's cache, read by ``taut
simulate`` and ``taut advise``.

    encode = fixed + rate * elements, from a small and a large update;    absorb = rate * bytes, of the large one
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taut.codecs import parse
from taut.core.clock import Clock, MonotonicClock
from taut.core.versions import package_versions
from taut.errors import Misuse
from taut.simulator.models.costs import CodecCost, Costs, measured
from taut.worker.codec_costs.measuring import MeasuredCodec, Trial
from taut.worker.codec_costs.synthetic_updates import Synthetic

SMALL, LARGE = 1 << 10, 1 << 22  # elements
TURNS, FIRST_TURNS = 16, 16  # of a stream of updates: those that count, and those before
DEFAULTS = "taut's own (`taut codecs --measure` finds those of this machine)"
PACKAGES = ("taut", "torch", "numpy", "numba")


@dataclass(frozen=True)
class Known:
    """Costs, and in words where they are from."""

    costs: Costs
    source: str


def measure(spec: str, elements: int, clock: Clock | None = None, turns: int = TURNS) -> MeasuredCodec:
    """Measure the codec on made-up updates (``worker/codec_costs/synthetic_updates.py``), all from the same seed."""
    updates = Synthetic(elements)
    trial = Trial(parse(spec), np.zeros(elements, np.float32), updates.shapes, clock=clock or MonotonicClock())
    for turn in range(FIRST_TURNS + turns):
        trial.turn(updates.next(), counts=turn >= FIRST_TURNS)
    return trial.measured()


def cost_from(small: MeasuredCodec, large: MeasuredCodec) -> CodecCost:
    """Derive a cost from both measurements. Codecs of signs steer themselves towards a density, which made-up updates do
    not tell: their bits are those that they state.

    >>> small = MeasuredCodec("int8", 1000, 1, 1000, 3e-6, 2e-6, 0.0)
    >>> cost = cost_from(small, MeasuredCodec("int8", 2000, 1, 2000, 4e-6, 4e-6, 0.0))
    >>> [float(f"{value:.3g}") for value in (cost.fixed_s, cost.encode_s_per_element, cost.absorb_s_per_byte)]
    [2e-06, 1e-09, 2e-09]
    """
    codec = parse(large.spec)
    rate = max(0.0, (large.encode_s - small.encode_s) / (large.elements - small.elements))
    longer = large.nbytes - small.nbytes
    absorb = (large.decode_s - small.decode_s) / longer if longer > 0.0 else 0.0
    bits = max(0.0, 8.0 * longer / (large.elements - small.elements))  # the header is in both
    return CodecCost(
        encode_s_per_element=rate,
        absorb_s_per_byte=max(0.0, absorb),
        bits_per_element=codec.facts.bits if codec.exact else bits,
        fixed_s=max(0.0, small.encode_s - rate * small.elements),
    )


def known_costs(path: Path) -> Known:
    """Return the costs in the user's file, or taut's own if there is none. Raises ``Misuse`` if the file is broken.

    >>> known_costs(Path("/nowhere/costs.json")).source == DEFAULTS
    True
    """
    if not path.exists():
        return Known(Costs(), DEFAULTS)
    costs, origin = Costs.read(path)
    when, cpu = (str(origin.get(key, "")) for key in ("at", "cpu"))
    told = f"measured{f' on {when[:10]}' if when else ''}{f', {cpu}' if cpu else ''} ({path})"
    return Known(replace(costs, codecs={**measured(), **costs.codecs}), told)


def measured_costs(
    names: list[str], *, large: int = LARGE, progress: Callable[[str], None] | None = None, clock: Clock | None = None
) -> tuple[Costs, list[MeasuredCodec]]:
    """Measure what the codecs cost here; everything else is taut's own. ``progress`` is called before each."""
    codecs: dict[str, CodecCost] = {}
    found: list[MeasuredCodec] = []
    if large <= SMALL:
        raise Misuse(f"--size {large} with --measure", f"more than {SMALL} elements", "leave --size out")
    for name in names:
        if progress is not None:
            progress(name)
        small, big = measure(name, SMALL, clock), measure(name, large, clock)
        codecs[name] = cost_from(small, big)
        found.append(big)
    return Costs(codecs=codecs), found


def origin() -> dict[str, Any]:
    """Describe this machine, these versions and the time."""
    return {
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "versions": package_versions(*PACKAGES),
    }


def processor() -> str:
    """Return the processor's name, as the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
