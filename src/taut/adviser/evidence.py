"""On which tasks the quality of a strategy with a codec was measured, and how it was there.

Speed can be predicted for any script; quality cannot. ``evidence.json`` is what ``bench/evidence.py`` finds in the
results of the benchmarks.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ANYTHING_ELSE = "of other tasks nothing is known: `taut compare` tells on yours"


class Measured(NamedTuple):
    """A figure of ``strategy`` with ``codec``, as they are written, on ``task``."""

    strategy: str
    codec: str
    task: str
    value: float


@cache
def known() -> tuple[dict[str, str], list[Measured]]:
    """Return the tasks, each in words, and what was measured."""
    found = json.loads(files("taut.adviser").joinpath("evidence.json").read_text("utf-8"))
    return found["tasks"], [Measured(*each) for each in found["measured"]]


def measured_on(strategy: str, codec: str) -> str:
    """Return a sentence on where the pair was measured; settings that were measured stand beside a figure where they
    differ from those asked for.

    >>> measured_on("adpsgd", "nothing like that")
    'the quality of adpsgd with nothing like that was measured on no task: `taut compare` tells on yours'
    >>> measured_on("async", "tether")[:61]
    'quality was measured on an MLP on MNIST (SGD, 4 workers; accu'
    """
    tasks, measured = known()
    told = []
    for task, words in tasks.items():
        here = [each for each in measured if each.task == task]
        close = [each for each in here if (_name(each.strategy), _name(each.codec)) == (_name(strategy), _name(codec))]
        if not close:
            continue
        each = next((one for one in close if (one.strategy, one.codec) == (strategy, codec)), close[0])
        reference = next((one.value for one in here if (one.strategy, one.codec) == ("sync", "dense")), None)
        text = f"{words}: {each.value:g}"
        text += "" if (each.strategy, each.codec) == (strategy, codec) else f" with {each.strategy}, {each.codec}"
        told.append(text + ("" if reference is None or strategy == "sync" else f", sync with dense {reference:g}"))
    if not told:
        return f"the quality of {strategy} with {codec} was measured on no task: `taut compare` tells on yours"
    return f"quality was measured on {'; on '.join(told)}; {ANYTHING_ELSE}"


def _name(spec: str) -> str:
    return spec.partition(":")[0]
