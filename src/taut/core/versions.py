"""Versions of the packages that a run depends on."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib import metadata


def package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of these packages, as far as they are installed; nothing is imported."""
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found
