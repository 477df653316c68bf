"""Device facts for the machine fingerprint, read from the driver without a framework.

They come from the NVIDIA driver's own libraries, called through ctypes. These are installed
with every driver, and give every framework the same answers (no pynvml, no nvidia-smi).
A fact that cannot be read is `unknown`. Nothing here fails if the machine has no GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"

# CUdevice_attribute, cuda.h
MULTIPROCESSOR_COUNT = 16
L2_CACHE_SIZE = 38
COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

# nvmlReturn_t, nvml.h
NVML_SUCCESS = 0
NVML_ERROR_INSUFFICIENT_SIZE = 7

Names = str | tuple[str, ...]
"""The name of an NVML function, or its names in newer and older drivers, newest first."""

RUNNING_PROCESSES = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
"""Driver 510 introduced `_v3`."""

THROTTLE_REASONS = (
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetCurrentClocksEventReasons",
)
"""Renamed in 2023; drivers still export the old name, which comes first."""

SM_CLOCK = ("nvmlDeviceGetClockInfo", 1)
STATE: dict[str, tuple[Any, ...]] = {
    "sm_mhz": SM_CLOCK,
    "memory_mhz": ("nvmlDeviceGetClockInfo", 2),
    "power_w": ("nvmlDeviceGetPowerUsage",),
    "temperature_c": ("nvmlDeviceGetTemperature", 0),
}
"""NVML functions and their arguments between the device and the pointer to an unsigned int."""


class NvidiaDevice:
    """The visible CUDA device number `ordinal`, queried through libcuda and NVML."""

    def __init__(self, ordinal: int = 0) -> None:
        self._cuda = _library("libcuda.so.1")
        self._nvml = _library("libnvidia-ml.so.1")
        self._handle: ctypes.c_void_p | None = None
        self._ordinal = ctypes.c_int()
        if (
            self._cuda is None
            or self._cuda.cuInit(0) != 0
            or self._cuda.cuDeviceGet(ctypes.byref(self._ordinal), ordinal) != 0
        ):
            self._cuda = None
            return
        bus_id = ctypes.create_string_buffer(32)
        handle = ctypes.c_void_p()
        if (
            self._nvml is not None
            and self._nvml.nvmlInit_v2() == 0
            # By PCI bus id: CUDA_VISIBLE_DEVICES renumbers devices for CUDA, not for NVML.
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

    def _nvml_status(self, functions: Names, *arguments: Any) -> int | None:
        """Calls an NVML function of this device by the first of its names that the driver has.
        Returns the status; None if the driver lacks the function, or without NVML."""
        if self._handle is None or self._nvml is None:
            return None
        for name in (functions,) if isinstance(functions, str) else functions:
            # A driver that is older than the function has no such symbol.
            with contextlib.suppress(AttributeError):
                status: int = getattr(self._nvml, name)(self._handle, *arguments)
                return status
        return None

    def _nvml_number(
        self, functions: Names, *arguments: Any, kind: Any = ctypes.c_uint
    ) -> int | None:
        """Returns the number that an NVML function writes to its last argument, or None."""
        value = kind()
        status = self._nvml_status(functions, *arguments, ctypes.byref(value))
        return int(value.value) if status == NVML_SUCCESS else None

    def clock_mhz(self) -> float | None:
        clock = self._nvml_number(*SM_CLOCK)
        return None if clock is None else float(clock)

    def state(self) -> dict[str, Any]:
        """Returns clocks, power, temperature, throttling and other processes, if known."""
        found: dict[str, Any] = {name: self._nvml_number(*asked) for name, asked in STATE.items()}
        if found["power_w"] is not None:
            found["power_w"] /= 1e3
        found["throttle_bits"] = self._nvml_number(THROTTLE_REASONS, kind=ctypes.c_ulonglong)
        # Counted, because in a container NVML may return the host's process ids. With no room for
        # entries, NVML returns only the number of processes. It includes this process, unless
        # NVML lists no processes here.
        count = ctypes.c_uint(0)
        status = self._nvml_status(RUNNING_PROCESSES, ctypes.byref(count), None)
        if status in (NVML_SUCCESS, NVML_ERROR_INSUFFICIENT_SIZE) and count.value:
            found["other_processes"] = count.value - 1
        return {name: value for name, value in found.items() if value is not None}

    def l2_bytes(self) -> int | None:
        """Returns the size of the last-level cache in bytes."""
        return self._attribute(L2_CACHE_SIZE)

    def driver(self) -> str:
        """Returns the version of the driver, for example `580.159.04`."""
        text = ctypes.create_string_buffer(96)
        if self._handle is None or self._nvml is None:
            return UNKNOWN
        known = self._nvml.nvmlSystemGetDriverVersion(text, len(text)) == NVML_SUCCESS
        return text.value.decode() if known else UNKNOWN

    def facts(self) -> dict[str, str]:
        version, cuda = ctypes.c_int(), None
        if self._cuda and self._cuda.cuDriverGetVersion(ctypes.byref(version)) == 0:
            cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        major = self._attribute(COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(COMPUTE_CAPABILITY_MINOR)
        milliwatts = self._nvml_number("nvmlDeviceGetPowerManagementLimit")
        # `mode` receives the current mode; the last argument, the mode after a reset, is ignored.
        mig = self._nvml_number("nvmlDeviceGetMigMode", ctypes.byref(mode := ctypes.c_uint()))
        found = {
            "sms": self._attribute(MULTIPROCESSOR_COUNT),
            "compute_capability": None if major is None else f"{major}.{minor}",
            "driver": self.driver(),
            "cuda": cuda,
            "power_limit_w": None if milliwatts is None else round(milliwatts / 1000),
            "mig": None if mig is None else "enabled" if mode.value else "disabled",
            "l2_bytes": self.l2_bytes(),
        }
        return {name: UNKNOWN if of is None else str(of) for name, of in found.items()}


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Returns the versions of Python and of those `packages` that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def _library(name: str) -> Any:
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def cpu_device() -> dict[str, Any]:
    """Returns the `device` object of `hello` for this machine's CPU, in the Rust worker's form."""
    return {
        "kind": "cpu",
        "name": _first_value("/proc/cpuinfo", "model name") or platform.machine(),
        "memory_bytes": int(_first_value("/proc/meminfo", "MemAvailable").split(" ")[0] or 0) << 10,
        "facts": {"cores": str(len(os.sched_getaffinity(0)))},
    }


def _first_value(file: str, key: str) -> str:
    """Returns the text after the first `key:` at the start of a line; empty without that key."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() == key), "")


def last_level_cache_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int | None:
    """Returns the total bytes of all last-level caches, each known by the CPUs that share it."""
    sizes: dict[str, int] = {}
    for cache in cpus.glob("cpu*/cache"):
        levels: list[tuple[int, str, int]] = []
        for index in cache.glob("index*"):
            with contextlib.suppress(OSError, ValueError):
                level, shared, size = (
                    (index / name).read_text().strip()
                    for name in ("level", "shared_cpu_list", "size")
                )
                levels.append((int(level), shared, _bytes(size)))
        if levels:
            _, shared, size_bytes = max(levels)
            sizes[shared] = size_bytes
    return sum(sizes.values()) or None


def _bytes(text: str) -> int:
    """Parses a size in the form of sysfs, such as `512K` or `32M`."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def cpu_flush_bytes() -> int:
    """Returns the bytes to write to evict a CPU's caches: a quarter more than they hold, as they do
    not evict strictly in order, and at most 1 GiB. The Rust worker does the same."""
    cache = last_level_cache_bytes() or 64 << 20
    return min(cache + cache // 4, 1 << 30)
