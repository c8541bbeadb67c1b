"""``taut demo``: what taut is for, in a minute; ``taut demo --quick``: several workers and one, on as many samples."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from taut.cli.commands.run import LocalRun, check_start
from taut.cli.demo.three_runs import LINK, SECONDS, compare_on, default_workers, finished, show_files, show_table
from taut.cli.options import Given, Json, Quiet, Start, output_flag, run_flag, with_flags
from taut.cli.output.console import notes, print_json, set_up_log
from taut.cli.output.display import Display, split_text
from taut.cli.output.format import SAME, compression, figures, scores_text, time_shares, times
from taut.config import AGREED, Settings
from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.quantities import size
from taut.supervisor.metrics import cluster_rate, total
from taut.supervisor.view import Outcome

WORKERS, EPOCHS = 4, 40
SCRIPT = Path(__file__).parents[1] / "jobs" / "digits.py"


@dataclass(frozen=True)
class DemoTraining:
    """One of the two trainings, and the accuracy of its model file on the held-out samples."""

    run: str
    folder: Path
    model: Path
    outcome: Outcome
    workers: list[Statistics]
    accuracy: float

    @property
    def samples_per_s(self) -> float:
        return cluster_rate(self.workers)


@with_flags("workers strategy topology codec finish quick epochs seconds seed start link name runs_dir config")
def demo(
    *,
    given: Given,
    quick: Annotated[bool, run_flag("--quick", help="Train with several workers and with one, unhindered.")] = False,
    epochs: Annotated[int | None, run_flag(help="Passes over the training samples; implies --quick.")] = None,
    seconds: Annotated[float, run_flag(help="Length of each of the three trainings.", min=2.0, max=600.0)] = SECONDS,
    start: Start = None,
    plot: Annotated[bool, output_flag("--plot/--no-plot", help="Draw the loss curves (PNG).")] = True,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what taut is for: a digit classifier, trained by one worker, by sync and by async, a minute in all.

    Links are limited to 100 Mbit/s, one worker is slowed down and one is killed. With --quick: several workers, then one,
    on as many samples, without any of that.
    """
    quick = quick or epochs is not None
    defaults: dict[str, object] = {"workers": WORKERS} if quick else {"workers": default_workers(), "link": LINK}
    settings = given.settings(**defaults).fitted()
    check_start(start)
    check_demo(EPOCHS if epochs is None else epochs)
    set_up_log(settings.log)
    display = Display(notes(), quiet=quiet or as_json)
    settings = replace(settings, preload=("sklearn.datasets", *settings.preload))
    if quick:
        train_quickly(settings, EPOCHS if epochs is None else epochs, display, start, plot=plot, as_json=as_json)
        return
    if settings.workers < 2:
        raise Misuse(f"--workers = {settings.workers}", "at least 2: one is killed", "--quick takes one worker, too")
    compared = compare_on(settings, seconds, display, start, plot)
    if as_json:
        print_json(compared.record())
    elif not quiet:
        compared.show()


def train_quickly(
    settings: Settings, epochs: int, display: Display, start: str | None, *, plot: bool, as_json: bool
) -> None:
    """Train with several workers and with one, on as many samples, and compare."""
    if not display.quiet:
        display.note(settings.describe() + f"  epochs={epochs}", "dim")
    cluster = train(settings, epochs, display, start)
    alone = replace(settings, workers=1, threads=settings.threads_per_worker, name=f"{cluster.run}-single", port=0)
    single = train(alone, epochs, display, start)
    picture = draw(cluster, single, settings) if plot else None
    if as_json:
        print_json(record(settings, epochs, cluster, single, picture))
    elif not display.quiet:
        show(settings, epochs, cluster, single, picture)


def check_demo(epochs: int) -> None:
    """Refuse to start the demo where a package is missing."""
    if epochs < 1:
        raise Misuse(f"--epochs = {epochs}", "at least 1")
    for module, package in (("sklearn", "scikit-learn"), ("matplotlib", "matplotlib")):
        if find_spec(module) is None:
            raise Misuse(f"{package} is missing", "the demo's packages", "pip install 'taut[demo]'")


def train(settings: Settings, epochs: int, display: Display, start: str | None) -> DemoTraining:
    """Train once, to a model file, and measure the accuracy of that file."""
    command = shlex.join(sys.argv)
    # The folder is known only once the run is made, and the script is told where to note its losses.
    args = ["--epochs", str(epochs), "--seed", str(settings.seed)]
    run = LocalRun(settings, SCRIPT, args, start=start, command=command, folder_flag="--losses")
    if not display.quiet:
        count = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
        display.note(f"training with {count}: run {run.name}")
    outcome, model = finished(run, SCRIPT, display)
    return DemoTraining(
        run=run.name,
        folder=run.folder,
        model=model,
        outcome=outcome,
        workers=[row.statistics for row in outcome.workers.values()],
        accuracy=accuracy_of(list(outcome.ensemble.values()) or [model], settings.seed),
    )


def accuracy_of(model_files: Sequence[Path], seed: int) -> float:
    """Load the files as anybody would, and test them; several vote with their probabilities."""
    from safetensors.torch import load_file

    from taut.cli.jobs.digits import accuracy, digits, network

    models = []
    for file in model_files:
        models.append(network(seed=seed + 1))  # other weights than the run began with: the file must bring all its own
        models[-1].load_state_dict(load_file(file))
    return accuracy(models, digits(seed)[1])


def draw(cluster: DemoTraining, single: DemoTraining, settings: Settings) -> Path:
    """Draw both loss curves into the cluster's folder."""
    from taut.cli.demo.plots import curve, plot_losses

    curves = {f"{settings.workers} workers ({settings.codec})": curve(cluster.folder), "1 worker": curve(single.folder)}
    return plot_losses(curves, f"digits, {settings.strategy}, seed {settings.seed}", cluster.folder / "losses.png")


def record(
    settings: Settings, epochs: int, cluster: DemoTraining, single: DemoTraining, picture: Path | None
) -> dict[str, Any]:
    """Return the one object of ``--json``."""
    together = total(cluster.workers)
    return {
        "run": cluster.run,
        "run_single": single.run,
        **{name: getattr(settings, name) for name in (*AGREED, "threads_per_worker")},
        "epochs": epochs,
        **figures(together),
        "accuracy": {"cluster": cluster.accuracy, "single": single.accuracy},
        "samples": {"cluster": together.samples, "single": total(single.workers).samples},
        "samples_per_s": {"cluster": cluster.samples_per_s, "single": single.samples_per_s},
        "time_split_single": time_shares(total(single.workers)),
        "replicas_identical": cluster.outcome.identical,
        "validation": cluster.outcome.validation,
        "consensus_distance": cluster.outcome.consensus,
        "model": cluster.model,
        "model_single": single.model,
        "plot": picture,
    }


def show(settings: Settings, epochs: int, cluster: DemoTraining, single: DemoTraining, picture: Path | None) -> None:
    """Print the table, and where model and picture are."""
    count = f"{settings.workers} workers" if settings.workers > 1 else "cluster of 1"
    both = (cluster, single)
    sums = [total(each.workers) for each in both]
    rows = {
        "accuracy, held out": [f"{100 * each.accuracy:.2f}%" for each in both],
        "samples trained": [f"{each.samples:,}" for each in sums],
        "samples/s": [f"{each.samples_per_s:,.0f}" for each in both],
        "sent": [size(each.bytes_sent) for each in sums],
        "dense would be": [size(each.bytes_dense) for each in sums],
        "compression": [times(compression(each)) for each in sums],
        "staleness, steps": [f"{each.staleness:.1f}" for each in sums],
        "comp/enc/send/wait/merge/data %": [split_text(each) for each in sums],
        "replicas' scores": [scores_text(each.outcome.validation) for each in both],
        "consensus distance": [f"{cluster.outcome.consensus:.2g}", "-"],
        "replicas at the end": [SAME[cluster.outcome.identical], "-"],
        "finish": [settings.finish or "-", "-"],
    }
    headings = [f"{count}, {settings.strategy} {settings.codec}", "1 worker"]
    console = show_table(f"digits, {epochs} epochs, seed {settings.seed}", headings, rows)
    show_files(console, model=cluster.model, loss_curves=picture)
