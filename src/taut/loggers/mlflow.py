"""MLflow: one run of the experiment ``taut``, on the server that ``MLFLOW_TRACKING_URI`` names, or in local files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.loggers.feed import News, worker_name

EXPERIMENT = "taut"
MOST = 1000  # metrics in one request, as MLflow takes them
LONGEST = 500  # characters of a parameter


class Logger:
    """Metrics are named ``loss/worker-0``; settings are parameters."""

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        import mlflow
        from mlflow.entities import Param

        self._client = mlflow.MlflowClient()
        found = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else self._client.create_experiment(EXPERIMENT)
        self._run = self._client.create_run(experiment, run_name=run).info.run_id
        params = [Param(name, str(value)[:LONGEST]) for name, value in settings.items() if value is not None]
        self._client.log_batch(self._run, params=params[:100])
        return f"run {run} of experiment {EXPERIMENT} in {mlflow.get_tracking_uri()}"

    def write(self, news: News) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(f"{one.name}/{worker_name(one.rank)}", one.value, int(1000 * one.time), one.step)
            for one in news.scalars
        ]
        for first in range(0, len(metrics), MOST):
            self._client.log_batch(self._run, metrics=metrics[first : first + MOST])
        with tempfile.TemporaryDirectory() as folder:
            for image in news.images:
                path = Path(folder) / f"{image.step}.png"
                path.write_bytes(image.png)
                where = f"images/{_safe(image.name)}/{worker_name(image.rank)}"
                self._client.log_artifact(self._run, str(path), where)

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        failed = outcome is None or outcome.get("exit_code") != 0
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in name)
