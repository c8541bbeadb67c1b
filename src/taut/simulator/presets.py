"""Jobs by name, for users without a script at hand. Sizes are the models' own; a step's time is a guess."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from taut.errors import Misuse
from taut.simulator.scenario import Scenario
from taut.specs import did_you_mean


@dataclass(frozen=True)
class Preset:
    """``script``: empty if there are only sizes, and nothing to train."""

    parameters: int
    batch: int
    step_s: float
    script: str = ""


_DIGITS = str(Path(__file__).parents[1] / "cli" / "jobs" / "digits.py")
PRESETS = {
    "digits": Preset(301_066, 32, 0.002, _DIGITS),
    "resnet50": Preset(25_557_032, 64, 0.25),
    "vit-b16": Preset(86_567_656, 64, 0.5),
    "gpt2": Preset(124_439_808, 8, 0.4),
}


def find(name: str, timing_only: bool) -> Preset | None:
    """Return the preset of this name, or None if it is a script's path.

    >>> find("resnet50", timing_only=True).parameters, find(__file__, timing_only=False)
    (25557032, None)
    """
    if name in PRESETS:
        if not timing_only and not PRESETS[name].script:
            raise Misuse(
                f"preset {name!r} without --timing-only",
                "a script to train",
                "the preset has sizes only: add --timing-only",
            )
        return PRESETS[name]
    if not Path(name).is_file():
        near = did_you_mean(name, PRESETS, otherwise="presets are " + ", ".join(PRESETS))
        raise Misuse(f"script {name!r}", "a file that exists, or a preset", near)
    return None


def with_preset(scenario: Scenario, preset: Preset, step_s: float | None, parameters: int | None) -> Scenario:
    """Return ``scenario`` with the preset's job; values that were given count more."""
    return replace(
        scenario,
        script=preset.script,
        parameters=parameters or preset.parameters,
        batch=preset.batch,
        speeds=replace(scenario.speeds, step_s=step_s or preset.step_s),
    )
