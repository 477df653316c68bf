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

    They are timed once the device is done, outside of every timed span, and `wait` has the device
    done again. They leave nothing behind: each result is dropped before the next, so that they
    bring no collection of garbage nearer, and one that is due waits until their time has been read.
    """

    def __init__(
        self, operations: Callable[[], Any], wait: Callable[[], Any] = lambda: None
    ) -> None:
        self._operations, self._wait = operations, wait
        self.ns: list[float] = []
        self._operations()
        self._wait()

    def take(self) -> None:
        """Times the operations, for the sample that has just ended."""
        collects = gc.isenabled()
        gc.disable()
        try:
            begin = time.perf_counter_ns()
            self._operations()
            self.ns.append(float(time.perf_counter_ns() - begin))
            self._wait()
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


def autograd_reference() -> HostReference:
    """A gradient of four elements on the GPU, through torch's autograd.

    Autograd runs on a thread of its own for each GPU, which wakes up for each call. How long that
    takes differs between processes, and not in proportion to work on the calling thread.
    """
    import torch

    x, dy = torch.ones(4, device="cuda", requires_grad=True), torch.ones(4, device="cuda")
    y = (x * 2 + 1).sin()
    return HostReference(
        lambda: torch.autograd.grad(y, x, dy, retain_graph=True), torch.cuda.synchronize
    )
