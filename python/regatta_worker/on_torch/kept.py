"""What a worker keeps on its device between cases, the references; and room for a case.

docs/PROTOCOL.md, "What a worker may keep", is the contract.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
from collections.abc import Sequence

import torch

from regatta_worker.on_torch.case import DTYPES
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.reference import Cache

SHARE_OF_DEVICE = 8
"""What is kept may take one part in so many of a device's memory."""

CASE = 10
"""A case is taken to need so many times its inputs and results: three sets of them, what
forward saves, what a comparison takes, and as much again for its workspace."""


def import_autograd() -> None:
    """What torch imports when it is first asked for a gradient: hundreds of modules, sympy's
    among them, which are no part of the first call of whichever case comes first."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.fx.experimental.symbolic_shapes")


class Kept:
    """References as they were computed on the device, up to a part of its memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gpu = device.type == "cuda"
        self.cache = Cache()
        if self._gpu:
            memory = torch.cuda.get_device_properties(device).total_memory
            self.cache = Cache(memory // SHARE_OF_DEVICE)
            # cuBLAS's workspace is a part of every `peak_bytes`, whether or not a reference
            # had to be computed in this process.
            square = torch.zeros((2, 2), dtype=torch.float64, device=device)
            torch.mm(square, square)

    @property
    def total_bytes(self) -> int:
        """Device memory that is taken beside the case's own."""
        return self.cache.total_bytes if self._gpu else 0

    def make_room(self, problem: Problem, stores_scores: bool) -> None:
        """Lets go of everything where memory is short for a case: also of what torch's
        allocator holds, and of what is left in circles."""
        if not self._gpu:
            return
        needed = CASE * _bytes(problem, (*inputs.TENSORS, *problem.results))
        if stores_scores:
            needed += 8 * problem.batch * problem.heads * problem.seq_q * problem.seq_k
        free, _ = torch.cuda.mem_get_info(self._device)
        idle = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        if free < needed <= free + idle:
            torch.cuda.empty_cache()
        elif free + idle < needed:
            self.clear()

    def clear(self) -> bool:
        """Frees the references; returns False if there were none."""
        there = bool(self.cache.values)
        self.cache.values.clear()
        gc.collect()
        if self._gpu:
            torch.cuda.empty_cache()
        return there


def _bytes(problem: Problem, names: Sequence[str]) -> int:
    """What tensors of a problem take."""
    elements = sum(math.prod(problem.shape(name)) for name in names)
    return elements * int(DTYPES[problem.dtype].itemsize)
