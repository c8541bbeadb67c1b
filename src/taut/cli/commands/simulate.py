"""``taut simulate``: a run in virtual time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli.launch import script_of
from taut.cli.machines import Machines
from taut.cli.options import Given, Json, Module, Quiet, ScriptArgs, output_flag, run_flag, with_flags
from taut.cli.output.console import notes, print_json, results, status
from taut.cli.output.simulation import record, show
from taut.errors import Misuse, RunFailed
from taut.strategies.compatibility import crowding

if TYPE_CHECKING:
    from taut.simulator.result import Simulated
    from taut.simulator.scenario import Scenario
    from taut.simulator.trace import Trace

UNCOUNTED = "samples unknown (the script says them with worker.exchange(loss, samples=N)): samples/s stays 0"


@with_flags("clients strategy topology codec finish scale_lr validate_every stop_early")
def simulate(
    *,
    script: Annotated[
        str, typer.Argument(metavar="SCRIPT", help="The training script, or a preset.", show_default=False)
    ] = "",
    args: ScriptArgs = None,
    module: Module = False,
    workers: Annotated[int, run_flag("--workers", "-n", help="How many.")] = 4,
    given: Given,
    seed: Annotated[int, run_flag(help="Of everything: data, speeds, network.")] = 0,
    steps: Annotated[int | None, run_flag(help="Per worker.")] = None,
    epochs: Annotated[int | None, run_flag(help="Given to the script as --epochs.")] = None,
    timing_only: Annotated[
        bool, run_flag("--timing-only", help="Sizes and durations alone: nothing is trained.")
    ] = False,
    parameters: Annotated[int | None, run_flag(help="Of the model, for --timing-only.")] = None,
    machines: Machines,
    trace: Annotated[Path | None, output_flag(help="Write a timeline for ui.perfetto.dev to this file.")] = None,
    replay: Annotated[
        Path | None, output_flag(help="Simulate again what this trace is of, and say whether it is the same.")
    ] = None,
    log_dir: Annotated[Path | None, output_flag(help="A folder for what each worker prints.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a run of SCRIPT (or of a preset: digits, resnet50, vit-b16, gpt2) in virtual time.

    Workers really train, with the same code as in a real run, while a model of the machines and the network says how long
    everything takes; with --timing-only nothing is trained, and thousands of workers are simulated in seconds.
    """
    silent = quiet or as_json
    if replay is not None:
        _replay(replay, log_dir, silent)
        return
    if not script:
        raise Misuse("no script", "SCRIPT or a preset", "for example: taut simulate --workers 8 digits")
    from taut.simulator.presets import find, with_preset
    from taut.strategies.compatibility import with_clients

    preset = None if module else find(script, timing_only)
    if module:
        script = str(script_of(Path(script), module))
    words = {name: text or "" for name, text in given.flags.items() if name != "clients"}
    if (clients := given.flags["clients"]) is not None:
        words["strategy"] = with_clients(words["strategy"] or "fedavg", int(clients))
    scenario = machines.scenario(
        **{**words, "strategy": words["strategy"] or "async"},
        workers=workers,
        seed=seed,
        steps=steps,
        epochs=epochs,
        script=script,
        args=tuple(args or ()),
    )
    scenario.check()  # before a step is measured
    if preset is not None:
        scenario = with_preset(scenario, preset, machines.step_s, parameters)
    else:
        scenario = sized(scenario, machines.step_s, parameters, timing_only, silent)
    scenario.check()
    crowded = crowding(scenario.strategy, scenario.topology, scenario.workers)
    if crowded and not silent:
        notes().print(crowded, style="dim", markup=False, soft_wrap=True)
    found, timeline = run_scenario(scenario, timing_only, trace is not None, log_dir, silent)
    if trace is not None and timeline is not None:
        timeline.write(trace)
    costs_from = machines.known_costs().source
    if as_json:
        print_json(record(found, timing_only) | {"costs_from": costs_from})
    elif not quiet:
        show(found, timing_only, trace)
        results().print(f"costs of codecs: {costs_from}", style="dim", markup=False, soft_wrap=True)
    raise typer.Exit((2 if found.misused else 1) if found.error else 0)


def sized(scenario: Scenario, step_s: float | None, parameters: int | None, timing_only: bool, silent: bool) -> Scenario:
    """Measure the size of the script's model, its batch and the time of a step, as far as they were not given, by running
    the script alone for a few steps. The result is printed, so that the simulation can be repeated exactly."""
    if step_s is not None and (parameters is not None or not timing_only):
        return replace(scenario, parameters=parameters or scenario.parameters)
    from taut.simulator.script.measure import measure

    if not silent:
        notes().print(f"measuring a few steps of {scenario.script} ...", style="dim", soft_wrap=True)
    made = measure(scenario)
    if not silent:
        found = f"a step takes {made.step_s * 1000:.3g} ms here (--step {made.step_s * 1e6:.0f}us to repeat exactly)"
        samples = f"{made.batch} samples a step" if made.batch else UNCOUNTED
        notes().print(f"{found}, {made.parameters:,} parameters, {samples}", style="dim", soft_wrap=True)
    return replace(
        scenario,
        parameters=parameters or made.parameters,
        batch=made.batch,
        speeds=replace(scenario.speeds, step_s=step_s or made.step_s),
    )


def run_scenario(
    scenario: Scenario, timing_only: bool, traced: bool, log_dir: Path | None, silent: bool
) -> tuple[Simulated, Trace | None]:
    """Simulate, with progress on standard error."""
    from taut.simulator.trace import Trace

    if timing_only:  # before the display says "simulating": Ctrl-C within an import may end Python by the signal itself
        from taut.simulator.timing.simulation import simulate_timing
    else:
        from taut.simulator.script.run import simulate_script
    timeline = Trace(scenario.to_record() | {"timing_only": timing_only}) if traced else None
    try:
        with status("simulating", silent) as tell:

            def reached(now_s: float, steps: int = 0) -> None:
                tell(f": {now_s:.2f} virtual seconds, {steps:,} steps")

            if timing_only:
                made = simulate_timing(scenario, trace=timeline, progress=reached)
            else:
                made = simulate_script(scenario, trace=timeline, progress=reached, output=log_dir)
    except KeyboardInterrupt:
        raise RunFailed("interrupted: nothing was written") from None
    return made, timeline


def _replay(path: Path, log_dir: Path | None, silent: bool) -> None:
    """Simulate the scenario of a trace again, and compare the traces to the byte."""
    import tempfile

    from taut.simulator.scenario import Scenario
    from taut.simulator.trace import first_difference, read_header

    header = read_header(path)
    timing_only = bool(header.pop("timing_only", False))
    _, timeline = run_scenario(Scenario.from_record(header), timing_only, True, log_dir, silent)
    assert timeline is not None
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / path.name
        timeline.write(again)
        difference = first_difference(path, again)
    if difference is not None:
        raise RunFailed(f"{path}: the replay differs: {difference}")
    if not silent:
        results().print(f"the same, to the byte: {path}")
