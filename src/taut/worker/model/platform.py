"""The software and the processor that this worker computes with, as others compare them."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING

from taut.core.messages import Platform

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams


def platform_of(params: FlatParams) -> Platform:
    """Return the platform of the process that has the model ``params``."""
    import torch

    device = params.tensor.device
    if device.type == "cuda":
        processor = torch.cuda.get_device_name(device)
    else:
        processor = f"{device.type} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    version = str(torch.__version__)
    system = f"{platform.system()}-{platform.machine()}"
    return Platform(metadata.version("taut"), platform.python_version(), version, system, f"{processor} torch {version}")
