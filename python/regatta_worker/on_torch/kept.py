"""What a worker keeps on its device between cases: inputs of problems, and references.

docs/PROTOCOL.md, "What a worker may keep", is the contract: each value is known by all that
determines it, and nothing that a call was given is kept.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
from collections.abc import Sequence

import torch

from regatta_worker.on_torch.case import DTYPES, Tensors
from regatta_worker.problem import inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.cache import Cache

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
    """Inputs that were made, by tensor, shape, type, layout and seed; and room for a case."""

    def __init__(self, device: torch.device, arrays: Arrays) -> None:
        self._device, self._arrays = device, arrays
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

    def keeps(self, problem: Problem, sets: int = 1) -> bool:
        """Whether so many sets of inputs of a problem are kept."""
        return self.cache.fits(max(3, sets) * _bytes(problem, inputs.names(problem)))

    def inputs(self, problem: Problem, seed: int) -> Tensors:
        """The inputs of a set as they are kept: only to be read."""
        dtype = DTYPES[problem.dtype]

        def taken(name: str) -> torch.Tensor:
            key = ("input", name, problem.shape(name), dtype, problem.layout, seed)
            size = _bytes(problem, (name,))
            return self.cache.take(key, size, lambda: self.made(problem, name, seed))

        return {name: taken(name) for name in inputs.names(problem)}

    def made(self, problem: Problem, name: str, seed: int) -> torch.Tensor:
        """An input of a set, made anew."""
        made: torch.Tensor = inputs.whole(self._arrays, problem, name, seed, DTYPES[problem.dtype])
        return made

    def working(self, problem: Problem, seed: int) -> Tensors:
        """The inputs of a set for a call, which may do with them what it likes."""
        if self.keeps(problem):
            return {name: x.clone() for name, x in self.inputs(problem, seed).items()}
        return {name: self.made(problem, name, seed) for name in inputs.names(problem)}

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
        """Frees cached inputs and references; returns False if there were none."""
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
