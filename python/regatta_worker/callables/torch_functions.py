"""Functions of torch tensors, served by the code that libraries on torch share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded, Target
from regatta_worker.on_torch.case import DTYPES, Call, Results, Tensors, TorchCase, by_autograd
from regatta_worker.on_torch.library import Library, TorchWorker, import_autograd
from regatta_worker.problem.input_sets import InputSets
from regatta_worker.problem.planes import DRAW
from regatta_worker.protocol.channel import Failed

preload = import_autograd

HELD = 1 << 41
"""Number from which on sets of inputs are never used by samples."""

LOOKED_AT = 1 << 16
"""Approximate number of elements that are read from each result while a stream is held."""

HELD_CYCLES = (6_000_000, 60_000_000)
"""GPU cycles for which a stream is held: about 3 ms, or 30 ms if issuing the call takes longer."""


class TorchFunctions(Guarded, TorchWorker):
    """Serves functions of tensors. Autograd differentiates those that do not take `dout`."""

    DIFFERENTIATED = True

    def __init__(self, target: Target, functions: dict[str, Function]) -> None:
        # Any other exception is an error of the function, which a suite cannot permit.
        library = Library(target.name, refusals=(NotImplementedError,))
        for name, function in functions.items():
            build = functools.partial(self.call_of, function)
            variant = vars(function.variant(self.DIFFERENTIATED))
            library.variant(name, on_gpu=False, **variant)(build)
        super().__init__(target, functions, library)

    def bound(self, function: Function, case: TorchCase) -> Callable[..., Any]:
        return function.bound(case.problem, case.params)

    def call_of(self, function: Function, case: TorchCase) -> Call:
        problem, turned = case.problem, case.problem.turned
        given = {name: turned(tensor) for name, tensor in case.tensors.items()}
        bound = self.bound(function, case)
        if problem.direction == "forward" or function.makes_gradients:
            tensors = tuple(given.values())
            return Call(lambda: function.several(bound(*tensors), problem))
        inputs = tuple(given[name].requires_grad_() for name in ("q", "k", "v"))
        unchecked = [DTYPES[problem.dtype]]

        def forward() -> torch.Tensor:
            (out,) = results = function.several(bound(*inputs), problem)
            if unchecked:
                function.check(results, problem, unchecked.pop(), torch.Tensor)
            return cast("torch.Tensor", out)

        return by_autograd(problem, forward, inputs, given["dout"])

    def named(self, case: TorchCase, results: Results) -> Tensors:
        problem, function = case.problem, self.functions[case.variant]
        function.check(results, problem, DTYPES[problem.dtype], torch.Tensor)
        return super().named(case, tuple(map(problem.turned, results)))

    def check_order(self, case: TorchCase, sets: InputSets) -> None:
        """Raises Failed if a result already exists while the call's own stream is held."""
        if self.gpu is None:
            return
        problem, other = case.problem, torch.cuda.Stream()

        def some(result: torch.Tensor) -> torch.Tensor:
            flat = result.detach().reshape(-1)
            return flat[:: max(1, len(flat) // LOOKED_AT)].cpu()

        for cycles in HELD_CYCLES:
            sets.put(HELD + DRAW.randrange(HELD))
            case.place = sets.number
            self.poison(map(problem.laid_out, problem.results), DTYPES[problem.dtype])
            self.wait()
            torch.cuda._sleep(cycles)
            held = torch.cuda.Event()
            held.record()
            results = case.call()
            with torch.cuda.stream(other):
                early = list(map(some, results))
            if not held.query():
                break
        else:
            # The call waited for the device, so its time includes its host time.
            return
        self.wait()
        for result, then in zip(results, early, strict=True):
            now = some(result)
            if float(((now == then) & (now != 0)).float().mean()) > 0.01:
                raise Failed(
                    f"{self._target.where(case.variant)} had its result before the current stream "
                    f"could compute it: it is one of an earlier call, or another stream's, outside "
                    f"of the time. Compute in each call; have another stream wait for the current "
                    f"one first, and the current one for it last (torch.cuda.Stream.wait_stream)"
                )


WORKER = TorchFunctions
