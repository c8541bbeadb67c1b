"""Weights & Biases: one run of the project ``taut``, or of ``WANDB_PROJECT``; ``WANDB_MODE=offline`` needs no account."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.errors import Misuse
from taut.loggers.feed import News, worker_name


class Logger:
    """Metrics are named ``worker-0/loss``, over ``worker-0/step``; those of all workers are over the samples trained."""

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        import wandb

        setup = wandb.setup().settings
        if setup.mode not in ("offline", "disabled", "dryrun") and not wandb.api.api_key:
            remedy = "type `wandb login`, or set WANDB_MODE=offline"
            raise Misuse("--report-to wandb without an account", "an API key, or the offline mode", remedy)
        config = {name: value for name, value in settings.items() if value is not None}
        quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
        project = setup.project or "taut"
        self._run = wandb.init(project=project, name=run, config=config, dir=str(run_dir), settings=quiet)
        self._known: set[str] = set()
        return self._run.url or f"offline, in {self._run.dir}; `wandb sync` sends it"

    def write(self, news: News) -> None:
        for one in news.scalars:
            self._log(worker_name(one.rank), one.step, {one.name: one.value})
        for image in news.images:
            import wandb
            from PIL import Image

            shown = wandb.Image(Image.open(io.BytesIO(image.png)))
            self._log(worker_name(image.rank), image.step, {image.name: shown})

    def _log(self, source: str, step: int, values: Mapping[str, object]) -> None:
        if source not in self._known:
            self._known.add(source)
            self._run.define_metric(f"{source}/step")
            self._run.define_metric(f"{source}/*", step_metric=f"{source}/step")
        self._run.log({f"{source}/step": step, **{f"{source}/{name}": value for name, value in values.items()}})

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        failed = outcome is None or outcome.get("exit_code") != 0
        self._run.finish(exit_code=1 if failed else 0)
