"""The life of a case of a declared operator: what frameworks share.

Results are written for the harness, which compares them with a reference in a process of its own or
with the other side's. So nothing here computes what is right.
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
"""By what part of its first axis a tensor's contents lie further on than a sample before: the
golden section comes back to no place it had."""

LOOKED_AT = 1 << 12
"""Elements of each result, about, that are looked at when a call has returned."""


@dataclass(kw_only=True)
class OperatorCase(Case):
    """A prepared case of a declared operator."""

    operands: Operands
    where: str
    given: dict[str, Any]
    """The tensors, by the names of the inputs."""
    bound: Callable[..., Any]
    """The call, of `arguments`."""
    arranged: Callable[[], list[Any]]
    """The arguments that follow from `given`: for backward, forward is run."""
    folder: str | None
    """The folder into which results are written."""
    arguments: list[Any] = field(default_factory=list)
    by_autograd: bool = False
    """As `on_torch.case.Call` has it."""
    earlier_stream: bool = False
    drawn: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By set, the inputs that were drawn while samples are taken."""
    changes: int = 0
    """The number of times that a set was put in place."""

    def call(self) -> Any:
        return self.bound(*self.arguments)


class RestoredInputs(Inputs):
    """The inputs of the first set, put in place again before each sample."""

    def __init__(self, sets: InputSets) -> None:
        super().__init__()
        self._sets = sets
        self.number = 0

    def change(self, last: bool) -> None:
        super().change(last)
        self._sets.put(0)


class OperatorWorker(CaseWorker[OperatorCase]):
    """Serves functions of declared operators. A framework says how arrays are made."""

    functions: Mapping[str, OperatorFunction]

    # The answers of a framework.

    def array(self, tensor: InputTensor, seed: int) -> Any:
        """An input in the set of a seed, as the function is given it. Raises Unsupported for a type
        that the framework does not have."""
        raise NotImplementedError

    def replaced(self, given: Any, source: Any, rows: int) -> Any:
        """The array with the contents of `source`, so many rows further on: where the framework can
        write into it, `given`."""
        raise NotImplementedError

    def host(self, value: Any) -> np.ndarray:
        """A result on the host: as int64 where its elements are whole, else as float32."""
        raise NotImplementedError

    def check_type(self, case: OperatorCase, name: str, value: Any, dtype: str) -> None:
        """Raises Failed for a result that is of another type, or no plain array where the framework
        has others."""
        if value.dtype != self.DTYPES[dtype]:
            raise Failed(
                f"{case.where} returned {name} as {value.dtype}; the operator's is {dtype}"
            )

    def same(self, given: Any, drawn: Any) -> bool:
        """True if an input still has the contents that were put there."""
        raise NotImplementedError

    def adapted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of this framework's arrays, as one of the arrays that are made here."""
        return function

    def differentiate(self, case: OperatorCase, gradients: Gradients) -> None:
        """Makes the call of a function one of its gradients, or of both."""
        raise Unsupported("NumPy and CuPy differentiate no function: let it take `dout`")

    def called_first(self, case: OperatorCase) -> tuple[Any, Message]:
        """The results of the first call, and the members of `prepared` about it."""
        return first_call(case.call, self.wait)

    # The requests.

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
        # Those that a framework finds.
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
        """The results by name. Raises Failed where one is not what the operator declares."""
        named = case.operands.results(case.where, results, case.given)
        for output in case.operands.outputs:
            self.check_type(case, output.name, named[output.name], output.dtype)
        return named

    def write(self, case: OperatorCase, results: Any) -> None:
        """Writes results for the harness."""
        named = self.named(case, results)
        for output in case.operands.outputs:
            if case.folder is not None:
                write(case.folder, output, self.host(named[output.name]))

    def input_sets(self, case: OperatorCase) -> InputSets:
        put = functools.partial(self.put_in_place, case)
        return InputSets(case, put, self.no_memory, in_turn(max(3, case.sets)))

    def put_in_place(self, case: OperatorCase, number: int) -> None:
        """Puts a set in place of the one before, the contents of a state too.

        Sets are drawn once and put in place in turn. In each sample but the last their rows lie
        further on, the end put before the beginning, so that no two samples have the same contents.
        """
        case.changes += 1
        if number not in case.drawn:
            seed, inputs = seed_of(case.seed, number), case.operands.inputs
            case.drawn[number] = {one.name: self.array(one, seed) for one in inputs}
        along = 0.0 if number in (0, LAST) else case.changes * STEP % 1.0
        # First what was made of the old contents, which would keep their memory.
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
        """Some elements of each result, copied."""
        flat = {name: self.flat(value) for name, value in self.named(case, results).items()}
        return {name: np.array(value) for name, value in flat.items()}

    def flat(self, value: Any) -> np.ndarray:
        """About `LOOKED_AT` elements of a result, on the host."""
        line = value.reshape(-1)
        return self.host(line[:: max(1, line.shape[0] // LOOKED_AT)])

    def check_given(self, case: OperatorCase, number: int) -> None:
        """Raises Failed where the last call wrote into an input that is no state."""
        for one in case.operands.inputs:
            if one.role == "state":
                continue
            if not self.same(case.given[one.name], case.drawn[number][one.name]):
                # Gradients by a state are refused.
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
