"""Facts about the machine that make two measurements comparable, by no framework's leave.

The NVIDIA driver's own libraries are asked through ctypes: they are there wherever
the driver is, and answer alike for every framework (no pynvml, no nvidia-smi).
What cannot be found out reads `unknown`. Nothing here fails for want of a GPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"

# CUdevice_attribute, cuda.h
MULTIPROCESSOR_COUNT = 16
L2_CACHE_SIZE = 38
COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

# nvmlClockType_t, nvml.h
NVML_CLOCK_SM = 1


class NvidiaDevice:
    """The first visible CUDA device, asked through libcuda and NVML."""

    def __init__(self) -> None:
        self._cuda = _library("libcuda.so.1")
        self._nvml = _library("libnvidia-ml.so.1")
        self._handle: ctypes.c_void_p | None = None
        self._ordinal = ctypes.c_int()
        if (
            self._cuda is None
            or self._cuda.cuInit(0) != 0
            or self._cuda.cuDeviceGet(ctypes.byref(self._ordinal), 0) != 0
        ):
            self._cuda = None
            return
        bus_id = ctypes.create_string_buffer(32)
        handle = ctypes.c_void_p()
        if (
            self._nvml is not None
            and self._nvml.nvmlInit_v2() == 0
            # By bus: CUDA_VISIBLE_DEVICES renumbers devices for CUDA, not for NVML.
            and self._cuda.cuDeviceGetPCIBusId(bus_id, len(bus_id), self._ordinal) == 0
            and self._nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id, ctypes.byref(handle)) == 0
        ):
            self._handle = handle

    def _attribute(self, attribute: int) -> int | None:
        value = ctypes.c_int()
        if self._cuda is None:
            return None
        status = self._cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, self._ordinal)
        return value.value if status == 0 else None

    def _nvml_number(self, function: str, *arguments: Any) -> int | None:
        """The answer of an NVML function whose last argument is an `unsigned int *`."""
        value = ctypes.c_uint()
        if self._handle is None or self._nvml is None:
            return None
        status = getattr(self._nvml, function)(self._handle, *arguments, ctypes.byref(value))
        return value.value if status == 0 else None

    def clock_mhz(self) -> float | None:
        """The SM clock now."""
        clock = self._nvml_number("nvmlDeviceGetClockInfo", NVML_CLOCK_SM)
        return None if clock is None else float(clock)

    def l2_bytes(self) -> int | None:
        """Size of the last-level cache."""
        return self._attribute(L2_CACHE_SIZE)

    def driver(self) -> str:
        """Version of the driver, for example `580.159.04`."""
        text = ctypes.create_string_buffer(96)
        if self._handle is None or self._nvml is None:
            return UNKNOWN
        known = self._nvml.nvmlSystemGetDriverVersion(text, len(text)) == 0
        return text.value.decode() if known else UNKNOWN

    def _mig(self) -> str:
        # The mode now, and the mode after a reset, which does not matter.
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        if self._handle is None or self._nvml is None:
            return UNKNOWN
        status = self._nvml.nvmlDeviceGetMigMode(
            self._handle, ctypes.byref(mode), ctypes.byref(pending)
        )
        return ("enabled" if mode.value else "disabled") if status == 0 else UNKNOWN

    def facts(self) -> dict[str, str]:
        """What enters the machine's fingerprint."""
        version = ctypes.c_int()
        cuda = UNKNOWN
        if self._cuda and self._cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
            cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        major = self._attribute(COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(COMPUTE_CAPABILITY_MINOR)
        milliwatts = self._nvml_number("nvmlDeviceGetPowerManagementLimit")
        return {
            "sms": _text(self._attribute(MULTIPROCESSOR_COUNT)),
            "compute_capability": UNKNOWN if major is None else f"{major}.{minor}",
            "driver": self.driver(),
            "cuda": cuda,
            "power_limit_w": UNKNOWN if milliwatts is None else str(round(milliwatts / 1000)),
            "mig": self._mig(),
            "l2_bytes": _text(self.l2_bytes()),
        }


def _library(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def _text(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def cpu_device() -> dict[str, Any]:
    """The `device` object of `hello` for this machine's processor."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return {
        "kind": "cpu",
        "name": model,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "facts": {"cores": str(len(os.sched_getaffinity(0))), "arch": platform.machine()},
    }


def cpu_cache_bytes() -> int:
    """Size of the largest cache that the first core sees; 32 MiB where the system is silent."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    found = [32 << 20]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text[-1:] in units and text[:-1].isdigit():
            found.append(int(text[:-1]) * units[text[-1]])
    return max(found)
