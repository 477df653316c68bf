"""The life of a case in every framework: prepared and checked, timed, profiled, dropped."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from regatta_worker import device
from regatta_worker.census import launches
from regatta_worker.clock import timing
from regatta_worker.clock.repeats import CheckedCall, Repeats
from regatta_worker.clock.threads import OneCore
from regatta_worker.problem import Problem, inputs, planes
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.input_sets import CaseInputs, DrawnCall, Inputs, InputSets, seed_of
from regatta_worker.problem.planes import Planes
from regatta_worker.problem.reference import (
    Make,
    ReferenceCache,
    difference,
    differences,
    not_finite,
    reference_of_planes,
    spot_checks,
    worst,
)
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import (
    Failed,
    Lost,
    Message,
    Unavailable,
    Unsupported,
    required,
)
from regatta_worker.protocol.refusals import broke

Done = TypeVar("Done")

GROSS = 0.1
"""A relative L2 error above which a result may be one that is still being written."""

NOT_FINITE = {"relative_l2": math.nan, "max_abs": math.nan}
"""The error of a result with an element that is not a number or infinite."""

SETTLE_S = 0.3
"""The time that unfinished writes of a result get, to be named."""


@dataclass(frozen=True)
class Request:
    """A `prepare` request: the case to make ready."""

    problem: Problem
    variant: str
    params: Mapping[str, Any]
    """Those that are not `auto`, checked against the variant's declaration."""
    seed: int
    inputs: dict[str, Any]
    """Members of a case's `CaseInputs`, the seed among them."""
    wire: Message
    """As it was sent."""


@dataclass(kw_only=True)
class Case(CaseInputs):
    """A prepared case."""

    problem: Any
    repeats: Repeats | None = None
    """Calls that the harness times, while it does."""
    timed: tuple[timing.Plan, bool] | None = None
    """The plan of the last samples, and whether the call waits for the device itself."""
    replay: Callable[[], None] | None = None
    """Replays a CUDA graph of several calls."""

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
    """The name of the variants' owner in messages of `prepare`."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions a reading depends on."""

    def __init__(self, arrays: Arrays, gpu: device.NvidiaDevice | None = None) -> None:
        self.arrays, self.gpu = arrays, gpu
        self.references = ReferenceCache(arrays)
        self.case: CaseType | None = None

    # The answers of a framework or a library.

    def variants(self) -> dict[str, Variant]:
        """All variants, whether or not they can run here."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        driver = {"driver": self.gpu.driver()} if self.gpu else {}
        return device.versions(self.packages) | driver

    def gpu_device(self) -> Message:
        """`name` and `memory_bytes` of the GPU."""
        raise NotImplementedError

    def build(self, request: Request) -> tuple[CaseType, Any, Message]:
        """The case, the results of its first call, and the members of `prepared` about it."""
        raise NotImplementedError

    def inputs(self, problem: Problem, seed: int) -> dict[str, Any]:
        """The inputs of a set, made again: a call may have written into those that it was given."""
        dtype, names = self.DTYPES[problem.dtype], inputs.names(problem)
        return {name: inputs.whole(self.arrays, problem, name, seed, dtype) for name in names}

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
        """True if an exception says that memory was short."""
        return isinstance(error, MemoryError)

    def free_memory(self) -> bool:
        """Frees what is kept between cases; returns False if there was nothing."""
        return False

    def operator_ranges(self) -> launches.Ranges | None:
        """Within which the framework marks its operators for CUPTI."""
        return None

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        """Adds the framework's part to the profile of a call of the case."""
        return profiled

    def recordings(self, case: CaseType) -> list[Message]:
        """Calls recorded on a GPU as the last samples were taken."""
        raise NotImplementedError

    # The requests.

    def hello(self) -> Message:
        return {
            "worker": self.NAME,
            "versions": self.versions(),
            "device": self._device(),
            "variants": [variant.wire(name) for name, variant in self.variants().items()],
            "repeats": True,
        }

    def _device(self) -> Message:
        if self.gpu is None:
            return device.cpu_device()
        return {"kind": "cuda", **self.gpu_device(), "facts": self.gpu.facts()}

    def prepare(self, request: Message) -> Message:
        """Inputs, first call, and the check against float64."""
        if self.case is not None:
            self.release()
        return self.guarded(lambda: self._prepare(request))

    def _prepare(self, wire: Message) -> Message:
        problem, name = self.problem(required(wire, "problem")), required(wire, "variant")
        variant = self.variants().get(name)
        if variant is None:
            raise Failed(f"{self.TESTED or f'library {self.NAME}'} has no variant `{name}`")
        params = variant.taken(name, wire.get("params", {}))
        seed, sets = required(wire, "seed"), int(wire.get("input_sets", 1))
        inputs = {"seed": seed, "sets": sets, "draw": wire.get("draw")}
        request = Request(problem, name, params, seed, inputs, wire)
        self.case, results, about = self.build(request)
        return {"effective": {}} | self.check(self.case, results) | about

    def problem(self, wire: Mapping[str, Any]) -> Any:
        return Problem.from_wire(wire)

    def check(self, case: CaseType, results: Any) -> Message:
        """`errors` of the first call's results against float64, and `probes` of them."""
        named = self.named(case, results)
        problem, seed = case.problem, case.seed
        exact = self.references.whole(problem, seed, lambda: self.inputs(problem, seed))
        errors = {n: difference(self.arrays, (value, exact[n])) for n, value in named.items()}
        return {"errors": errors} | self.probes(case, named)

    def probes(self, case: CaseType, named: Message) -> Message:
        """`probes` of results, and the `draw` that they are of."""
        probes = {name: spot_checks(value, case.draw) for name, value in named.items()}
        return {"probes": probes} | ({} if case.draw is None else {"draw": case.draw})

    def measure(self, request: Message) -> Message:
        """Samples of the case, and what the last of them computed."""
        case, plan = self.prepared(), self.plan(request)
        return self.guarded(lambda: self._measured(case, plan))

    def plan(self, request: Message) -> timing.Plan:
        """The plan of the samples. Raises Unsupported for one that the case lacks."""
        return timing.Plan.from_wire(request)

    def _measured(self, case: CaseType, plan: timing.Plan) -> Message:
        if case.sets == 1:
            return self.timed(case, plan, Inputs())
        sets = self.input_sets(case)
        if self.checks_each_call(case):
            sets.cut = lambda results: self.cut(case, results)
        try:
            measured = self.timed(case, plan, sets)
        finally:
            case.place = sets.number
            sets.forget()
        seed, results = seed_of(case.seed, sets.number), sets.kept.pop()
        checked = {"seed": seed, **self.check_calls(case, seed, results, sets.drawn)}
        if sets.last:
            self.check_settled(case, sets.last, results, checked["errors"])
        del results
        reply = measured | sets.as_reply() | {"checked": checked}
        self.check_order(case, sets)
        return reply

    def check_calls(
        self, case: CaseType, seed: int, results: Any, drawn: Sequence[DrawnCall]
    ) -> Message:
        """Holds timed calls to float64: the last one, whose inputs have this seed, over some
        planes, and each drawn one over the plane that is kept of it.

        The largest `errors`, with the number of the drawn `call` that they are of; and `probes` of
        the last call as a whole.
        """
        last = tuple(plane.of_call(seed) for plane in self.drawn(case, results))
        return self.compared(case, self.named(case, results), last, drawn)

    def compared(
        self,
        case: CaseType,
        named: dict[str, Any],
        last: tuple[Any, ...],
        drawn: Sequence[DrawnCall],
    ) -> Message:
        """Compares all at once: each operation on a GPU takes longer to launch than to run."""
        earlier = [
            (call, call.values[0].of_call(seed_of(case.seed, call.number), call.along))
            for call in drawn
        ]
        make = functools.cache(self.maker(case))
        parts = (*last, *dict.fromkeys(plane for _, plane in earlier))
        self.check_inputs(case, last, parts, make)
        exact = self.exact(case, parts, make)
        groups = []
        for name, value in named.items():
            groups.append([(plane.cut(name, value), exact[plane][name]) for plane in last])
            kept = [(call.values[1][name], exact[plane][name]) for call, plane in earlier]
            groups += [[pair] for pair in kept]
        found = iter(differences(self.arrays, *groups))
        wrong = not_finite(self.arrays, named)
        checked: Message = {"errors": {}}
        for name in named:
            error, *others = itertools.islice(found, 1 + len(earlier))
            if name in wrong:
                error = NOT_FINITE
            for (call, _), other in zip(earlier, others, strict=True):
                if worst(error, other) is other:
                    error, checked["call"] = other, call.call
            checked["errors"][name] = error
        return checked | self.probes(case, named)

    def check_inputs(
        self, case: CaseType, last: tuple[Any, ...], parts: tuple[Any, ...], make: Make
    ) -> None:
        """Raises Failed where the last call wrote into its inputs, in the planes `last`, which are
        among the `parts` that are made."""
        for name, tensor in self.given(case).items():
            differ = [
                (plane.cut(name, tensor) != was).any()
                for some in planes.alike(parts)
                for plane, was in planes.apart(some, name, make(name, some)[0])
                if plane in last
            ]
            # All at once: a device is waited for once.
            if bool(self.arrays.xp.stack(differ).any()):
                raise Failed(
                    f"the call wrote into its input {name}, which is its caller's: write "
                    f"into a copy, or into an array of its own"
                )

    def check_settled(
        self, case: CaseType, early: tuple[Any, Message], results: Any, errors: Message
    ) -> None:
        """Raises Failed where results are others than those that `early` has a plane of, which was
        copied when the call had returned."""
        if not all(error["relative_l2"] <= GROSS for error in errors.values()):
            time.sleep(SETTLE_S)
        plane, copies = early
        for name, value in self.named(case, results).items():
            check_unchanged(name, copies[name], self.arrays.host_copy(plane.cut(name, value)))

    def check_order(self, case: CaseType, sets: InputSets) -> None:
        """Raises Failed where a call works outside of the order that the clock sees."""

    def checks_each_call(self, case: CaseType) -> bool:
        """True if any call's results can be checked, and not the last one's alone."""
        return True

    def given(self, case: CaseType) -> dict[str, Any]:
        """The inputs that a call could write into, logical in shape."""
        return {}

    def drawn(self, case: CaseType, results: Any, wanted: int | None = None) -> tuple[Any, ...]:
        """So many planes of a call's results at random, by default the share that is checked."""
        return planes.drawn(case.problem, wanted)

    def exact(
        self, case: CaseType, parts: tuple[Any, ...], make: Make
    ) -> dict[Any, dict[str, Any]]:
        """The exact values of planes of the results of calls, by name."""
        return reference_of_planes(self.arrays, case.problem, parts, make)

    def cut(self, case: CaseType, results: Any) -> tuple[Any, dict[str, Any]]:
        """A plane of a call's results, drawn here, copied to the host."""
        (plane,) = self.drawn(case, results, 1)
        named = self.named(case, results)
        copy = self.arrays.host_copy
        return plane, {name: copy(plane.cut(name, value)) for name, value in named.items()}

    def maker(self, case: CaseType) -> Make:
        """Makes planes of the inputs of calls."""
        dtype = self.DTYPES[case.problem.dtype]

        def make(name: str, some: Planes) -> Any:
            return inputs.part(self.arrays, case.problem, name, some, dtype)

        return make

    def call(self) -> Any:
        """One call of the prepared case."""
        return self.guarded(self.prepared().call)

    def repeat(self, calls: int, core: int | None, graph: bool, step: str = "call") -> Message:
        """Makes so many calls, which the harness times by its own clock; on a processor on one
        core, where it names one. With `step` `change_and_call` each is on other inputs, with
        `change` the inputs change and no call is made, and `check` gives the `errors` of calls."""
        case = self.prepared()
        if not self.checks_each_call(case):
            raise Unsupported("each call of this case takes lengths of its own")
        if step == "check":
            return {"errors": self.guarded(lambda: self.check_repeats(case))}
        if step != "call" and case.repeats is None:
            case.repeats = self.repeats(case)

        def work() -> None:
            if case.repeats and step == "change_and_call":
                case.repeats.make(calls)
            elif case.repeats and step == "change":
                case.repeats.change_only(calls)
            else:
                self.repeat_same(case, calls, graph)

        with OneCore(None if self.gpu else core) as pinned:
            pinned.pin()
            self.guarded(work)
        return {}

    def repeat_same(self, case: CaseType, calls: int, graph: bool) -> None:
        """Makes so many calls on inputs that stay."""
        run, made = self.replayed(case) if graph else (case.call, 1)
        results = None
        for _ in range(calls // made):
            # As between samples: the memory of the last results is the next ones'.
            results = None
            results = run()
            if self.gpu is None:
                self.wait(results)
        self.wait(results)

    def repeats(self, case: CaseType) -> Repeats:
        """Calls on other inputs each. Raises Unsupported where they cannot be changed in place."""
        turn = self.turner(case)

        def look(results: Any) -> None:
            self.wait(results)
            for value in results:
                self.touch(value)

        def cut(results: Any) -> CheckedCall:
            plane, values = self.cut(case, results)
            inputs, copy = self.in_place(case), self.arrays.host_copy
            return CheckedCall(
                plane, values, {name: copy(plane.cut(name, x)) for name, x in inputs.items()}
            )

        return Repeats(case.call, turn, look, cut)

    def turner(self, case: CaseType) -> Callable[[], None]:
        """Turns each input in its memory by a number of elements that is drawn."""
        raise Unsupported("this worker does not change inputs between calls that are repeated")

    def touch(self, value: Any) -> None:
        """Reads an element of each row of a result."""
        value[..., 0].sum()

    def in_place(self, case: CaseType) -> dict[str, Any]:
        """The inputs as they are, logical in shape."""
        return self.given(case)

    def check_repeats(self, case: CaseType) -> Message:
        """The largest errors of the calls that were kept, by result."""
        kept = case.repeats.kept if case.repeats else []
        case.repeats = None
        errors: Message = {}
        for call in kept:
            make = functools.partial(_copied, call.inputs)
            planes = (call.plane,)
            exact = reference_of_planes(self.arrays, case.problem, planes, make)[call.plane]
            for name, value in call.values.items():
                error = difference(self.arrays, (value, exact[name]))
                errors[name] = worst(errors.get(name, error), error)
        return errors

    def replayed(self, case: CaseType) -> tuple[Callable[[], Any], int]:
        """A replay of a CUDA graph of several calls, and their number."""
        raise Unsupported("this worker replays no CUDA graph of several calls")

    def census(self) -> Message:
        """The structure of one call on a GPU, with the framework's part."""
        call = self.prepared().call
        return self.guarded(lambda: self.profile(call, self.launches(call)))

    def launches(self, call: Callable[[], Any]) -> Message:
        """`launches`, `counts` and `activity` of a call on a GPU."""
        nothing: Message = {"launches": [], "counts": {}}
        if self.gpu is None:
            return nothing
        self.wait()
        try:
            return launches.profile_call(call, self.wait, self.operator_ranges())
        except (launches.CensusError, OSError) as error:
            traceback.print_exc()
            return nothing | {"uncounted": {"census": f"the census failed: {error}"}}

    def recorded(self) -> list[Message]:
        """Calls recorded as the last samples were taken; none where nothing can be recorded."""
        case = self.prepared()
        if self.gpu is None:
            return []
        try:
            return self.guarded(lambda: self.recordings(case))
        except (launches.CensusError, OSError):
            # Into the worker's log: the case does not fail by it.
            traceback.print_exc()
            return []

    def counted(self, metrics: Sequence[str]) -> list[Message]:
        call = self.prepared().call
        if self.gpu is None:
            raise Unsupported("hardware counters need a GPU, and this device is not one")
        self.wait()
        return self.guarded(lambda: launches.count_instructions(call, self.wait, metrics))

    def release(self) -> None:
        """Drops the case; its memory is the next one's."""
        self.case = None
        gc.collect()

    def prepared(self) -> CaseType:
        """The case. Raises Failed without one."""
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
        raise Unavailable(f"out of memory: {words}")

    def lost(self) -> bool:
        """True if every call fails. The first may only report what has failed before it."""
        with contextlib.suppress(Exception):
            self.wait()
        try:
            self.wait()
        except Exception:
            return True
        return False


def check_unchanged(name: str, then: Any, now: Any) -> None:
    """Raises Failed where a result is another than when the call had returned."""
    # Neither is a number that equals itself where an element is NaN.
    if bool(((now != then) & ((now == now) | (then == then))).any()):
        raise Failed(
            f"the result {name} changed after the call had returned: a thread or another "
            f"stream still wrote it. Wait for it in the function, within the time"
        )


def _copied(inputs: dict[str, Any], name: str, _: Planes) -> Any:
    """A plane's part of an input, as `Make` gives it."""
    return inputs[name][None]
