"""``taut probe``: how fast are these machines, their links and the codecs, for this script?"""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from taut.cli.commands.run import LocalRun
from taut.cli.commands.supervisor import EVERYWHERE
from taut.cli.launch import check_script, conduct, say_how_to_join
from taut.cli.options import Given, Json, Quiet, ScriptArgs, network_flag, output_flag, run_flag, with_flags
from taut.cli.output.console import notes, print_json, results, set_up_log
from taut.cli.output.display import Display
from taut.cli.run_end import RunEnd, check_joined, report_failures
from taut.cli.run_folder import new_supervisor
from taut.config import Settings
from taut.errors import Misuse, RunFailed
from taut.specs import did_you_mean
from taut.strategies.probing import WATCHED
from taut.supervisor.view import grouped

if TYPE_CHECKING:
    from taut.adviser.record import Probe
    from taut.supervisor.service import Supervisor
    from taut.supervisor.view import ClusterView

LOCAL_WORKERS = 2  # the fewest that have a link
OUT = Path("probe.json")
CODECS = WATCHED.replace("+", ",")


@with_flags("workers listen out steps codecs threads bind port advertise name runs_dir config log")
def probe(
    *,
    script: Annotated[
        Path | None,
        typer.Argument(metavar="SCRIPT", help="The training script; with --listen, leave it out.", show_default=False),
    ] = None,
    args: ScriptArgs = None,
    given: Given,
    listen: Annotated[
        bool, network_flag("--listen", help="Between machines: wait for `taut worker --join` on each.")
    ] = False,
    out: Annotated[Path, output_flag("--out", "-o", help="Where the result goes.")] = OUT,
    steps: Annotated[int, run_flag(help="Steps that each worker is timed for.")] = 40,
    codecs: Annotated[str, run_flag(help="Codecs that are watched, five at most.")] = CODECS,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure links, steps, update size and codecs with SCRIPT, and write it all to a file for `taut advise`.

    Workers train alone for a few dozen steps, then their links are measured one at a time. Without --listen
    all of them are on this machine. It takes about half a minute; nothing of the training is kept.
    """
    if listen == (script is not None):
        raise Misuse(
            f"--listen with {script}" if script else "no SCRIPT",
            "SCRIPT for workers on this machine, or --listen for workers that join",
            "the other machines say `taut worker --join ADDRESS SCRIPT`",
        )
    display = ProbeDisplay(notes(), quiet=quiet or as_json)
    if script is not None:
        found = probe_here(script, args or [], given, display, steps=steps, codecs=codecs)
    else:
        found = _probe_there(given, display, steps=steps, codecs=codecs)
    from taut.adviser.record import write_probe

    write_probe(out, found)
    if as_json:
        print_json(found)
    elif not quiet:
        show_probe(results(), found)
        results().print(f"written to {out}; next: taut advise --probe {out} SCRIPT", soft_wrap=True)


def watched_codecs(written: str) -> str:
    """Check names of codecs, and write them as the probe's strategy takes them.

    >>> watched_codecs("int8, topk")
    'int8+topk'
    """
    from taut.codecs import REGISTRY

    names = [name.strip() for name in written.split(",")]
    for name in names:
        if name not in REGISTRY:
            known = f"names of codecs: {', '.join(sorted(REGISTRY))}"
            raise Misuse(f"--codecs {written}", known, did_you_mean(name, REGISTRY, "`taut codecs` lists them"))
    return "+".join(names)


def probe_settings(given: Given, steps: int, codecs: str, **defaults: object) -> Settings:
    """Resolve the settings of a run whose strategy is the probe: neither environment nor settings file changes that."""
    fixed = {
        "strategy": f"probe:steps={steps},watch={watched_codecs(codecs)}",
        "topology": "complete",
        "codec": "dense",
        "finish": "any",
    }
    settings = replace(given, flags={**given.flags, **fixed}).settings(**defaults).fitted()
    set_up_log(settings.log)
    return settings


class ProbeDisplay(Display):
    """Shows a probe run as any other, and drains the run as soon as every worker has measured."""

    supervisor: Supervisor | None = None
    drained = False

    def update(self, view: ClusterView) -> None:
        from taut.adviser.measured import is_measured

        super().update(view)
        here = [row for row in view.workers if row.state != "gone"]
        through = bool(here) and view.state == "training" and all(is_measured(row.statistics) for row in here)
        if through and self.supervisor is not None and not self.drained:
            self.drained = True
            self.supervisor.drain("everything is measured")


def probe_here(
    script: Path, args: list[str], given: Given, display: ProbeDisplay, *, steps: int, codecs: str = CODECS
) -> Probe:
    """Probe with workers on this machine."""
    check_script(script)
    settings = probe_settings(given, steps, codecs, workers=LOCAL_WORKERS)
    launch = LocalRun(settings, script, args, command=shlex.join(sys.argv))
    display.supervisor = launch.supervisor
    ended = launch.conduct(display)
    report_failures(ended, launch.engine, display)
    check_joined(ended, script)
    return _record(ended, str(script), args, local=True)


def _probe_there(given: Given, display: ProbeDisplay, *, steps: int, codecs: str) -> Probe:
    settings = probe_settings(given, steps, codecs, bind=EVERYWHERE, workers=LOCAL_WORKERS)
    service = new_supervisor(settings, shlex.join(sys.argv))
    service.start()
    display.supervisor = service
    say_how_to_join(service, display, f"{settings.workers} machines")
    return _record(conduct(service, None, display), "", [], local=False)


def _record(ended: RunEnd, script: str, args: list[str], *, local: bool) -> Probe:
    from taut.adviser.measured import is_measured, probe_from

    outcome = ended.outcome
    if ended.interrupted or outcome is None:
        raise RunFailed("the probe was stopped before its end: nothing was written")
    if outcome.exit_code:
        why = "; ".join(grouped(outcome.failures)) or outcome.error
        raise RunFailed(f"the run failed while it was measured: {why}")
    here = [row for row in outcome.workers.values() if row.state != "gone"]
    if not all(is_measured(row.statistics) for row in here):
        raise RunFailed("the run was drained before everything was measured: nothing was written")
    gone = {rank: row.reason for rank, row in sorted(outcome.workers.items()) if row.state == "gone"}
    return probe_from(outcome.workers, script=script, args=args, local=local, gone=gone)


def show_probe(console: Console, found: Probe) -> None:
    """Print workers, links and codecs, a table each, in the figures that ``taut advise`` reasons with."""
    from taut.adviser.reasons import percent, quantity

    dense = quantity(4 * found.parameters, "B")
    console.print(f"{found.parameters:,} parameters: a dense update has {dense}", soft_wrap=True)
    table = _table("worker", "host", "step", "median", "spread", "batch", "data")
    for worker in found.workers:
        steps = quantity(worker.mean_step_s, "s"), quantity(worker.step_s, "s"), percent(worker.spread)
        table.add_row(str(worker.rank), worker.host, *steps, str(worker.batch), percent(worker.data_share))
    console.print(table)
    if found.links:
        console.print(_link_table(found))
    console.print(_codec_table(found))
    console.print(LEGEND, style="dim")
    for rank, reason in found.gone.items():
        console.print(f"worker {rank} was lost: {reason}", style="red", soft_wrap=True)


LEGEND = (
    "step: the mean; data: its share of the step. encode, absorb: of an update of the whole model. bits and bytes: of a "
    "step; where encoding takes over 2% of a step, a worker sends a part of its update after each"
)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("host", "codec") else "right")
    return table


def _link_table(found: Probe) -> Table:
    from taut.adviser.reasons import quantity, rate_text

    table = _table("link", "round trip", "out", "back", "a dense update takes")
    for link in found.links:
        rates = rate_text(link.out_bytes_per_s), rate_text(link.back_bytes_per_s)
        takes = quantity(4 * found.parameters / link.bytes_per_s, "s")
        table.add_row(f"{link.one}-{link.other}", quantity(link.round_trip_s, "s"), *rates, takes)
    return table


def _codec_table(found: Probe) -> Table:
    from taut.adviser.reasons import quantity

    table = _table("codec", "worker", "encode", "absorb", "bits per parameter", "sent/step")
    for worker in found.workers:
        for name, codec in worker.codecs.items():
            nbytes = codec.bits_per_element * found.parameters / 8
            encode = quantity(codec.encode_s_per_element * found.parameters, "s")
            absorb = quantity(codec.absorb_s_per_byte * nbytes, "s")
            table.add_row(name, str(worker.rank), encode, absorb, f"{codec.bits_per_element:.3g}", quantity(nbytes, "B"))
    return table
