"""Local SGD that averages after every few steps, as a package of its own would bring it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from taut.strategies.info import Completeness, StrategyInfo
from taut.strategies.periodic.averaging import Averaging


@dataclass(frozen=True)
class Often(Averaging):
    """``--strategy often``."""

    name: ClassVar[str] = "often"
    info: ClassVar[StrategyInfo] = StrategyInfo(Completeness.SELDOM)
    paper: ClassVar[str] = "an example"

    every: int = 2
