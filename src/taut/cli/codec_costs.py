"""``taut codecs --measure``: what codecs cost on this machine, kept for ``taut simulate`` and ``taut advise``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from taut.cli.codec_streams import Progress, with_dense
from taut.cli.codec_tables import Listed, listed
from taut.config import costs_file
from taut.errors import Misuse
from taut.simulator.models.cost_file import LARGE, measured_costs, origin
from taut.simulator.models.costs import Costs


def keep(specs: Sequence[str], elements: int | None, progress: Progress) -> tuple[str, list[Listed], Path]:
    """Measure, and write to the user's file: on what, the figures, and where they went."""
    wrong = [word for word in specs if ":" in word]
    if wrong:
        raise Misuse(f"--measure with {wrong[0]}", "codecs without settings", "their bits follow from the settings")
    costs, found = measured_costs(with_dense(specs), large=elements or LARGE, progress=progress)
    path = costs_file()
    _joined(path, costs).write(path, origin())
    rows = listed(specs, found[: len(specs)], next(one for one in found if one.spec == "dense"))
    return f"made-up updates of {elements or LARGE:,} elements", rows, path


def _joined(path: Path, costs: Costs) -> Costs:
    """With what the file has of other codecs. One that is broken is made anew."""
    if not path.exists():
        return costs
    try:
        before = Costs.read(path)
    except Misuse:
        return costs
    return replace(before, codecs={**before.codecs, **costs.codecs})
