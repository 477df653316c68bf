"""A second witness beside the wall's clock: what this process itself did meanwhile.

A call that waited for a core, because somebody else had it, takes longer by the wall's clock
and not by the process's (all of its threads together). `ru_nivcsw` of getrusage(2) counts how
often a core was taken away. Both are one system call each.
"""

from __future__ import annotations

import resource
import time
from typing import Any


class Witness:
    """Processor time and lost cores of samples, each begun and ended."""

    def __init__(self) -> None:
        self._cpu_ns: list[float] = []
        self._preempted: list[int] = []
        self._begun = (0, 0)

    def begin(self) -> None:
        """A sample begins."""
        lost = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        self._begun = (time.process_time_ns(), lost)

    def end(self) -> None:
        """It ended."""
        cpu_ns, lost = self._begun
        self._cpu_ns.append(float(time.process_time_ns() - cpu_ns))
        self._preempted.append(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - lost)

    def told(self) -> dict[str, Any]:
        """What `measured` tells of them; nothing where the clock did not move."""
        if not self._cpu_ns or min(self._cpu_ns) <= 0:
            return {}
        return {"cpu_ns": self._cpu_ns, "preempted": self._preempted}
