"""Settings of a run that ``taut resume`` continues: those that it had, unless others are given now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taut.cli.commands.resume import continued
from taut.cli.commands.run import launch_of
from taut.config import Settings, resolve
from taut.supervisor.checkpoints.folder import Manifest

RAY = {"engine": "ray", "ray_address": "10.0.0.7:6379", "ray_resources": "CPU=2", "ray_placement": "SPREAD"}


def resumed(first: dict[str, Any], **now: Any) -> Settings:
    """Return the settings of a run with the flags ``first`` that is resumed with the flags ``now``."""
    settings = resolve(first).fitted()
    launch = launch_of(settings, Path("train.py"), [], None)
    kept = settings.shared()
    return continued(resolve(now), Manifest(1, "run", 1, 0.0, kept, launch, {}, 0, 10, {}, []))


def test_flags_of_ray_are_kept() -> None:
    found = resumed({"workers": 3, **RAY})
    assert (found.engine, found.workers) == ("ray", 3)
    assert {name: getattr(found, name) for name in RAY} == RAY


def test_flags_of_now_go_first() -> None:
    found = resumed({"workers": 3, **RAY}, ray_address="10.0.0.8:6379", workers=2)
    assert (found.ray_address, found.ray_placement, found.workers) == ("10.0.0.8:6379", "SPREAD", 2)


def test_another_engine_does_not_have_them() -> None:
    assert resumed({"workers": 2, "ray_placement": "SPREAD"}).ray_placement == "PACK"
