"""The scenario of ``taut compare --simulate``: the machines of its flags, and a step's time, measured once for all."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from taut.cli.commands.simulate import sized
from taut.cli.machines import Machines

if TYPE_CHECKING:
    from taut.comparison.runs.job import Job
    from taut.simulator.scenario import Scenario


def simulated_job(
    job: Job, machines: Machines, steps: int | None, parameters: int | None, timing_only: bool, folder: Path, silent: bool
) -> Job:
    """Return the job with its machines. Where the time of a step was not given, it is measured once for all runs and kept
    in the folder: a second measurement would give another figure, and so another comparison."""
    from taut.simulator.presets import find, with_preset

    preset = find(str(job.script), timing_only)
    scenario = machines.scenario(steps=steps, script=str(job.script), args=job.args)
    words = [*machines.words(), *(["--steps", str(steps)] if steps is not None else [])]
    words += ["--parameters", str(parameters)] if parameters is not None else []
    if preset is not None:
        scenario = with_preset(scenario, preset, machines.step_s, parameters)
    else:
        scenario = _measured_once(scenario, machines.step_s, parameters, timing_only, folder, silent)
        if machines.step_s is None:
            words += ["--step", f"{scenario.speeds.step_s * 1e6:.0f}us"]
    return replace(job, flags=tuple(words), scenario=scenario, timing_only=timing_only)


def _measured_once(
    scenario: Scenario, step_s: float | None, parameters: int | None, timing_only: bool, folder: Path, silent: bool
) -> Scenario:
    from taut.comparison.runs.record import write

    text = Path(scenario.script).read_bytes() + repr(scenario.args).encode()
    file = folder / "measured" / f"{blake2b(text, digest_size=8).hexdigest()}.json"
    if step_s is None and file.exists():
        known = json.loads(file.read_text(encoding="utf-8"))
    else:
        found = sized(scenario, step_s, parameters, timing_only, silent)
        known = {"step_us": round(found.speeds.step_s * 1e6), "parameters": found.parameters, "batch": found.batch}
        if step_s is None:
            write(file, json.dumps(known).encode())
    return replace(
        scenario,
        parameters=parameters or known["parameters"],
        batch=known["batch"],
        speeds=replace(scenario.speeds, step_s=step_s or known["step_us"] / 1e6),
    )
