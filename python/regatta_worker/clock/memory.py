"""Measures the resident memory of this process while samples are taken.

crates/worker/src/on_processor/memory.rs does the same for workers in Rust.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from itertools import pairwise
from pathlib import Path
from statistics import median_high
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")

MIN_GROWTH = 512 * 1024
"""Smallest increase, in bytes, that counts as growth. A process's counters lag by 32 pages a core,
and an allocator takes memory from the system in steps of 132 KiB."""

MIN_CALLS = 10


def held_bytes() -> int:
    """Returns the bytes of resident memory that back no file: arrays, objects, heaps. Gives free
    memory back to the system first."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return in_status("RssAnon")


def in_status(field: str) -> int:
    """Returns a field of proc_pid_status(5) in bytes; 0 if the kernel does not count it."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
        return int(next(sizes, "0")) << 10
    return 0


class ResidentMemory:
    """Tracks the resident memory of this process. The peak counts from the object's creation."""

    def __init__(self) -> None:
        self._before: list[int] = []
        self._peak_counted = False
        with contextlib.suppress(OSError):
            # proc_pid_clear_refs(5): 5 resets `VmHWM`.
            Path("/proc/self/clear_refs").write_text("5")
            self._peak_counted = True

    def read(self) -> None:
        """Records the current resident memory; to be called before each call."""
        with contextlib.suppress(OSError):
            self._before.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)

    def as_reply(self) -> dict[str, Any]:
        """Returns members of `measured`: the peak, if the kernel counts it, and the growth per
        call, if memory grows steadily."""
        measured: dict[str, Any] = {}
        if self._peak_counted:
            measured["peak_bytes"] = in_status("VmHWM")
        if bytes_per_call := growth(self._before):
            measured["growth_bytes_per_call"] = bytes_per_call
        return measured


def growth(resident: list[int]) -> float | None:
    """Returns the growth in bytes per call, given the `resident` memory before each call. None
    unless each quarter's median exceeds that of the quarter before it, so that a cache that fills
    up in the first calls does not count."""
    count = len(resident)
    if count < MIN_CALLS:
        return None
    ends = [quarter * count // 4 for quarter in range(5)]
    medians = [median_high(resident[a:b]) for a, b in pairwise(ends)]
    rises = all(a < b for a, b in pairwise(medians))
    if not rises or medians[-1] - medians[0] < MIN_GROWTH:
        return None
    return (medians[-1] - medians[0]) / (0.75 * count)
