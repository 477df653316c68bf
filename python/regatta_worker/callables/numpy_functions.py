"""Functions of NumPy arrays, run on the host and timed by its clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from regatta_worker import device
from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded
from regatta_worker.case import Case, CaseType, CaseWorker, Request
from regatta_worker.census.arrays import count_arrays
from regatta_worker.census.counters import first_call
from regatta_worker.clock import timing
from regatta_worker.problem import Problem, inputs
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.input_sets import Inputs, InputSets, seed_of
from regatta_worker.problem.planes import DRAW
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Message, Unsupported

Results = tuple[np.ndarray, ...]


class OnNumpy(CaseWorker[CaseType]):
    """Shared by the workers on NumPy. Their cases have a function `bound` and its `arguments`."""

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


@dataclass(kw_only=True)
class NumpyCase(Case):
    """A prepared case. `tensors` are its inputs in logical shape, in the memory of `arguments`."""

    problem: Problem
    function: Function
    bound: Callable[..., Any]
    arguments: list[np.ndarray]
    tensors: dict[str, np.ndarray]

    def call(self) -> Results:
        return self.function.several(self.bound(*self.arguments), self.problem)


class NumpyFunctions(Guarded, OnNumpy[NumpyCase]):
    """Serves functions of NumPy arrays, which must compute gradients themselves."""

    DTYPES: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16}
    functions: dict[str, Function]

    def variants(self) -> dict[str, Variant]:
        return {name: function.variant(False) for name, function in self.functions.items()}

    def build(self, request: Request) -> tuple[NumpyCase, Results, Message]:
        problem, function = request.problem, self.functions[request.variant]
        if problem.dtype not in self.DTYPES:
            raise Unsupported(f"NumPy has no {problem.dtype}")
        if problem.has_backward and not function.makes_gradients:
            raise Unsupported(f"{function.where} names no `dout`, and NumPy finds no gradients")
        tensors = self.inputs(problem, request.seed)
        case = NumpyCase(
            problem=problem,
            function=function,
            bound=function.bound(problem, request.params),
            arguments=[problem.turned(tensor) for tensor in tensors.values()],
            tensors=tensors,
            **request.inputs,
        )
        results, first = first_call(case.call, lambda: None)
        return case, results, first

    def named(self, case: NumpyCase, results: Results) -> dict[str, np.ndarray]:
        case.function.check(results, case.problem, self.DTYPES[case.problem.dtype], np.ndarray)
        turned = map(case.problem.turned, results)
        return dict(zip(case.problem.results, turned, strict=True))

    def given(self, case: NumpyCase) -> dict[str, np.ndarray]:
        return case.tensors

    def input_sets(self, case: NumpyCase) -> InputSets:
        """Each sample has its own set, written into the memory of the previous one."""

        def put(number: int) -> None:
            for name, tensor in case.tensors.items():
                inputs.fill(self.arrays, tensor, name, seed_of(case.seed, number))

        return InputSets(case, put, self.no_memory)

    def turner(self, case: NumpyCase) -> Callable[[], None]:
        flat = [argument.reshape(-1) for argument in case.arguments]
        other = np.empty(max(map(len, flat)), flat[0].dtype)

        def turn() -> None:
            for tensor in flat:
                by, turned = DRAW.randrange(1, max(2, len(tensor))), other[: len(tensor)]
                turned[by:], turned[:by] = tensor[:-by], tensor[-by:]
                tensor[:] = turned

        return turn


WORKER = NumpyFunctions
