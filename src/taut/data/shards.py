"""Data in shards, such as files, that are read from their begin to their end: shards are leased to workers as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any

from taut.errors import Misuse


class Shards:
    """Data whose samples are read by ``read(shard)``, in its order, for each of ``shards``.

    ``worker.batches(Shards(files, read), batch_size)`` deals the shards to the workers: over all workers each comes once
    per pass. All workers must have the same list.

    Arguments:
        shards: file names, URLs, or whatever ``read`` takes; more of them than workers.
        read: a function that takes one of them and returns an iterable of its samples.

    >>> import torch, taut
    >>> model = torch.nn.Linear(1, 1)
    >>> shards = Shards(["2", "3"], lambda name: (torch.tensor([float(number)]) for number in range(int(name))))
    >>> with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
    ...     [len(batch) for batch in worker.batches(shards, batch_size=2, shuffle=False)]
    [2, 2, 1]
    """

    def __init__(self, shards: Sequence[Any], read: Callable[[Any], Iterable[Any]]) -> None:
        if isinstance(shards, str | bytes) or not isinstance(shards, Sequence) or not shards:
            raise Misuse(
                f"Shards({shards!r:.100}, ...)", "a list of at least one shard", "such as sorted(folder.glob('*'))"
            )
        if not callable(read):
            raise Misuse(f"Shards(..., {read!r:.100})", "a function that takes a shard and returns its samples")
        self.shards, self.read = list(shards), read

    def __len__(self) -> int:
        return len(self.shards)

    @property
    def names(self) -> list[str]:
        """Return the shards as texts, where they are names of files or the like; else nothing."""
        named = all(isinstance(shard, str | PurePath) for shard in self.shards)
        return [str(shard) for shard in self.shards] if named else []
