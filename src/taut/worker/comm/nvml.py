"""The use of NVIDIA's GPUs, asked of the library that comes with their driver (NVML); no package is needed."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

LIBRARY = "libnvidia-ml.so.1"


class GpuUse(NamedTuple):
    """All GPUs of this host together: their number, the mean share of time that they work, and their memory in bytes."""

    gpus: int = 0
    busy: float = -1.0
    memory_used: int = 0
    memory_total: int = 0


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The library, if the host has it and it can be used."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._handles: list[ctypes.c_void_p] = []
        try:
            self._library = ctypes.CDLL(library)
        except OSError:
            return
        count = ctypes.c_uint()
        if self._library.nvmlInit_v2() or self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for number in range(count.value):
            handle = ctypes.c_void_p()
            if not self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)):
                self._handles.append(handle)

    def read(self) -> GpuUse:
        """Return the use of all GPUs now. One that does not answer counts as unknown."""
        busy, used, whole = [], 0, 0
        for handle in self._handles:
            share, memory = _Utilization(), _Memory()
            if not self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(share)):
                busy.append(share.gpu / 100.0)
            if not self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)):
                used, whole = used + memory.used, whole + memory.total
        return GpuUse(len(self._handles), sum(busy) / len(busy) if busy else -1.0, used, whole)
