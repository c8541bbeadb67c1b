"""The trainer of a Ray user: arguments are checked here, the run is conducted by a process of the cluster."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.cli.launch import check_script
from taut.config import FIELDS, Settings, resolve
from taut.engines.ray.cluster import connect, node_resources, the_ray
from taut.engines.ray.resources import check_room, resources_text
from taut.errors import Misuse
from taut.quantities import parse_resources
from taut.ray.supervise import Job, supervise
from taut.specs import did_you_mean

if TYPE_CHECKING:
    from ray.train import Result, RunConfig

OF_THE_SUPERVISOR = 0.001  # of its node's own resource: it takes no processor from the workers


class Trainer:
    """Trains a script, or a function, with several workers on a Ray cluster.

    Arguments:
        train: a script's path (``-m NAME`` for a module), or a function that calls ``taut.join`` and runs in the actors.
        workers, strategy, codec: as ``taut run`` takes them, and so are all its other settings (``seed=7``).
        args: the script's arguments. ``config``: the function's argument, where it takes one.
        address: of a cluster; else ``RAY_ADDRESS``, else one is started for the time of the training. In a process that
            ``ray.init`` has connected, its cluster is taken.
        resources_per_worker: as ``{"CPU": 2, "GPU": 1}``. ``placement_strategy``: ``PACK`` or ``SPREAD``.
        wait_s: how long to wait for a cluster that grows.
        run_config: Ray Train's: the experiment's name, where results go, how many checkpoints stay.
        runtime_env: of the workers' actors, as Ray takes it.
    """

    def __init__(
        self,
        train: str | Path | Callable[..., object],
        *,
        workers: int = 1,
        strategy: str | None = None,
        codec: str | None = None,
        args: Sequence[str] = (),
        config: Any = None,
        address: str | None = None,
        resources_per_worker: Mapping[str, float] | None = None,
        placement_strategy: str | None = None,
        wait_s: int | None = None,
        run_config: RunConfig | None = None,
        runtime_env: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        for name in settings:
            if name not in FIELDS:
                raise Misuse(f"Trainer({name}=...)", "a setting that `taut run` has", did_you_mean(name, FIELDS))
        flags = {"workers": workers, "strategy": strategy, "codec": codec, "ray_address": address, "engine": "ray"}
        flags |= {"ray_placement": placement_strategy, "ray_wait_s": wait_s}
        if resources_per_worker is not None:
            flags["ray_resources"] = resources_text({name: n for name, n in resources_per_worker.items() if n})
        self.settings: Settings = resolve(flags | settings).without_islands().fitted()
        self._run_config = run_config
        script, function = _parts(train, config)
        self._job = Job(self.settings, script, list(args), function, os.getcwd(), runtime_env)

    def fit(self) -> Result:
        """Train, and return Ray Train's ``Result``: the last metrics, the model as a checkpoint, and where they are.

        Inside a training function of Ray Train, the run reports to its context. Raise ``Misuse`` before anything is
        started, and ``ray.train.TrainingFailedError`` where the run failed."""
        the_ray()
        import ray.train
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

        if _in_ray_train():
            outcome = supervise(self._job)
            return ray.train.Result(
                metrics=outcome.pop("metrics"), checkpoint=None, error=None, path=outcome["folder"], return_value=outcome
            )
        each = parse_resources(self.settings.ray_resources)
        cpus = each.get("CPU", 0.0) * self.settings.workers
        connection = connect(self.settings.ray_address, cpus)
        try:
            if not self.settings.ray_wait_s:
                check_room(self.settings.workers, each, node_resources(), self.settings.ray_placement)
            trainer = DataParallelTrainer(
                partial(supervise, self._job),
                scaling_config=ray.train.ScalingConfig(
                    num_workers=1, resources_per_worker={f"node:{connection.address}": OF_THE_SUPERVISOR}
                ),
                run_config=self._run_config,
            )
            return trainer.fit()
        finally:
            connection.close()


def _in_ray_train() -> bool:
    """Return whether this is a training function of Ray Train."""
    import ray.train

    try:
        ray.train.get_context()
    except RuntimeError:
        return False
    return True


def _parts(train: str | Path | Callable[..., object], config: Any) -> tuple[str, Callable[[], object] | None]:
    """Return the script's path, or a function's file and the function with its argument."""
    if isinstance(train, str | Path):
        check_script(Path(train))
        return str(train), None
    if not callable(train):
        raise Misuse(f"Trainer({train!r})", "the path of a script, or a function")
    takes = [each for each in inspect.signature(train).parameters.values() if each.default is each.empty]
    if len(takes) > 1 or (config is not None and not inspect.signature(train).parameters):
        raise Misuse(f"Trainer({train})", "a function without arguments, or with one, which is config")
    source = inspect.getsourcefile(train) if inspect.isfunction(train) else None
    return source or "a function", partial(train, config) if takes or config is not None else partial(train)
