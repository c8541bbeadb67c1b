"""A worker's own data: it stays in this process. No sample is leased to another worker, and no index leaves.

Under a strategy that averages, a worker counts by the samples that it trained on, as with leased data. A worker that has
been through its data takes part in the others' rounds without training, until they are through theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from torch.utils import data

from taut.errors import Misuse
from taut.worker.data.batches import BatchPlan, Dealer, OwnLeases

if TYPE_CHECKING:
    from taut.core.messages import Lease, Statistics
    from taut.worker.session import WorkerSession

REMEDY = "own=True trains on every sample that this worker has: leave it out, or own"


def check_own(dataset: Any, global_batch: int | None, sampler: Any, whose: str = "this worker") -> None:
    """Raise ``Misuse`` for what shares data out over the workers, beside ``own=True``, and for data without a sample."""
    if global_batch is not None:
        given = f"own=True with global_batch={global_batch}"
        raise Misuse(given, "batch_size, of this worker's own batches", "a global batch shares out leased samples")
    if sampler is None and isinstance(dataset, data.DataLoader):
        sampler = dataset.sampler
    if isinstance(sampler, data.DistributedSampler):
        raise Misuse("own=True with a DistributedSampler", f"a data set that is {whose}'s alone", REMEDY)
    samples: Any = dataset.dataset if isinstance(dataset, data.DataLoader) else dataset
    if hasattr(samples, "__len__") and not len(samples):
        remedy = "start a worker only where there is data, or let this one train on leased data, without own=True"
        raise Misuse(f"own=True with an empty data set on {whose}", "at least one sample", remedy)


class OwnData(OwnLeases):
    """Passes over the data of this worker, in a run of several. ``session``: None for a worker alone."""

    def __init__(self, session: WorkerSession | None) -> None:
        super().__init__()
        self._session = session

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | None:
        if self._session is not None:
            self._session.enter()  # a newcomer has the run's state before it sees its first batch
            if self._session.stopping:
                return None
        return super().take(plan, ahead)


class OwnDealer(Dealer):
    """Deals a worker's own data, and knows how far it is."""

    source: OwnData

    def __init__(self, session: WorkerSession | None, seed: int) -> None:
        super().__init__(OwnData(session), seed)

    def position(self) -> list[int]:
        """Return the passes that were trained on, and the samples of the next one, for a checkpoint."""
        return [self.source.complete, self.progress.get(self.source.complete, 0)]

    def begin_at(self, complete: int, samples: int) -> None:
        """Begin where a checkpoint says."""
        self.source.begin_at(complete, samples)
        if samples:
            self.progress[complete] = samples
        self.complete = complete

    def noted(self, made: Statistics) -> Statistics:
        """Return the statistics with the passes over own data, for the progress of the run."""
        plan = self.source.plan
        if plan is None:
            return made
        wanted = plan.until if plan.last else 0
        return msgspec.structs.replace(made, own_length=plan.length, own_passes=self.source.complete, own_wanted=wanted)
