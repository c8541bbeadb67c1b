"""``taut.join``: who, where and how come from the launcher; without one, the script is a run of one worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from taut.codecs import parse, spec
from taut.worker.checkpoints.state_tree import check_also
from taut.worker.joining.connection import Connector
from taut.worker.joining.enter_run import enter_run
from taut.worker.joining.island_member import island_member
from taut.worker.joining.launched import AUTO
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.given import module_of, optimizer_of
from taut.worker.model.master_weights import Rounding, check_rounding
from taut.worker.model.model_checks import HALVES, check_model
from taut.worker.session import WorkerSession
from taut.worker.torch_worker import TorchWorker
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch

    from taut.codecs import Codec, Compressor


def join(
    model: nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module],
    optimizer: torch.optim.Optimizer | Callable[[], Any] | Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    validate: Callable[[Any], Any] | None = None,
    better: Literal["higher", "lower"] = "higher",
    recalibrate: Iterable[Any] | Callable[[], Iterable[Any]] | None = None,
    codec: str | Mapping[str, Any] | Codec | Compressor | None = None,
    seed: int = 0,
    rounding: Rounding = "nearest",
    also: Mapping[str, Any] | None = None,
    launcher: str | None = AUTO,
) -> TorchWorker:
    """Join the run that this process was started for, or be a run of one.

    ``model``: a module, or several in a list or a dictionary, by whose keys the saved tensors are named.

    ``optimizer``: the one that trains the model, or a list of all that do (as for a GAN). A function: it updates the
    weights from their gradients, as ``worker.step`` asks for. None: your loop moves the weights and calls
    ``worker.exchange`` (docs/loops.md).

    ``validate``: a function that takes the model and gives its score on held-out data, called at the end, in evaluation
    mode and without gradients; ``better``: whether a higher or a lower score is. ``recalibrate``: training batches (or a
    function that gives them) to compute the batch-norm statistics of the final model with (``taut.optim.recalibrate``).

    ``also``: what else belongs to the training, under names of your choice: anything with ``state_dict`` and
    ``load_state_dict`` (a learning rate scheduler, an AMP scaler). Checkpoints hold it, and ``taut resume`` puts it back;
    under ``sync`` a worker that joins in mid-run takes it over from the others.

    ``codec``: how updates are written down (``"topk:density=0.001"``, ``taut.codecs.TopK(0.001)``), unless the launcher
    says otherwise (``--codec``). ``seed``: of the order of the samples in a run of one; a cluster's comes from its
    launcher. All other settings are the launcher's.

    ``rounding``: how bfloat16 and float16 parameters follow their float32 masters: to the ``"nearest"``, or
    ``"stochastic"``, so that the mean is the master's value.

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
    model = module_of(model)
    trainer = optimizer_of(model, optimizer)
    trained = check_model(model, trainer)
    written = None if codec is None else spec(parse(codec))  # misuse is told before anything starts
    check_also(also or {})
    check_rounding(rounding)
    validation = Validation(validate, better, recalibrate)

    def made(link: Connector | None) -> TorchWorker:
        session = None
        if link is not None:
            member = island_member(model, trained)
            exchanged = trained if member is None else member.own
            session = WorkerSession(link, FlatParams(model, exchanged, rounding), written, validation, member)
        halves = link is None and any(each.dtype in HALVES for each in trained)  # a plain loop needs no vector else
        params = FlatParams(model, trained, rounding) if halves else None
        return TorchWorker(model, trainer, session, seed, validation, also, params)

    return enter_run(made, launcher)
