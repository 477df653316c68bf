"""Calls on NumPy arrays: their time by the host's clock, and what they do with arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from regatta_worker import device
from regatta_worker.case import CaseType, CaseWorker
from regatta_worker.census.arrays import count_arrays
from regatta_worker.clock import timing
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.input_sets import Inputs
from regatta_worker.protocol.channel import Message


class OnNumpy(CaseWorker[CaseType]):
    """Common to the workers on NumPy. Their cases have a function, `bound`, and its `arguments`."""

    packages = ("numpy",)

    def __init__(self) -> None:
        super().__init__(Arrays.for_numpy())

    def timed(self, case: CaseType, plan: timing.Plan, sets: Inputs) -> Message:
        flush = np.ones(device.cpu_flush_bytes() if plan.cold else 0, dtype=np.uint8)
        return timing.measure_wall(
            case.call, self.wait, plan, lambda: np.invert(flush, out=flush), inputs=sets
        )

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        case: Any = self.prepared()
        counts, uncounted = count_arrays(case.bound, case.arguments)
        return profiled | {"counts": profiled["counts"] | counts, "uncounted": uncounted}
