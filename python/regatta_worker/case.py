"""Prepares, checks, times, profiles and releases cases, alike in every framework."""

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
"""Relative L2 error above which a result may still be in the course of being written."""

NOT_FINITE = {"relative_l2": math.nan, "max_abs": math.nan}
"""The error of a result that contains NaN or an infinity."""

SETTLE_S = 0.3
"""Seconds to wait for unfinished writes of a result, so that they are seen and reported."""


@dataclass(frozen=True)
class Request:
    """A `prepare` request, parsed."""

    problem: Problem
    variant: str
    params: Mapping[str, Any]
    """Parameters other than `auto`, checked against the variant's declaration."""
    seed: int
    inputs: dict[str, Any]
    """Arguments of the case's `CaseInputs`, including the seed."""
    wire: Message
    """The request as it was received."""


@dataclass(kw_only=True)
class Case(CaseInputs):
    """A prepared case."""

    problem: Any
    repeats: Repeats | None = None
    """Makes the calls that the harness times on changing inputs; None at other times."""
    timed: tuple[timing.Plan, bool] | None = None
    """The plan of the last samples, and True if the call itself waits for the device."""
    replay: Callable[[], None] | None = None
    """Replays a CUDA graph of several calls."""

    def call(self) -> Any:
        """Makes one call. Results are in the problem's order."""
        raise NotImplementedError


CaseType = TypeVar("CaseType", bound=Case)


class CaseWorker(Generic[CaseType]):
    """Serves the variants of one library, and holds at most one case. Subclasses implement the
    parts that depend on a framework."""

    NAME = ""
    """The library's name in `--library`."""
    DTYPES: Mapping[str, Any]
    """The framework's types by the protocol's names."""
    TESTED = ""
    """The code under test in messages of `prepare`; the default is the library."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions affect the measurement."""

    def __init__(self, arrays: Arrays, gpu: device.NvidiaDevice | None = None) -> None:
        self.arrays, self.gpu = arrays, gpu
        self.references = ReferenceCache(arrays)
        self.case: CaseType | None = None

    # To be implemented by a framework or a library.

    def variants(self) -> dict[str, Variant]:
        """Returns all variants, including those that cannot run here."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        driver = {"driver": self.gpu.driver()} if self.gpu else {}
        return device.versions(self.packages) | driver

    def gpu_device(self) -> Message:
        """Returns `name` and `memory_bytes` of the GPU."""
        raise NotImplementedError

    def build(self, request: Request) -> tuple[CaseType, Any, Message]:
        """Returns the case, its first call's results, and the members of `prepared` about it."""
        raise NotImplementedError

    def inputs(self, problem: Problem, seed: int) -> dict[str, Any]:
        """Makes new inputs of a set, as a call may have written into those that it was given."""
        dtype, names = self.DTYPES[problem.dtype], inputs.names(problem)
        return {name: inputs.whole(self.arrays, problem, name, seed, dtype) for name in names}

    def named(self, case: CaseType, results: Any) -> dict[str, Any]:
        """Returns the problem's results by name, with axes in logical order.

        Raises Failed if one has a wrong shape.
        """
        raise NotImplementedError

    def input_sets(self, case: CaseType) -> InputSets:
        """Returns the sets of inputs on which samples are taken."""
        raise NotImplementedError

    def timed(self, case: CaseType, plan: timing.Plan, sets: Inputs) -> Message:
        """Takes samples of the case's call."""
        raise NotImplementedError

    def wait(self, results: Any = None) -> None:
        """Waits until the device has computed `results`; if None, until all its work is done."""

    def no_memory(self, error: Exception) -> bool:
        """True if an exception reports that memory ran out."""
        return isinstance(error, MemoryError)

    def free_memory(self) -> bool:
        """Frees memory that is kept between cases. Returns False if there was nothing to free."""
        return False

    def operator_ranges(self) -> launches.Ranges | None:
        """Returns a context in which the framework marks its operators for CUPTI."""
        return None

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        """Adds the framework's figures to `profiled`, the profile of a call of the case."""
        return profiled

    def recordings(self, case: CaseType) -> list[Message]:
        """Records calls on a GPU in the way in which the last samples were taken."""
        raise NotImplementedError

    # Requests.

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
        """Makes the inputs and the first call, and checks its results against float64."""
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
        """Returns `errors` of the first call's results against float64, and their `probes`."""
        named = self.named(case, results)
        problem, seed = case.problem, case.seed
        exact = self.references.whole(problem, seed, lambda: self.inputs(problem, seed))
        errors = {n: difference(self.arrays, (value, exact[n])) for n, value in named.items()}
        return {"errors": errors} | self.probes(case, named)

    def probes(self, case: CaseType, named: Message) -> Message:
        """Returns `probes` of the results, and the `draw` from which the probes were drawn."""
        probes = {name: spot_checks(value, case.draw) for name, value in named.items()}
        return {"probes": probes} | ({} if case.draw is None else {"draw": case.draw})

    def measure(self, request: Message) -> Message:
        """Takes samples of the case, and checks the results of timed calls."""
        case, plan = self.prepared(), self.plan(request)
        return self.guarded(lambda: self._measured(case, plan))

    def plan(self, request: Message) -> timing.Plan:
        """Reads the plan of the samples. Raises Unsupported if the case does not support it."""
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
        """Compares timed calls with float64: some planes of the last call, whose inputs have the
        given seed, and of each drawn call the one plane that was kept.

        Returns the largest `errors`, the number of the drawn `call` if they are those of one, and
        `probes` of all of the last call's results.
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
        """Compares all planes together: a GPU operation takes longer to launch than to run."""
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
        """Raises Failed if the last call wrote into its inputs, as far as the planes `last` show.
        These are some of `parts`, whose inputs `make` makes."""
        for name, tensor in self.given(case).items():
            differ = [
                (plane.cut(name, tensor) != was).any()
                for some in planes.alike(parts)
                for plane, was in planes.apart(some, name, make(name, some)[0])
                if plane in last
            ]
            # Compared together, so that the device is waited for only once.
            if bool(self.arrays.xp.stack(differ).any()):
                raise Failed(
                    f"the call wrote into its input {name}, which is its caller's: write "
                    f"into a copy, or into an array of its own"
                )

    def check_settled(
        self, case: CaseType, early: tuple[Any, Message], results: Any, errors: Message
    ) -> None:
        """Raises Failed if `results` have changed since the call returned. `early` is a plane that
        was copied then, with its values."""
        if not all(error["relative_l2"] <= GROSS for error in errors.values()):
            time.sleep(SETTLE_S)
        plane, copies = early
        for name, value in self.named(case, results).items():
            check_unchanged(name, copies[name], self.arrays.host_copy(plane.cut(name, value)))

    def check_order(self, case: CaseType, sets: InputSets) -> None:
        """Raises Failed if a call works outside the stream order that the clock observes."""

    def checks_each_call(self, case: CaseType) -> bool:
        """True if the results of every call can be checked, not only those of the last."""
        return True

    def given(self, case: CaseType) -> dict[str, Any]:
        """Returns the inputs that a call could write into, in logical shape."""
        return {}

    def drawn(self, case: CaseType, results: Any, wanted: int | None = None) -> tuple[Any, ...]:
        """Draws `wanted` random planes of a call's results, by default the share to check."""
        return planes.drawn(case.problem, wanted)

    def exact(
        self, case: CaseType, parts: tuple[Any, ...], make: Make
    ) -> dict[Any, dict[str, Any]]:
        """Returns the exact values of planes of calls' results, by plane and name."""
        return reference_of_planes(self.arrays, case.problem, parts, make)

    def cut(self, case: CaseType, results: Any) -> tuple[Any, dict[str, Any]]:
        """Draws a plane of a call's results, and returns it with its values on the host."""
        (plane,) = self.drawn(case, results, 1)
        named = self.named(case, results)
        copy = self.arrays.host_copy
        return plane, {name: copy(plane.cut(name, value)) for name, value in named.items()}

    def maker(self, case: CaseType) -> Make:
        """Returns a function that makes planes of calls' inputs."""
        dtype = self.DTYPES[case.problem.dtype]

        def make(name: str, some: Planes) -> Any:
            return inputs.part(self.arrays, case.problem, name, some, dtype)

        return make

    def call(self) -> Any:
        """Makes one call of the prepared case."""
        return self.guarded(self.prepared().call)

    def repeat(self, calls: int, core: int | None, graph: bool, step: str = "call") -> Message:
        """Makes `calls` calls, which the harness times by its own clock; without a GPU they run on
        `core`, if given. By `step`, `call` keeps the inputs, `change_and_call` changes them before
        each call, `change` makes no calls, and `check` returns the `errors` of kept calls."""
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
        """Makes `calls` calls on unchanged inputs."""
        run, made = self.replayed(case) if graph else (case.call, 1)
        results = None
        for _ in range(calls // made):
            # As between samples, the next results can use the memory of the last.
            results = None
            results = run()
            if self.gpu is None:
                self.wait(results)
        self.wait(results)

    def repeats(self, case: CaseType) -> Repeats:
        """Returns calls that each have new inputs. Raises Unsupported if inputs cannot change."""
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
        """Returns a function that rotates each input in its memory by a random distance."""
        raise Unsupported("this worker does not change inputs between calls that are repeated")

    def touch(self, value: Any) -> None:
        """Reads an element of each row of a result."""
        value[..., 0].sum()

    def in_place(self, case: CaseType) -> dict[str, Any]:
        """Returns the current inputs, in logical shape."""
        return self.given(case)

    def check_repeats(self, case: CaseType) -> Message:
        """Returns the largest error among the kept calls, by result."""
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
        """Returns a function that replays a CUDA graph of several calls, and their number."""
        raise Unsupported("this worker replays no CUDA graph of several calls")

    def census(self) -> Message:
        """Profiles one call: its operations on a GPU, and the framework's figures."""
        call = self.prepared().call
        return self.guarded(lambda: self.profile(call, self.launches(call)))

    def launches(self, call: Callable[[], Any]) -> Message:
        """Returns `launches`, `counts` and `activity` of a call on a GPU."""
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
        """Returns calls recorded like the last samples; empty if nothing can be recorded."""
        case = self.prepared()
        if self.gpu is None:
            return []
        try:
            return self.guarded(lambda: self.recordings(case))
        except (launches.CensusError, OSError):
            # Goes into the worker's log, and does not fail the case.
            traceback.print_exc()
            return []

    def counted(self, metrics: Sequence[str]) -> list[Message]:
        call = self.prepared().call
        if self.gpu is None:
            raise Unsupported("hardware counters need a GPU, and this device is not one")
        self.wait()
        return self.guarded(lambda: launches.count_instructions(call, self.wait, metrics))

    def release(self) -> None:
        """Drops the case, so that the next one can use its memory."""
        self.case = None
        gc.collect()

    def prepared(self) -> CaseType:
        """Returns the case. Raises Failed if none is prepared."""
        if self.case is None:
            raise Failed("no case is prepared")
        return self.case

    def guarded(self, work: Callable[[], Done]) -> Done:
        """Runs `work`. If memory runs out, frees what is kept between cases and tries once more. If
        that fails too, releases the case for the sake of the next one, and raises Unavailable.

        Raises Lost if an error broke the device, so that every further call fails.
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
            # Outside the handler, the exception and the frames that held memory are gone.
            if not self.free_memory():
                break
        self.release()
        self.free_memory()
        raise Unavailable(f"out of memory: {words}")

    def lost(self) -> bool:
        """True if every call fails. Waits twice, as the first wait may report an earlier error."""
        with contextlib.suppress(Exception):
            self.wait()
        try:
            self.wait()
        except Exception:
            return True
        return False


def check_unchanged(name: str, then: Any, now: Any) -> None:
    """Raises Failed if a result has changed since the call returned."""
    # Elements that are NaN both then and now count as equal.
    if bool(((now != then) & ((now == now) | (then == then))).any()):
        raise Failed(
            f"the result {name} changed after the call had returned: a thread or another "
            f"stream still wrote it. Wait for it in the function, within the time"
        )


def _copied(inputs: dict[str, Any], name: str, _: Planes) -> Any:
    """Returns a plane of an input, in the form of `Make`."""
    return inputs[name][None]
