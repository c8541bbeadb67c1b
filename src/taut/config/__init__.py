"""Flags, environment and ``taut.toml`` become one frozen ``Settings``.

Only this package and taut.engines read os.environ. A value comes from the first of these that names it: a flag, an
environment variable (``TAUT_`` and the setting's name in capitals), ``taut.toml`` (in the current folder, or the file
given with ``--config``), the default. docs/cli.md lists the settings, with their tables in ``taut.toml``.
"""

from __future__ import annotations

from taut.config.checks import read_graph
from taut.config.environment import (
    IslandEnvironment,
    WorkerEnvironment,
    chosen_launcher,
    cores,
    costs_file,
    discovery_environment,
    found,
    island_environment,
    joining,
    worker_environment,
)
from taut.config.settings import AGREED, FIELDS, PATIENCE_S, Settings, resolve

__all__ = [
    "AGREED",
    "FIELDS",
    "PATIENCE_S",
    "IslandEnvironment",
    "Settings",
    "WorkerEnvironment",
    "chosen_launcher",
    "cores",
    "costs_file",
    "discovery_environment",
    "found",
    "island_environment",
    "joining",
    "read_graph",
    "resolve",
    "worker_environment",
]
