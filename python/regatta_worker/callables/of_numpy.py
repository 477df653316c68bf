"""Functions of NumPy arrays, on the host and by its clock."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from regatta_worker import device
from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Guarded, Target
from regatta_worker.census.first_call import made
from regatta_worker.clock import timing
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import CaseInputs, Inputs, InputSets, seed_of
from regatta_worker.problem.planes import Plane
from regatta_worker.problem.reference import (
    Arrays,
    ReferenceCache,
    checked,
    compared,
)
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Message, Unsupported, required

DTYPES = {"f32": np.float32, "f16": np.float16}

Results = tuple[np.ndarray, ...]


@dataclass
class _Case(CaseInputs):
    """A prepared case; `given` are its inputs in the layout's order, and lie where they lie."""

    problem: Problem
    function: Function
    call: Callable[[], Results]
    given: dict[str, np.ndarray]

    def put(self, number: int) -> None:
        """Another set's contents, where those of the one before lie."""
        seed = seed_of(self.seed, number)
        for name, array in self.given.items():
            np.copyto(array, _input(self.problem, name, seed))

    def named(self, results: Results) -> dict[str, np.ndarray]:
        """Results by name, in logical order, held to their shapes."""
        self.function.check(results, self.problem, DTYPES[self.problem.dtype])
        turned = (_turned(self.problem, result) for result in results)
        return dict(zip(self.problem.results, turned, strict=True))


class NumpyFunctions:
    """Holds at most one case. Gradients are those that a function makes itself."""

    def __init__(self, target: Target, functions: dict[str, Function]) -> None:
        self._target, self._functions = target, functions
        self._arrays = Arrays.of_numpy()
        self._references = ReferenceCache(self._arrays)
        self._case: _Case | None = None

    def _variants(self) -> dict[str, Variant]:
        return {name: function.variant(False) for name, function in self._functions.items()}

    def hello(self) -> Message:
        """Versions, device and variants."""
        return {
            "worker": self._target.name,
            "versions": {"numpy": np.__version__, "python": platform.python_version()},
            "device": device.cpu_device(),
            "variants": [variant.wire(name) for name, variant in self._variants().items()],
        }

    def prepare(self, request: Message) -> Message:
        """Inputs, first call, and the check against float64."""
        self.release()
        problem = Problem.from_wire(required(request, "problem"))
        name, seed = required(request, "variant"), required(request, "seed")
        if name not in self._functions:
            raise Failed(f"{self._target.code} has no variant `{name}`")
        function = self._functions[name]
        params = self._variants()[name].taken(name, request.get("params", {}))
        if problem.dtype not in DTYPES:
            raise Unsupported(f"NumPy has no {problem.dtype}")
        if problem.has_backward and not function.makes_gradients:
            raise Unsupported(f"{function.where} names no `dout`, and NumPy finds no gradients")
        names = inputs.TENSORS if problem.has_backward else ("q", "k", "v")
        given = {name: np.ascontiguousarray(_input(problem, name, seed)) for name in names}
        bound = function.bound(problem, params)

        def call() -> Results:
            return function.several(bound(*given.values()), problem)

        sets = int(request.get("input_sets", 1))
        case = _Case(problem, function, call, given, seed=seed, sets=sets)
        results, first = made(call, lambda: None)
        named = case.named(results)
        # What the call was given it may have written into.
        dtype = DTYPES[problem.dtype]
        logical = {name: inputs.numpy_input(problem, name, seed, dtype) for name in names}
        exact = self._references.of(problem, seed, logical)
        self._case = case
        return {"effective": {}} | compared(self._arrays, named, exact) | first

    def measure(self, request: Message) -> Message:
        """Samples by the host's clock: `timing.measure_wall`."""
        case, plan = self._prepared(), timing.Plan.from_wire(request)
        sets: Inputs = Inputs()
        if case.sets > 1:
            sets = InputSets(case.sets, case.numbers, case.put, _no_memory, case.place)
        size = device.cpu_flush_bytes() if plan.cold else 0
        flush = np.ones(size, dtype=np.uint8)
        measured = timing.measure_wall(
            case.call, lambda results: None, plan, lambda: np.invert(flush, out=flush), inputs=sets
        )
        if not isinstance(sets, InputSets):
            return measured
        case.place = sets.number
        return measured | sets.told() | {"checked": self._checked(case, sets)}

    def _checked(self, case: _Case, sets: InputSets) -> Message:
        """What the last timed call computed: some planes held to float64, of inputs made anew,
        and no element that is not finite."""
        problem, seed = case.problem, seed_of(case.seed, sets.number)

        def make(name: str, plane: Plane) -> np.ndarray:
            return inputs.numpy_part(problem, name, seed, plane, DTYPES[problem.dtype])

        results = case.named(sets.kept.pop())
        return checked(self._arrays, self._references, problem, seed, results, make)

    def call(self) -> Any:
        """One call of the prepared case."""
        return self._prepared().call()

    def census(self) -> Message:
        """Nothing is launched on a processor."""
        self._prepared()
        return {"launches": [], "counts": {}}

    def release(self) -> None:
        """Drops the case."""
        self._case = None
        gc.collect()

    def _prepared(self) -> _Case:
        if self._case is None:
            raise Failed("no case is prepared")
        return self._case


class GuardedNumpyFunctions(Guarded, NumpyFunctions):
    """The same, with a function's exceptions in words that say where."""


def _input(problem: Problem, name: str, seed: int) -> np.ndarray:
    """An input in the layout's order: of `bhsd`, as a strided view."""
    return _turned(problem, inputs.numpy_input(problem, name, seed, DTYPES[problem.dtype]))


def _turned(problem: Problem, array: np.ndarray) -> np.ndarray:
    """From logical order to the layout's, and back."""
    return array.swapaxes(1, 2) if problem.layout == "bhsd" else array


def _no_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError)


WORKER = GuardedNumpyFunctions
