"""Public: checks and fakes for codecs, transports, strategies and your own training.

check_codec       a codec obeys its laws                      checks/codec_check.py
check_compressor  a compressor keeps its stated bounds        checks/compressor_check.py
fuzz_payloads     broken payloads are refused                 checks/codec_fuzz.py
check_transport   a transport delivers as it must             checks/transport_check.py
check_strategy    any strategy survives a random history      checks/conformance.py
MethodWorld       methods of many workers in one thread       worlds/method_world.py
LocalCluster      a supervisor and real worker processes      cluster.py
HostileWorker     an admitted worker that sends rubbish       hostile.py
FakeClock         a clock that is advanced by hand            clock.py
FaultPlan         the faults of a test, and their times       fault_plan.py
run_with_faults   a script under such a plan, in virtual time faults/faulty_run.py
Terminal          a command in a terminal: its screen, keys   terminal.py
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "check_codec": "checks.codec_check",
    "check_compressor": "checks.compressor_check",
    "fuzz_payloads": "checks.codec_fuzz",
    "check_transport": "checks.transport_check",
    "check_strategy": "checks.conformance",
    "MethodWorld": "worlds.method_world",
    "LocalCluster": "cluster",
    "FakeClock": "clock",
    "HostileWorker": "hostile",
    "FaultPlan": "fault_plan",
    "run_with_faults": "faults.faulty_run",
    "Terminal": "terminal",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for: some need torch, or numba."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
