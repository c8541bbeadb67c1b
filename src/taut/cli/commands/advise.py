"""``taut advise``: which strategy, topology and codec for these machines and this script, and why."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from taut.cli.commands.probe import OUT, ProbeDisplay, probe_here, show_probe
from taut.cli.launch import check_script
from taut.cli.options import Given, Json, Quiet, Script, ScriptArgs, output_flag, run_flag, with_flags
from taut.cli.output.console import notes, print_json, results
from taut.cli.output.tables import fitting_table, print_item
from taut.errors import Misuse, RunFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from taut.adviser.candidates import Candidate
    from taut.adviser.prediction import Prediction
    from taut.adviser.ranking import Advice
    from taut.adviser.record import Probe
    from taut.adviser.report import AdviceReport
    from taut.adviser.verification import Verified
    from taut.simulator.models.costs import Costs

VERIFIED = 2  # so many of the best are run
LEFT_OUT = {"late": 4, "waits": 3, "sent/step": 2, "step": 1}  # columns, where there is no room: the highest first


@with_flags("workers top verify seconds runs_dir config")
def advise(
    *,
    script: Script,
    args: ScriptArgs = None,
    probe: Annotated[
        Path | None, run_flag(help="What `taut probe` wrote; without it, this machine is probed first.")
    ] = None,
    given: Given,
    top: Annotated[int, output_flag(help="How many to show.")] = 5,
    verify: Annotated[bool, run_flag("--verify", help="Run the best two briefly here, and compare.")] = False,
    seconds: Annotated[float, run_flag(help="Of each run that verifies.")] = 20.0,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which strategy, topology and codec suit these machines and SCRIPT, why, and what to type.

    Every sensible combination is simulated on the machines as they were probed. Recommended is the most
    complete communication that is within 10% of the fastest: docs/adviser.md has the rule.
    """
    check_script(script)
    if top < 1 or seconds <= 0.0:
        raise Misuse(f"--top {top}, --seconds {seconds:g}", "numbers above zero")
    from taut.config import costs_file
    from taut.simulator.models.cost_file import known_costs

    found = _probe(probe, script, args or [], given, quiet=quiet or as_json)
    count = given.flags["workers"] or len(found.workers)
    _check(found, count, verify)
    beside = (probe or OUT).with_suffix(".predictions.json")
    known = known_costs(costs_file())
    advice, refused = _predict(found, count, beside, known.costs, quiet=quiet or as_json)
    verified = _verify(advice, count, script, args or [], seconds, quiet=quiet or as_json) if verify else []
    from taut.adviser.report import AdviceReport

    report = AdviceReport(found, advice, refused, verified, count, script, args or [], known.source)
    if as_json:
        print_json(report.record(top))
    else:
        show_report(results(), report, top)


def _probe(path: Path | None, script: Path, args: list[str], given: Given, *, quiet: bool) -> Probe:
    from taut.adviser.record import read_probe, write_probe

    if path is not None:
        return read_probe(path)
    found = probe_here(script, args, given, ProbeDisplay(notes(), quiet=quiet), steps=40)
    write_probe(OUT, found)
    if not quiet:
        show_probe(notes(), found)
        notes().print(f"written to {OUT}: give it with --probe the next time", soft_wrap=True)
    return found


def _check(found: Probe, workers: int, verify: bool) -> None:
    if workers < 2:
        raise Misuse(f"{workers} worker", "at least 2 workers to choose a strategy for", "try --workers 2")
    if len(found.workers) > 1 and not found.links:
        raise Misuse("a probe without links", "one whose links were measured", "run `taut probe` again")
    if verify and not found.local:
        raise Misuse(
            "--verify with a probe between machines",
            "one of this machine",
            "the command that `taut advise` prints is what to try there",
        )


def _predict(found: Probe, workers: int, beside: Path, costs: Costs, *, quiet: bool) -> tuple[Advice, dict[str, str]]:
    from taut.adviser.candidates import Completeness, candidates
    from taut.adviser.prediction import Cache, predict
    from taut.adviser.ranking import rank
    from taut.simulator.timing.simulation import simulate_timing

    listed = candidates(workers)
    with _progress(len(listed), quiet) as told:
        predictions, refused = predict(
            found, listed, workers, simulate=simulate_timing, costs=costs, cache=Cache(beside), progress=told
        )
    if not any(one.candidate.completeness <= Completeness.NEIGHBOURS for one in predictions):
        raise RunFailed(f"nothing could be simulated: {'; '.join(refused.values())}")
    return rank(predictions), refused


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Callable[[Candidate], None]]:
    from rich.progress import Progress

    with Progress(console=notes(), transient=True, disable=quiet) as bar:
        task = bar.add_task("simulating", total=total)

        def told(candidate: Candidate) -> None:
            bar.update(task, advance=1, description=f"simulating {candidate.name}")

        yield told


def _verify(
    advice: Advice, workers: int, script: Path, args: Sequence[str], seconds: float, *, quiet: bool
) -> list[Verified]:
    from taut.adviser.verification import verify

    found = []
    for prediction in advice.ranked[:VERIFIED]:
        if not quiet:
            notes().print(f"running {prediction.candidate.name} for {seconds:g} s", style="dim", soft_wrap=True)
        try:
            found.append(verify(prediction, workers, script, args, seconds))
        except RunFailed as error:
            notes().print(str(error), style="red", soft_wrap=True)
    if not found:
        raise RunFailed("neither of the best two could be run: see above")
    return found


def show_report(console: Console, report: AdviceReport, top: int) -> None:
    """Print a table of the best, the reasons, and what to type."""
    from taut.adviser.reasons import quality, reasons
    from taut.comparison.report.columns import Column

    rows = [_row(report, prediction) for prediction in report.advice.ranked[:top]]
    columns = [
        Column(each, itemgetter(each), LEFT_OUT.get(each, 0), words=each in ("strategy", "shares")) for each in rows[0]
    ]
    console.print(fitting_table(rows, columns, console.width))
    console.print("why:")
    chosen = report.advice.recommended
    for reason in reasons(report.advice, report.probe, report.workers):
        print_item(console, reason)
    console.print("quality:")
    for remark in quality(chosen, report.workers, report.probe.workers[0].batch):
        print_item(console, remark)
    for warning in report.warnings():
        console.print(f"note: {warning}", soft_wrap=True, markup=False)
    if report.costs_from:
        measured = ", ".join(sorted({name for worker in report.probe.workers for name in worker.codecs})) or "none"
        text = f"costs of codecs: {measured} from the probe, others {report.costs_from}"
        console.print(text, soft_wrap=True, markup=False, style="dim")
    for one in report.verified:
        console.print(verified_text(one), soft_wrap=True, markup=False)
    console.print(report.command(chosen), soft_wrap=True, no_wrap=True, markup=False, style="bold")


def _row(report: AdviceReport, prediction: Prediction) -> dict[str, str]:
    from taut.adviser.reasons import percent, quantity

    figures = prediction.figures
    return {
        "strategy": ("> " if prediction is report.advice.recommended else "  ") + prediction.candidate.name,
        "samples/s": f"{figures.samples_per_s:,.0f}",
        "of alone": percent(prediction.efficiency),
        "step": quantity(figures.step_s, "s"),
        "sent/step": quantity(figures.bytes_per_step, "B"),
        "waits": percent(figures.wait_share),
        "late": f"{figures.staleness:.1f}",
        "shares": prediction.candidate.completeness.meaning,
    }


def verified_text(one: Verified) -> str:
    """Compare prediction and measurement in one line."""
    from taut.adviser.reasons import quantity

    return (
        f"{one.prediction.candidate.name}: predicted {one.prediction.figures.samples_per_s:,.0f} samples/s, measured "
        f"{one.samples_per_s:,.0f} ({100 * one.error:+.0f}%); sent per step: predicted "
        f"{quantity(one.prediction.figures.bytes_per_step, 'B')}, measured {quantity(one.bytes_per_step, 'B')}"
    )
