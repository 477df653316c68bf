"""Serves cases of declared operators; the part that all frameworks share.

Results are written for the harness, which compares them with those of a reference in a separate
process, or of the other side. So nothing here computes correct results.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regatta_worker.callables.operators.function import OperatorFunction
from regatta_worker.callables.operators.operands import Gradients, InputTensor, Operands, write
from regatta_worker.case import Case, CaseWorker, check_unchanged
from regatta_worker.census.counters import first_call
from regatta_worker.clock import timing
from regatta_worker.problem.input_sets import LAST, Inputs, InputSets, in_turn, seed_of
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Message, Unsupported, required

STEP = 0.6180339887498949
"""Part of its first axis by which a tensor is rotated more in each sample than in the one before.
Multiples of the golden section never repeat a position."""

LOOKED_AT = 1 << 12
"""Approximate number of elements that are copied from each result after a call returns."""


@dataclass(kw_only=True)
class OperatorCase(Case):
    """A prepared case of a declared operator."""

    operands: Operands
    where: str
    given: dict[str, Any]
    """The inputs' tensors by name."""
    bound: Callable[..., Any]
    """The function that is timed, called with `arguments`."""
    arranged: Callable[[], list[Any]]
    """Makes the arguments from `given`. For backward, this runs forward."""
    folder: str | None
    """The folder for results; None: they are not written."""
    arguments: list[Any] = field(default_factory=list)
    by_autograd: bool = False
    """The same as in `on_torch.case.Call`."""
    earlier_stream: bool = False
    drawn: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Inputs that were drawn while samples are taken, by number of the set."""
    changes: int = 0
    """Number of times that a set was put in place during the samples."""

    def call(self) -> Any:
        return self.bound(*self.arguments)


class RestoredInputs(Inputs):
    """Restores the inputs of the first set before each sample."""

    def __init__(self, sets: InputSets) -> None:
        super().__init__()
        self._sets = sets
        self.number = 0

    def change(self, last: bool) -> None:
        super().change(last)
        self._sets.put(0)


class OperatorWorker(CaseWorker[OperatorCase]):
    """Serves functions of declared operators. A subclass handles the arrays of a framework."""

    functions: Mapping[str, OperatorFunction]

    # To be implemented by a framework.

    def array(self, tensor: InputTensor, seed: int) -> Any:
        """Makes an input in the set of a seed, as it is passed to the function. Raises Unsupported
        for a type that the framework lacks."""
        raise NotImplementedError

    def replaced(self, given: Any, source: Any, rows: int) -> Any:
        """Returns an array with the contents of `source`, rotated by `rows` rows. It is `given`,
        overwritten, if the framework can write into arrays."""
        raise NotImplementedError

    def host(self, value: Any) -> np.ndarray:
        """Copies a result to the host: integers and bool as int64, floats as float32."""
        raise NotImplementedError

    def check_type(self, case: OperatorCase, name: str, value: Any, dtype: str) -> None:
        """Raises Failed for a result with another type of elements, or, in frameworks that have
        subclasses of arrays, of such a class."""
        if value.dtype != self.DTYPES[dtype]:
            raise Failed(
                f"{case.where} returned {name} as {value.dtype}; the operator's is {dtype}"
            )

    def same(self, given: Any, drawn: Any) -> bool:
        """True if the input `given` still has the contents `drawn`."""
        raise NotImplementedError

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Adapts a function to the arrays of `array`, if it takes arrays of another framework."""
        return function

    def differentiate(self, case: OperatorCase, gradients: Gradients) -> None:
        """Replaces the case's call by one that computes gradients, or outputs and gradients."""
        raise Unsupported("NumPy and CuPy differentiate no function: let it take `dout`")

    def called_first(self, case: OperatorCase) -> tuple[Any, Message]:
        """Makes the first call. Returns its results, and the members of `prepared` about it."""
        return first_call(case.call, self.wait)

    # Requests.

    def variants(self) -> dict[str, Variant]:
        return {name: function.variant() for name, function in self.functions.items()}

    def _prepare(self, wire: Message) -> Message:
        operands = Operands.from_wire(required(wire, "operands"))
        name = required(wire, "variant")
        function = self.functions.get(name)
        if function is None:
            raise Failed(f"{self.TESTED} has no function `{name}`")
        params = function.variant().taken(name, wire.get("params", {}))
        scalars = function.accepted(operands)
        given = {one.name: self.array(one, required(wire, "seed")) for one in operands.inputs}
        called = self.adapted(function.function)
        # None if the function computes the gradients itself.
        gradients = None if function.computes(operands.gradients) else operands.gradients
        names = tuple(name for name in given if not (gradients and name in gradients.given))

        def bound(*arrays: Any) -> Any:
            try:
                return called(**dict(zip(names, arrays, strict=True)), **scalars, **params)
            except TypeError as error:
                error.args = (f"{error}{function.advice(error, operands.scalars)}",)
                raise

        case = OperatorCase(
            problem=wire.get("problem"),
            operands=operands,
            where=function.where,
            given=given,
            bound=bound,
            folder=wire.get("results"),
            arranged=lambda: [given[name] for name in names],
            seed=required(wire, "seed"),
            sets=int(wire.get("input_sets", 1)),
            draw=wire.get("draw"),
        )
        if gradients:
            self.differentiate(case, gradients)
        case.arguments = case.arranged()
        results, first = self.called_first(case)
        self.write(case, results)
        self.case = case
        return {"effective": dict(params), "errors": {}, "probes": {}} | first

    def named(self, case: OperatorCase, results: Any) -> dict[str, Any]:
        """Returns the results by name. Raises Failed if one differs from its declaration."""
        named = case.operands.results(case.where, results, case.given)
        for output in case.operands.outputs:
            self.check_type(case, output.name, named[output.name], output.dtype)
        return named

    def write(self, case: OperatorCase, results: Any) -> None:
        """Writes results to the case's folder for the harness."""
        named = self.named(case, results)
        for output in case.operands.outputs:
            if case.folder is not None:
                write(case.folder, output, self.host(named[output.name]))

    def input_sets(self, case: OperatorCase) -> InputSets:
        put = functools.partial(self.put_in_place, case)
        return InputSets(case, put, self.no_memory, in_turn(max(3, case.sets)))

    def put_in_place(self, case: OperatorCase, number: int) -> None:
        """Replaces the inputs, including states, by set `number`.

        Sets are drawn once and used in turn. Except in set 0 and `LAST`, each tensor's rows are
        rotated by a different distance each time, so that samples on a set differ in contents.
        """
        case.changes += 1
        if number not in case.drawn:
            seed, inputs = seed_of(case.seed, number), case.operands.inputs
            case.drawn[number] = {one.name: self.array(one, seed) for one in inputs}
        along = 0.0 if number in (0, LAST) else case.changes * STEP % 1.0
        # First frees arguments that were made from the old contents.
        case.arguments = []
        for name, source in case.drawn[number].items():
            rows = int(source.shape[0] * along) if source.shape else 0
            case.given[name] = self.replaced(case.given[name], source, rows)
        case.arguments = case.arranged()
        self.wait(case.arguments)

    def _measured(self, case: OperatorCase, plan: timing.Plan) -> Message:
        try:
            return self._measured_on_sets(case, plan)
        finally:
            case.drawn, case.changes = {}, 0

    def _measured_on_sets(self, case: OperatorCase, plan: timing.Plan) -> Message:
        sets = self.input_sets(case)
        one = case.sets == 1
        inputs: Any = RestoredInputs(sets) if one else sets
        inputs.cut = lambda results: self.some(case, results)
        measured = self.timed(case, plan, inputs)
        number = 0 if one else sets.number
        case.place = number
        results = inputs.kept.pop()
        if not one and sets.last is not None:
            for name, now in self.some(case, results).items():
                check_unchanged(name, sets.last[name], now)
        self.check_given(case, number)
        case.drawn = {}
        self.write(case, results)
        reply = {} if one else sets.as_reply()
        seed = seed_of(case.seed, number)
        return measured | reply | {"checked": {"seed": seed, "errors": {}, "probes": {}}}

    def some(self, case: OperatorCase, results: Any) -> dict[str, np.ndarray]:
        """Returns copies of some elements of each result."""
        flat = {name: self.flat(value) for name, value in self.named(case, results).items()}
        return {name: np.array(value) for name, value in flat.items()}

    def flat(self, value: Any) -> np.ndarray:
        """Returns about `LOOKED_AT` elements of a result, on the host."""
        line = value.reshape(-1)
        return self.host(line[:: max(1, line.shape[0] // LOOKED_AT)])

    def check_given(self, case: OperatorCase, number: int) -> None:
        """Raises Failed if the last call wrote into an input that is not a state."""
        for one in case.operands.inputs:
            if one.role == "state":
                continue
            if not self.same(case.given[one.name], case.drawn[number][one.name]):
                # With gradients, an input cannot be declared a state.
                state = "" if case.operands.gradients else ', or declare it with role = "state"'
                raise Failed(
                    f"the call wrote into its input {one.name}, which is its caller's: write into "
                    f"a copy{state}"
                )

    def repeat(self, calls: int, core: int | None, graph: bool, step: str = "call") -> Message:
        if self.prepared().operands.states:
            raise Unsupported("each call changes a state, and calls in a row would not restore it")
        return super().repeat(calls, core, graph, step)

    def release(self) -> None:
        with contextlib.suppress(AttributeError):
            self.case.replay = None  # type: ignore[union-attr]
        super().release()
