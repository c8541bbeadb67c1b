"""On which tasks was the quality of a strategy with a codec ever measured? Collects it from ``results/`` for the adviser.

    python bench/evidence.py        # writes src/taut/adviser/evidence.json; tests hold that it is what results/ says

Of each pair the adviser gets the figure and that of lock-step training with dense updates in the same table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TARGET = Path(__file__).resolve().parents[1] / "src" / "taut" / "adviser" / "evidence.json"
TASKS = {
    "mnist": "an MLP on MNIST (SGD, 4 workers; accuracy in %)",
    "text": "a character transformer (AdamW, 4 workers; loss)",
    "text, rounds": "a character transformer (4 workers, a round every 5 steps; loss)",
    "digits": "a perceptron on 8x8 digits (6 workers; points of accuracy above the same strategy with dense updates)",
}
LOCO = ("diloco", "sparseloco", "noloco")  # of quality-loco.json, as they are by default


def rows(name: str) -> dict[str, float]:
    return {row["name"]: row["value"] for row in json.loads((RESULTS / f"{name}.json").read_text())["rows"]}


def found() -> Iterator[tuple[str, str, str, float]]:
    """Yield strategy, codec, task and figure."""
    for name, value in rows("compression").items():
        case, _, what = name.rpartition(": ")
        if what == "quality":
            task, strategy, codec = case.split(", ", 2)
            yield strategy, codec.partition(" (")[0], task, value
    loco = {name.partition(":")[0]: value for name, value in rows("quality-loco").items() if ": loss, " in name}
    yield "sync", "dense", "text, rounds", loco["sync"]
    for strategy in LOCO:
        yield strategy, "chunked" if strategy == "sparseloco" else "dense", "text, rounds", loco[strategy]
    for name, value in rows("rounds").items():
        case, _, kind = name.rpartition(", ")
        if kind == "alike" and " on " in case:
            strategy, _, rest = case.rpartition(" on ")
            yield strategy, rest.partition(", ")[2], "digits", 0.0 - value


def evidence() -> dict[str, Any]:
    return {"tasks": TASKS, "measured": [[*names, float(f"{value:.4g}")] for *names, value in found()]}


def text() -> str:
    lines = ",\n".join(json.dumps(each) for each in evidence()["measured"])
    return f'{{"tasks": {json.dumps(TASKS, indent=1)},\n"measured": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    TARGET.write_text(text())
