"""Data: shards that are leased to workers; for experiments, public data sets, splits over clients, images that grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.data.image_files import load as load
    from taut.data.resolutions import Resolutions as Resolutions
    from taut.data.shards import Shards as Shards
    from taut.data.splits import split as split

_HOMES = {
    "Resolutions": "taut.data.resolutions",
    "Shards": "taut.data.shards",
    "load": "taut.data.image_files",
    "split": "taut.data.splits",
}

__all__ = [
    "Resolutions",
    "Shards",
    "load",
    "split",
]


def __dir__() -> list[str]:
    """List the public names, also those that are not loaded yet."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'taut.data' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)  # in the place of a module of the same name
    return found
