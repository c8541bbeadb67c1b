"""The software and the processor that this worker computes with, as others compare them."""

from __future__ import annotations

import contextlib
import hashlib
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from taut.core.messages import Platform

if TYPE_CHECKING:
    from taut.worker.model.flat_params import FlatParams

MOST_NBYTES = 1 << 24  # of a script


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
    taut, python, rounding = metadata.version("taut"), platform.python_version(), f"{processor} torch {version}"
    return Platform(taut, python, version, system, rounding, script_of(sys.argv[0]))


def script_of(path: str) -> str:
    """Return the name of a script and a hash of its text; an empty text where there is no such file."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        name = "".join(letter if letter.isprintable() else "?" for letter in Path(path).name[:80])
        return f"{name}:{hashlib.blake2b(file.read(MOST_NBYTES), digest_size=4).hexdigest()}"
    return ""
