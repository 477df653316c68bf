"""Work on the host that stays the same, timed right after each sample.

The same call may take one process twice as much of the host's time as another, because the core
itself is slower or faster. The ratio to work of the same kind, the framework's dispatcher,
varies less (docs/EVIDENCE.md).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

OPERATIONS = 15
"""Of one reference: with torch together about as long as the issue of a call."""


class HostReference:
    """How long the reference operations took, one entry a sample.

    They are timed once the device is done, outside of every timed span. They must not touch the
    GPU, and leave nothing behind: each result is dropped before the next, so that they bring no
    collection of garbage nearer, and one that is due waits until their time has been read.
    """

    def __init__(self, operations: Callable[[], Any]) -> None:
        self._operations = operations
        self.ns: list[float] = []
        operations()

    def take(self) -> None:
        """Times the operations, for the sample that has just ended."""
        collects = gc.isenabled()
        gc.disable()
        try:
            begin = time.perf_counter_ns()
            self._operations()
            self.ns.append(float(time.perf_counter_ns() - begin))
        finally:
            if collects:
                gc.enable()


def torch_reference() -> HostReference:
    """Additions of four elements on the CPU, through torch's dispatcher, each with a new result."""
    import torch

    four, add = torch.ones(4, dtype=torch.float32, device="cpu"), torch.add

    def operations() -> None:
        for _ in range(OPERATIONS):
            add(four, four)

    return HostReference(operations)
