"""How busy a host is, from what Linux and NVIDIA's library tell."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.testing import FakeClock
from taut.worker.comm.host_meter import EVERY_S, HostMeter, ticks
from taut.worker.comm.nvml import GpuUse, Nvml

LIBRARY = """
typedef struct { unsigned gpu, memory; } utilization;
typedef struct { unsigned long long total, free, used; } memory;
static int devices[2] = {40, 80};
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned at, void **handle) { if (at > 1) return 2; *handle = &devices[at]; return 0; }
int nvmlDeviceGetUtilizationRates(void *handle, utilization *u) { u->gpu = *(int *)handle; return 0; }
int nvmlDeviceGetMemoryInfo(void *handle, memory *m) {
  if (*(int *)handle == 80) return 3;
  m->total = 100; m->free = 70; m->used = 30; return 0;
}
"""


def shown(folder: Path, busy: int, idle: int, available: int = 40) -> None:
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    (folder / "meminfo").write_text(f"MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=2, max_size=6))
def test_the_share_is_that_of_the_time_since_the_last_reading(
    tmp_path_factory: object, spent: list[tuple[int, int]]
) -> None:
    folder, clock = tmp_path_factory.mktemp("proc"), FakeClock()  # type: ignore[attr-defined]
    meter, busy, idle = HostMeter(clock, folder), 0, 1
    for more_busy, more_idle in spent:
        busy, idle = busy + more_busy, idle + more_idle
        shown(folder, busy, idle)
        first = meter._before == (0, 0)
        use = meter.read()
        assert use is not None and (use.memory_used, use.memory_total) == (60 * 1024, 100 * 1024)
        passed = more_busy + more_idle
        assert use.processor == (-1.0 if first or not passed else pytest.approx(more_busy / passed))
        assert meter.read() is None, "not again at once"
        clock.advance(EVERY_S)


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e f g h", "nothing"])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    shown(tmp_path, 1, 1)
    (tmp_path / "stat").write_text(text)
    assert HostMeter(FakeClock(), tmp_path).read() is None
    assert HostMeter(FakeClock(), tmp_path / "none").read() is None


def test_this_host_tells() -> None:
    use = HostMeter().read()
    assert use is not None and use.cores == os.cpu_count() and 0 < use.memory_used < use.memory_total
    assert ticks(Path("/proc/stat").read_text())[1] > 0


def test_a_host_without_the_library_has_no_gpus() -> None:
    assert Nvml("libthere-is-none.so.1").read() == GpuUse()


def test_the_use_of_all_gpus_is_read_from_the_library(tmp_path: Path) -> None:
    """The library's own types and calls, compiled; one device is not to be opened, one tells no memory."""
    (tmp_path / "nvml.c").write_text(LIBRARY)
    library = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "nvml.c")], check=True)
    assert Nvml(str(library)).read() == GpuUse(2, pytest.approx(0.6), 30, 100)
