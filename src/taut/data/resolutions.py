"""A schedule of resolutions: small images for the first passes over the data, full size for the last ones.

A step on images of half the side costs about a quarter, and early steps learn what is coarse anyway (Howard 2018,
"progressive resizing"; Tan and Le 2021, "EfficientNetV2"; Touvron et al. 2019 on training below the size of the test).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from taut.errors import Misuse

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ResolutionStage:
    """``epochs`` passes over images of ``size`` times ``size``; ``number``: counted from 0."""

    size: int
    epochs: int
    number: int = 0

    @property
    def first(self) -> bool:
        """Return whether training begins with this stage: there is nothing to grow from."""
        return self.number == 0

    def resize(self, images: torch.Tensor) -> torch.Tensor:
        """Return the images (``(..., channels, height, width)``) in this stage's size, smoothed where they shrink.

        >>> import torch
        >>> ResolutionStage(2, 1).resize(torch.tensor([[[[0.0, 2.0, 0.0, 2.0]] * 4]])).shape
        torch.Size([1, 1, 2, 2])
        """
        from torch.nn import functional

        if images.ndim < 3:
            raise Misuse(f"images of shape {tuple(images.shape)}", "(samples, channels, height, width)")
        if tuple(images.shape[-2:]) == (self.size, self.size):
            return images
        many = images if images.ndim == 4 else images.reshape(-1, *images.shape[-3:])
        smaller = functional.interpolate(many.float(), (self.size, self.size), mode="bilinear", antialias=True)
        return smaller.to(images.dtype).reshape(*images.shape[:-2], self.size, self.size)


class Resolutions(Sequence[ResolutionStage]):
    """The stages of a schedule, from pairs of a size and a number of passes.

    >>> schedule = Resolutions([(16, 3), (32, 1)])
    >>> [(stage.size, stage.epochs, stage.first) for stage in schedule]
    [(16, 3, True), (32, 1, False)]
    >>> schedule.epochs, schedule.pixels
    (4, 0.4375)
    """

    def __init__(self, stages: Sequence[tuple[int, int]]) -> None:
        for stage in stages:
            whole = isinstance(stage, Sequence) and all(type(each) is int and each > 0 for each in stage)
            if not whole or len(stage) != 2:
                raise Misuse(f"Resolutions with {stage!r}", "pairs (size, epochs) of whole numbers of at least 1")
        if not stages:
            raise Misuse("Resolutions([])", "at least one pair (size, epochs)", "for example [(16, 3), (32, 3)]")
        self._stages = [ResolutionStage(size, epochs, number) for number, (size, epochs) in enumerate(stages)]

    @property
    def epochs(self) -> int:
        """Return the passes of all stages together."""
        return sum(stage.epochs for stage in self)

    @property
    def pixels(self) -> float:
        """Return the pixels that training looks at, as a share of those with the last size from the start."""
        return sum(stage.epochs * stage.size**2 for stage in self) / (self.epochs * self[-1].size ** 2)

    def __len__(self) -> int:
        return len(self._stages)

    @overload
    def __getitem__(self, at: int) -> ResolutionStage: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[ResolutionStage]: ...

    def __getitem__(self, at: int | slice) -> ResolutionStage | Sequence[ResolutionStage]:
        return self._stages[at]

    def __iter__(self) -> Iterator[ResolutionStage]:
        return iter(self._stages)

    def __repr__(self) -> str:
        return f"Resolutions({[(stage.size, stage.epochs) for stage in self]})"
