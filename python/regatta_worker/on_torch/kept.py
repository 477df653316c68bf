"""What a worker keeps on its device between cases: inputs of problems, and references.

docs/PROTOCOL.md, "What a worker may keep", is the contract: each value is known by all that
determines it, and nothing that a call was given is kept.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import os

import torch

from regatta_worker.on_torch.case import DTYPES, Tensors
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.shelf import SHARE_OF_HOST, Shelf

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

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gpu = device.type == "cuda"
        memory, share = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), SHARE_OF_HOST
        if self._gpu:
            memory = torch.cuda.get_device_properties(device).total_memory
            share = SHARE_OF_DEVICE
            # cuBLAS's workspace is a part of every `peak_bytes`, whether or not a reference
            # had to be computed in this process.
            square = torch.zeros((2, 2), dtype=torch.float64, device=device)
            torch.mm(square, square)
        self.shelf = Shelf(memory // share)

    @property
    def held_bytes(self) -> int:
        """Device memory that is taken beside the case's own."""
        return self.shelf.held_bytes if self._gpu else 0

    def keeps(self, problem: Problem, sets: int = 1) -> bool:
        """Whether so many sets of inputs of a problem are kept."""
        return self.shelf.fits(max(3, sets) * _bytes(problem, _names(problem)))

    def inputs(self, problem: Problem, seed: int) -> Tensors:
        """The inputs of a set as they are kept: only to be read."""
        dtype = DTYPES[problem.dtype]

        def taken(name: str) -> torch.Tensor:
            key = ("input", name, problem.shape(name), dtype, problem.layout, seed)
            size = _bytes(problem, (name,))
            made = (problem, name, seed, dtype, self._device)
            return self.shelf.take(key, size, lambda: inputs.torch_input(*made))

        return {name: taken(name) for name in _names(problem)}

    def working(self, problem: Problem, seed: int) -> Tensors:
        """The inputs of a set for a call, which may do with them what it likes."""
        if self.keeps(problem):
            return {name: x.clone() for name, x in self.inputs(problem, seed).items()}
        dtype = DTYPES[problem.dtype]
        return {
            name: inputs.torch_input(problem, name, seed, dtype, self._device)
            for name in _names(problem)
        }

    def make_room(self, problem: Problem, stores_scores: bool) -> None:
        """Lets go of everything where memory is short for a case: also of what torch's
        allocator holds, and of what is left in circles."""
        if not self._gpu:
            return
        needed = CASE * _bytes(problem, (*inputs.TENSORS, *problem.results))
        if stores_scores:
            needed += 8 * problem.batch * problem.heads * problem.seq_q * problem.seq_k
        free, _ = torch.cuda.mem_get_info(self._device)
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        if free < needed <= free + held:
            torch.cuda.empty_cache()
        elif free + held < needed:
            self.clear()

    def clear(self) -> bool:
        """Frees cached inputs and references; returns False if there were none."""
        held = self.shelf.clear()
        gc.collect()
        if self._gpu:
            torch.cuda.empty_cache()
        return held


def _names(problem: Problem) -> tuple[str, ...]:
    return tuple(inputs.TENSORS) if problem.has_backward else ("q", "k", "v")


def _bytes(problem: Problem, names: tuple[str, ...]) -> int:
    """What tensors of a problem take."""
    elements = sum(math.prod(problem.shape(name)) for name in names)
    return elements * int(DTYPES[problem.dtype].itemsize)
