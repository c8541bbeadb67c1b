"""``taut steer``: change a run while it goes. What the dashboard's buttons do; ``taut drain`` has those that end
something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from taut.cli.commands.drain import giver, going, rank_of
from taut.cli.examples import examples
from taut.cli.options import Given, Json, RunName, with_flags
from taut.cli.output.console import notes, print_json
from taut.errors import Misuse
from taut.specs import number

if TYPE_CHECKING:
    from taut.supervisor.control import Order

steer = typer.Typer(
    help="Pause a worker, change learning rates or the slack, or take a checkpoint, while the run goes.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Worker = Annotated[str, typer.Argument(metavar="WORKER", help="Its rank.")]


@steer.command("pause", epilog=examples("steer pause"))
@with_flags("runs_dir config")
def pause(run: RunName, worker: Worker, *, given: Given, as_json: Json = False) -> None:
    """Let a worker make no step until `taut steer resume`; the others train on. It keeps its data: at the end the others
    wait for it."""
    from taut.supervisor.control import Pause

    _give(given, run, Pause(rank_of(worker), f"paused by {giver()}"), as_json)


@steer.command("resume", epilog=examples("steer resume"))
@with_flags("runs_dir config")
def resume(run: RunName, worker: Worker, *, given: Given, as_json: Json = False) -> None:
    """Let a paused worker go on."""
    from taut.supervisor.control import Pause

    _give(given, run, Pause(rank_of(worker), f"resumed by {giver()}", paused=False), as_json)


@steer.command("tune", epilog=examples("steer tune"))
@with_flags("runs_dir config")
def tune(
    run: RunName,
    lr_factor: Annotated[
        str | None, typer.Option("--lr-factor", metavar="X", help="Multiply the script's learning rates by this.")
    ] = None,
    slack: Annotated[
        str | None, typer.Option("--slack", metavar="X", help="Slack of the codec tether, a power of two: 2^-6.")
    ] = None,
    *,
    given: Given,
    as_json: Json = False,
) -> None:
    """Change learning rates or the slack of all workers, at their next step.

    The factor multiplies what the script and its schedulers set: 0.5 halves all learning rates, 1 gives the script its
    own back.
    """
    from taut.supervisor.control import Tune

    if lr_factor is None and slack is None:
        raise Misuse("a change of nothing", "--lr-factor or --slack", "`taut steer tune RUN --lr-factor 0.5`")
    chosen = (
        None if text is None else number(text, name) for text, name in ((lr_factor, "--lr-factor"), (slack, "--slack"))
    )
    _give(given, run, Tune(f"changed by {giver()}", *chosen), as_json)


@steer.command("checkpoint", epilog=examples("steer checkpoint"))
@with_flags("runs_dir config")
def checkpoint(run: RunName, *, given: Given, as_json: Json = False) -> None:
    """Begin a checkpoint now, in a run with --checkpoint-every."""
    from taut.supervisor.control import CheckpointNow

    _give(given, run, CheckpointNow(f"asked for by {giver()}"), as_json)


def _give(given: Given, run: str, order: Order, as_json: bool) -> None:
    from taut.supervisor.control import order as obeyed

    found = going(given.settings().runs_dir, run)
    said = obeyed(found, order).said
    if as_json:
        print_json({"run": found.run, "said": said})
    else:
        notes().print(f"{found.run}: {said}", markup=False)
