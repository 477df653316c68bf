"""Resident memory of this process while samples are taken.

As crates/worker/src/on_processor/memory.rs reads it.
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
"""Least growth that is one: counters of a process lag by 32 pages a core, and an allocator takes
memory from the system in steps of 132 KiB."""

MIN_CALLS = 10


def held_bytes() -> int:
    """Memory of this process that holds no file's contents: arrays, objects, heaps. What is free is
    given back to the system first."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return in_status("RssAnon")


def in_status(field: str) -> int:
    """A size in bytes of proc_pid_status(5); 0 where the kernel does not count it."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        sizes = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
        return int(next(sizes, "0")) << 10
    return 0


class ResidentMemory:
    """The resident memory of this process; its peak counts from when this was made."""

    def __init__(self) -> None:
        self._before: list[int] = []
        self._peak_counted = False
        with contextlib.suppress(OSError):
            # proc_pid_clear_refs(5): 5 resets `VmHWM`.
            Path("/proc/self/clear_refs").write_text("5")
            self._peak_counted = True

    def read(self) -> None:
        """Reads it, before a call."""
        with contextlib.suppress(OSError):
            self._before.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)

    def as_reply(self) -> dict[str, Any]:
        """Members of `measured`: the peak, where the kernel counts it, and growth a call, where it
        is steady."""
        measured: dict[str, Any] = {}
        if self._peak_counted:
            measured["peak_bytes"] = in_status("VmHWM")
        if bytes_per_call := growth(self._before):
            measured["growth_bytes_per_call"] = bytes_per_call
        return measured


def growth(resident: list[int]) -> float | None:
    """Growth in bytes a call of these readings, one before each; None unless the median of each
    quarter lies above that of the one before. A cache that fills up in the first calls does
    not count."""
    count = len(resident)
    if count < MIN_CALLS:
        return None
    ends = [quarter * count // 4 for quarter in range(5)]
    medians = [median_high(resident[a:b]) for a, b in pairwise(ends)]
    rises = all(a < b for a, b in pairwise(medians))
    if not rises or medians[-1] - medians[0] < MIN_GROWTH:
        return None
    return (medians[-1] - medians[0]) / (0.75 * count)
