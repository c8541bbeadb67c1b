"""``taut.join``: who, where and how come from the launcher; without one, the script is a run of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from taut.codecs import parse, spec
from taut.codecs.parallel import set_threads
from taut.core.callbacks import do_nothing
from taut.errors import Misuse
from taut.worker.checkpoints.state_tree import check_also
from taut.worker.connection import CONNECTOR, connector, launched_run
from taut.worker.island_member import island_member
from taut.worker.launched import AUTO, found_launch, told_in_a_line
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.model_checks import check_model
from taut.worker.model.optimizers import joined
from taut.worker.script_worker import check_first, note_joined
from taut.worker.session import WorkerSession
from taut.worker.torch_worker import TorchWorker
from taut.worker.validation import Validation

if TYPE_CHECKING:
    from taut.codecs import Codec, Compressor


def join(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    *,
    validate: Callable[[Any], Any] | None = None,
    better: Literal["higher", "lower"] = "higher",
    recalibrate: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
    codec: str | Mapping[str, Any] | Codec | Compressor | None = None,
    seed: int = 0,
    also: Mapping[str, Any] | None = None,
    launcher: str | None = AUTO,
) -> TorchWorker:
    """Join the run that this process was started for, or be a run of one.

    ``optimizer``: the one that trains the model, or a list of all that do (as for a GAN, its networks in one module).

    ``validate``: a function that takes the model and gives its score on held-out data, called at the end, in evaluation
    mode and without gradients; ``better``: whether a higher or a lower score is. ``recalibrate``: training batches (or a
    function that gives them) to compute the batch-norm statistics of the final model with (``taut.optim.recalibrate``).

    ``also``: what else belongs to the training, under names of your choice: anything with ``state_dict`` and
    ``load_state_dict`` (a learning rate scheduler, an AMP scaler). Checkpoints hold it, and ``taut resume`` puts it back;
    under ``sync`` a worker that joins in mid-run takes it over from the others.

    ``codec``: how updates are written down (``"topk:density=0.001"``, ``taut.codecs.TopK(0.001)``), unless the launcher
    says otherwise (``--codec``). ``seed``: of the order of the samples in a run of one; a cluster's comes from its
    launcher. All other settings are the launcher's.

    ``launcher``: what started this process. ``"auto"`` finds out: ``taut run`` and ``taut worker``, or ``torchrun``,
    ``srun`` and ``mpirun``, whose processes become workers of one run; None: each process is a run of its own.

    >>> import torch, taut
    >>> model = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.0]]); y = torch.tensor([[1.0], [2.0]])
    >>> with taut.join(model, optimizer) as worker:
    ...     for inputs, targets in worker.batches((x, y), batch_size=1, epochs=200):
    ...         loss = (model(inputs) - targets).square().mean()
    ...         _ = worker.step(loss)
    >>> worker.samples, bool((model(x) - y).abs().max() < 1e-3)
    (400, True)
    """
    given = list(optimizer) if isinstance(optimizer, list | tuple) else [optimizer]
    if not hasattr(model, "named_parameters") or not given or not all(hasattr(one, "param_groups") for one in given):
        raise Misuse(
            f"join({type(model).__name__}, {', '.join(type(one).__name__ for one in given) or 'no optimizer'})",
            "a torch.nn.Module and a torch.optim.Optimizer, or a list of them",
            "for a worker without torch, see taut.Worker and taut.Topology",
        )
    trainer = joined(given)
    trained = check_model(model, trainer)
    written = None if codec is None else spec(parse(codec))  # misuse is told before anything starts
    check_also(also or {})
    validation = Validation(validate, better, recalibrate)
    launched = found_launch(launcher) if CONNECTOR.get() is None else None
    with told_in_a_line(launched):
        if launched is not None:
            launched.enter()
        run = launched_run()
        check_first(run)
        link, session, member = connector(), None, None
        if link is not None:
            link.when_joined = launched.joined if launched is not None else do_nothing
            set_threads(torch.get_num_threads())  # large models are scanned by as many as compute
            member = island_member(model, trained, validate is not None or recalibrate is not None)
            exchanged = trained if member is None else member.own
            session = WorkerSession(link, FlatParams(model, exchanged), written, validation)
        worker = TorchWorker(model, trainer, session, seed, validation, also, member)
        note_joined(worker, run)
    if launched is not None:
        launched.started()
    return worker
