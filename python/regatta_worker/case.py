"""The life of a case in every framework: prepared and checked, timed, profiled, dropped."""

from __future__ import annotations

import contextlib
import gc
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from regatta_worker import device
from regatta_worker.census import instructions, launches
from regatta_worker.clock import timing
from regatta_worker.problem import inputs, planes
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import CaseInputs, Inputs, InputSets, seed_of
from regatta_worker.problem.reference import (
    ReferenceCache,
    difference,
    difference_of_planes,
    spot_checks,
)
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Lost, Message, Unsupported, required
from regatta_worker.protocol.refusals import broke

Done = TypeVar("Done")


@dataclass(frozen=True)
class Request:
    """A `prepare` request: what case is to be made ready."""

    problem: Problem
    variant: str
    params: Mapping[str, Any]
    """Those that are not `auto`, checked against the variant's declaration."""
    seed: int
    sets: int = 1
    """Of inputs, that samples are to be taken on."""
    wire: Message = field(default_factory=dict)
    """As it was sent."""

    def case_inputs(self) -> dict[str, Any]:
        """Members of a case's `CaseInputs`."""
        return {"seed": self.seed, "sets": self.sets}


@dataclass(kw_only=True)
class Case(CaseInputs):
    """A prepared case."""

    problem: Any

    def call(self) -> Any:
        """One call, whose results have the problem's order."""
        raise NotImplementedError


CaseType = TypeVar("CaseType", bound=Case)


class CaseWorker(Generic[CaseType]):
    """Serves the variants of one library, and holds at most one case. A framework says how."""

    NAME = ""
    """As `--library` has it."""
    DTYPES: Mapping[str, Any]
    """Types of its arrays."""
    TESTED = ""
    """How `prepare` names what has the variants, in messages."""

    def __init__(self, arrays: Arrays, gpu: device.NvidiaDevice | None = None) -> None:
        self.arrays, self.gpu = arrays, gpu
        self.references = ReferenceCache(arrays)
        self.case: CaseType | None = None

    # What a framework or a library says.

    def variants(self) -> dict[str, Variant]:
        """What there is, whether or not it can run here."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Versions of all that a reading depends on."""
        raise NotImplementedError

    def gpu_device(self) -> Message:
        """`name` and `memory_bytes` of the GPU."""
        raise NotImplementedError

    def build(self, request: Request) -> tuple[CaseType, Any, Message]:
        """The case, the results of its first call, and the members of `prepared` about it."""
        raise NotImplementedError

    def checked_inputs(self, case: CaseType) -> dict[str, Any]:
        """The inputs that the first call was given, as they were before it."""
        make, problem = inputs.whole, case.problem
        dtype, names = self.DTYPES[problem.dtype], inputs.names(problem)
        return {name: make(self.arrays, problem, name, case.seed, dtype) for name in names}

    def named(self, case: CaseType, results: Any) -> dict[str, Any]:
        """The results of the problem itself by name, in logical order.

        Raises Failed where one has another shape.
        """
        raise NotImplementedError

    def input_sets(self, case: CaseType) -> InputSets:
        """The sets of inputs that samples are taken on."""
        raise NotImplementedError

    def timed(self, case: CaseType, plan: timing.Plan, sets: Inputs) -> Message:
        """Samples of the case's call."""
        raise NotImplementedError

    def wait(self, results: Any = None) -> None:
        """Returns when the device is done with these results of a call, or with everything."""

    def no_memory(self, error: Exception) -> bool:
        """Whether an exception says that memory was short."""
        return isinstance(error, MemoryError)

    def free_memory(self) -> bool:
        """Frees what is kept between cases; returns False if there was nothing."""
        return False

    def operator_ranges(self) -> launches.Ranges | None:
        """Within which the framework marks its operators for CUPTI."""
        return None

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        """What the framework adds to the profile of a call of the case."""
        return profiled

    def recordings(self, case: CaseType) -> list[Message]:
        """Calls recorded on a GPU as the last samples were taken."""
        raise NotImplementedError

    # The requests.

    def hello(self) -> Message:
        """Versions, device and variants."""
        return {
            "worker": self.NAME,
            "versions": self.versions(),
            "device": self._device(),
            "variants": [variant.wire(name) for name, variant in self.variants().items()],
        }

    def _device(self) -> Message:
        if self.gpu is None:
            return device.cpu_device()
        return {"kind": "cuda", **self.gpu_device(), "facts": self.gpu.facts()}

    def prepare(self, request: Message) -> Message:
        """Inputs, first call, and the check against float64."""
        self.release()
        return self.guarded(lambda: self._prepare(request))

    def _prepare(self, wire: Message) -> Message:
        problem, name = self.problem(required(wire, "problem")), required(wire, "variant")
        variant = self.variants().get(name)
        if variant is None:
            raise Failed(f"{self.TESTED or f'library {self.NAME}'} has no variant `{name}`")
        params = variant.taken(name, wire.get("params", {}))
        seed, sets = required(wire, "seed"), int(wire.get("input_sets", 1))
        request = Request(problem, name, params, seed, sets, wire)
        self.case, results, about = self.build(request)
        return {"effective": {}} | self.check(self.case, results) | about

    def problem(self, wire: Mapping[str, Any]) -> Any:
        """The problem of a request."""
        return Problem.from_wire(wire)

    def check(self, case: CaseType, results: Any) -> Message:
        """`errors` of the first call's results against float64, and `probes` of them."""
        named = self.named(case, results)
        exact = self.references.whole(case.problem, case.seed, self.checked_inputs(case))
        return {
            "errors": {
                name: difference(self.arrays, (value, exact[name])) for name, value in named.items()
            },
            "probes": {name: spot_checks(value) for name, value in named.items()},
        }

    def measure(self, request: Message) -> Message:
        """Samples of the case, and what the last of them computed."""
        case, plan = self.prepared(), self.plan(request)
        return self.guarded(lambda: self._measured(case, plan))

    def plan(self, request: Message) -> timing.Plan:
        """How samples are to be taken. Raises Unsupported for what the case does not do."""
        return timing.Plan.from_wire(request)

    def _measured(self, case: CaseType, plan: timing.Plan) -> Message:
        if case.sets == 1:
            return self.timed(case, plan, Inputs())
        sets = self.input_sets(case)
        try:
            measured = self.timed(case, plan, sets)
        finally:
            case.place = sets.number
            sets.forget()
        seed = seed_of(case.seed, sets.number)
        checked = {"seed": seed, **self.check_last(case, seed, sets.kept.pop())}
        return measured | sets.as_reply() | {"checked": checked}

    def check_last(self, case: CaseType, seed: int, results: Any) -> Message:
        """`errors` of the last timed call, over some planes and from inputs made anew, and
        `probes` of the whole."""
        named = self.named(case, results)
        return {
            "errors": self.errors_of_planes(case.problem, seed, planes.chosen(case.problem), named),
            "probes": {name: spot_checks(value) for name, value in named.items()},
        }

    def errors_of_planes(
        self, problem: Problem, seed: int, chosen: tuple[planes.Plane, ...], named: Message
    ) -> Message:
        """How far these planes of results are from float64, by name."""
        dtype = self.DTYPES[problem.dtype]

        def make(name: str, plane: planes.Plane) -> Any:
            return inputs.part(self.arrays, problem, name, seed, plane, dtype)

        exact = self.references.planes(problem, seed, chosen, make)
        return {
            name: difference_of_planes(self.arrays, name, value, exact)
            for name, value in named.items()
        }

    def call(self) -> Any:
        """One call of the prepared case."""
        return self.guarded(self.prepared().call)

    def census(self) -> Message:
        """What one call does on a GPU, and what the framework knows of it."""
        call = self.prepared().call
        return self.guarded(lambda: self.profile(call, self.launches(call)))

    def launches(self, call: Callable[[], Any]) -> Message:
        """`launches`, `counts` and `activity` of a call on a GPU."""
        if self.gpu is not None:
            self.wait()
            try:
                return launches.profile_call(call, self.wait, self.operator_ranges())
            except (launches.CensusError, OSError):
                # Into the worker's log: the case is none the worse for it.
                traceback.print_exc()
        return {"launches": [], "counts": {}}

    def recorded(self) -> list[Message]:
        """Calls recorded as the last samples were taken; none where nothing can be recorded."""
        case = self.prepared()
        if self.gpu is None:
            return []
        try:
            return self.guarded(lambda: self.recordings(case))
        except (launches.CensusError, OSError, AttributeError):
            # Into the worker's log: the case is none the worse for it.
            traceback.print_exc()
            return []

    def counted(self, metrics: Sequence[str]) -> list[Message]:
        """Hardware counters of the kernels of some calls."""
        call = self.prepared().call
        if self.gpu is None:
            raise Unsupported("hardware counters are a GPU's, and this device is none")
        self.wait()
        return self.guarded(lambda: instructions.count_instructions(call, self.wait, metrics))

    def release(self) -> None:
        """Drops the case; its memory is the next one's."""
        self.case = None
        gc.collect()

    def prepared(self) -> CaseType:
        """The case. Raises Failed where there is none."""
        if self.case is None:
            raise Failed("no case is prepared")
        return self.case

    def guarded(self, work: Callable[[], Done]) -> Done:
        """Runs it; where memory runs out, once more without what is kept between cases, and then
        frees all there is, so that the next case has it.

        Raises Lost where something broke and the device does not answer any more.
        """
        words = ""
        for _ in range(2):
            try:
                return work()
            except Exception as error:
                if not self.no_memory(error):
                    if broke(error) and self.lost():
                        traceback.print_exc()
                        raise Lost(str(error).strip().partition("\n")[0]) from error
                    raise
                words = str(error).strip()
            # Out here the exception is gone, and with it the frames that held memory.
            if not self.free_memory():
                break
        self.release()
        self.free_memory()
        raise Failed(f"out of memory: {words}")

    def lost(self) -> bool:
        """Whether every call fails. The first may only report what has failed before it."""
        with contextlib.suppress(Exception):
            self.wait()
        try:
            self.wait()
        except Exception:
            return True
        return False
