"""The declaration of a library on torch, and the worker that serves its variants.

A library is one file: a `Library`, and a function a variant, which is given a `TorchCase` and
returns its `Call`. Inputs, the first call, the check against float64, clock and profile are here.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.metadata
import math
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from regatta_worker import device
from regatta_worker.case import NOT_FINITE, CaseType, CaseWorker, Request
from regatta_worker.census import functions, launches
from regatta_worker.census.counters import first_call
from regatta_worker.clock import timing
from regatta_worker.clock.peak import torch_peak
from regatta_worker.on_torch.case import DTYPES, Call, Results, Tensors, TorchCase
from regatta_worker.on_torch.inputs import MadeTensors, TorchInputSets, memory_order, turner
from regatta_worker.problem import Mask, Problem, inputs, planes
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.input_sets import DrawnCall, Inputs
from regatta_worker.problem.planes import Planes
from regatta_worker.problem.reference import (
    Make,
    ReferenceCache,
    difference,
    not_finite,
    reference,
    worst,
)
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed, Message, Unsupported
from regatta_worker.protocol.refusals import absence, refusal

Build = Callable[[TorchCase], Call]

SHARE_OF_DEVICE = 8
"""References may take at most 1/`SHARE_OF_DEVICE` of a device's memory."""

SHARE_OF_SETS = 64
"""Input sets kept between cases may take at most 1/`SHARE_OF_SETS` of a device's memory."""

IN_GRAPH = 16
"""Calls of a CUDA graph that is replayed for the harness's clock."""

NEEDED = 10
"""The memory that a case is assumed to need, as a multiple of its inputs and results: three sets of
them, the tensors that forward saves, the memory of a comparison, and as much again as workspace."""


def import_autograd() -> None:
    """Imports the modules that torch needs for its first gradient: hundreds, sympy's
    among them, which must not count for the first call of whichever case comes first."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch.fx.experimental.symbolic_shapes")


@dataclass(frozen=True, kw_only=True)
class Row(Variant):
    """A variant, and what its cases need."""

    build: Build
    modules: tuple[str, ...] = ()
    """The first that can be imported is the case's `module`."""
    registers: tuple[str, str] | None = None
    """Namespace and name of an operator that the module has to register with torch."""
    on_gpu: bool = True
    """A GPU is needed."""
    packed: bool = True
    """It takes packed ragged batches."""
    effective_from_grid: Mapping[str, launches.Shown] = field(default_factory=dict)
    """Parameters whose value a launch shows, each with the kernel and the axis of its grid."""
    gpu: Mapping[str, Any] = field(default_factory=dict)
    """Members of the variant that are others on a GPU."""


@dataclass
class Library:
    """A library's declaration."""

    name: str
    """As `--library` has it."""
    packages: tuple[str, ...] = ()
    """Distributions whose versions a reading depends on, beside torch; first its own."""
    modules: tuple[str, ...] = ()
    """The modules of variants that name none of their own."""
    refusals: tuple[type[Exception], ...] = (RuntimeError,)
    """The exceptions for a case that a variant does not support."""
    module_refusals: tuple[str, ...] = ()
    """Names in the module of further ones."""
    module_versions: Callable[[Any], dict[str, str]] = lambda module: {}
    """Versions that the module knows of itself."""
    rows: dict[str, Row] = field(default_factory=dict)

    def variant(self, name: str, summary: str, **declared: Any) -> Callable[[Build], Build]:
        """Adds the function as a variant; `declared` are further members of `Row`."""

        def added(build: Build) -> Build:
            of = {"modules": self.modules, **declared}
            self.rows[name] = Row(summary=summary, build=build, **of)
            return build

        return added

    def load(self) -> tuple[dict[str, ModuleType | None], dict[str, str]]:
        """The module of each variant, and why others have none."""
        modules: dict[str, ModuleType | None] = {}
        missing: dict[str, str] = {}
        for name, row in self.rows.items():
            found, reasons = _first_module(row)
            if row.modules and found is None:
                missing[name] = "; ".join(reasons)
            else:
                modules[name] = found
        return modules, missing

    def preload(self) -> None:
        """Imports the library for workers that are forked later; where that fails, they say it."""
        import_autograd()
        with contextlib.suppress(Exception):
            self.load()

    def __call__(self) -> TorchWorker:
        return TorchWorker(self)


def _first_module(row: Row) -> tuple[ModuleType | None, list[str]]:
    reasons: list[str] = []
    for name in row.modules:
        try:
            module = importlib.import_module(name)
            if row.registers and not hasattr(
                getattr(torch.ops, row.registers[0]), row.registers[1]
            ):
                operator = ".".join(row.registers)
                raise ImportError(f"it registers no operator torch.ops.{operator}")
            return module, reasons
        except Exception as error:
            traceback.print_exc()
            reasons.append(f"{name} cannot be imported here: {type(error).__name__}: {error}")
    return None, reasons


class OnTorch(CaseWorker[CaseType]):
    """Common to all workers on torch: the first CUDA device, or another, or else the CPU."""

    DTYPES: Mapping[str, torch.dtype] = DTYPES

    def __init__(self, ordinal: int = 0, packages: tuple[str, ...] = ()) -> None:
        """`packages` are those whose versions a reading depends on, beside torch."""
        gpu = device.NvidiaDevice(ordinal) if torch.cuda.is_available() else None
        self.packages = (*packages, "triton") if gpu else packages
        self.device = torch.device("cuda", ordinal) if gpu else torch.device("cpu")
        super().__init__(Arrays.for_torch(self.device), gpu)

    def versions(self) -> dict[str, str]:
        found = super().versions() | {"torch": torch.__version__}
        if self.gpu:
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            # Readings of different clocks are not to be compared.
            blocked = timing.stream_clock()
            found["clock"] = f"probe {blocked.version}" if blocked else "events"
        return found

    def gpu_device(self) -> Message:
        properties = torch.cuda.get_device_properties(self.device)
        return {"name": properties.name, "memory_bytes": properties.total_memory}

    def peak(self, dtypes: tuple[str, ...]) -> Message:
        return torch_peak(self.device, {dtype: DTYPES[dtype] for dtype in dtypes})

    def wait(self, results: Any = None) -> None:
        if self.gpu:
            torch.cuda.synchronize()

    def no_memory(self, error: Exception) -> bool:
        return isinstance(error, torch.OutOfMemoryError)

    def operator_ranges(self) -> launches.Ranges:
        return functools.partial(torch.autograd.profiler.emit_nvtx, record_shapes=False)

    def poison(self, shapes: Iterable[tuple[int, ...]], dtype: torch.dtype) -> None:
        """Leaves NaN where the library is about to allocate its results.

        The library allocates them itself; but torch's allocator gives the block that fits
        best among those just freed, which are these.
        """
        if self.gpu:
            blocks = [torch.full(x, torch.nan, dtype=dtype, device=self.device) for x in shapes]
            del blocks

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        if self.gpu:
            if profiled["launches"]:
                profiled["counts"]["copies"] += sum(map(copies, profiled["launches"]))
            profiled["counts"] |= allocations(call)
        return profiled


def recorded_samples(
    timed: tuple[timing.Plan, bool] | None, run: Callable[[], Any]
) -> list[Message]:
    """Calls recorded as the samples were `timed`: on a blocked stream, or one after the other."""
    if timed is None or timed[0].graph:
        # A graph's replays were timed, and it is gone.
        return []
    plan, synchronised = timed
    blocked = None if synchronised else timing.stream_clock()

    def sample(call: Callable[[], Any]) -> float | None:
        if blocked:
            return blocked.sample(plan.cold, call).device_ns
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        return None

    return launches.record_samples(run, sample)


class TimedOnTorch(OnTorch[CaseType]):
    """Workers on torch whose calls this process makes alone: timed, replayed and recorded alike."""

    def timed_call(self, case: CaseType) -> Call:
        """The call that is timed."""
        raise NotImplementedError

    def plan(self, request: Message) -> timing.Plan:
        plan, call = super().plan(request), self.timed_call(self.prepared())
        if plan.graph and call.earlier_stream:
            raise Unsupported(
                "autograd runs backward on the stream of its forward call, which was made before "
                "the capture: no CUDA graph can hold it"
            )
        if plan.graph and call.varies:
            raise Unsupported(
                "a CUDA graph replays the lengths and plans of its capture, and each call is to "
                "make its own: measure with graph = false"
            )
        return plan

    def timed(self, case: CaseType, plan: timing.Plan, sets: Inputs) -> Message:
        call = self.timed_call(case)
        if gpu := self.gpu:
            sets.held_bytes += self.references.near_bytes
            measured = timing.measure_cuda(call.run, plan, gpu, sets, by_autograd=call.by_autograd)
        else:
            measured = measure_on_cpu(call.run, plan, sets)
        case.timed = plan, bool(measured.get("synchronised"))
        return measured

    def replayed(self, case: CaseType) -> tuple[Callable[[], Any], int]:
        """A replay of a CUDA graph of `IN_GRAPH` calls, captured once a case."""
        call = self.timed_call(case)
        if self.gpu is None or call.earlier_stream or call.varies:
            raise Unsupported("no CUDA graph can hold this call")
        if case.replay is None:

            def several() -> Any:
                for _ in range(IN_GRAPH - 1):
                    call.run()
                return call.run()

            case.replay, _, _ = timing.captured(several)
        return case.replay, IN_GRAPH

    def recordings(self, case: CaseType) -> list[Message]:
        return recorded_samples(case.timed, self.timed_call(case).run)


class TorchWorker(TimedOnTorch[TorchCase]):
    """Cases of one library."""

    def __init__(self, library: Library) -> None:
        super().__init__(packages=library.packages)
        self.NAME, self.library, self.made = library.name, library, MadeTensors()
        if self.gpu:
            memory = torch.cuda.get_device_properties(self.device).total_memory
            self.references = ReferenceCache(self.arrays, memory // SHARE_OF_DEVICE)
            self.made = MadeTensors(memory // SHARE_OF_SETS)
            # cuBLAS's workspace is a part of every `peak_bytes`, whether or not a reference
            # had to be computed in this process.
            square = torch.zeros((2, 2), dtype=torch.float64, device=self.device)
            torch.mm(square, square)
            self._load_kernels()
        self.modules, self.missing = library.load()
        loaded = (module for module in dict.fromkeys(self.modules.values()) if module is not None)
        self.loaded = tuple(loaded)
        self.refusals = library.refusals + tuple(
            getattr(module, name) for module in self.loaded for name in library.module_refusals
        )
        self.absent: str | None = None
        if self.missing and not self.modules:
            reasons = ImportError("; ".join(dict.fromkeys(self.missing.values())))
            package = next(iter(library.packages), library.name)
            self.absent = absence(f"library {library.name}", reasons, package)

    def _load_kernels(self) -> None:
        """Loads the kernels of inputs, references and comparisons, a third of a second, while the
        process starts beside others: else its first case does."""
        full = Mask(None, None, "top-left")
        small = Problem(1, 2, 2, 16, 16, 16, 16, "bf16", full, "bshd", "both", None)
        tensors = self.inputs(small, 0)
        exact = self.references.whole(small, 0, lambda: tensors)
        named = {
            name: exact[name].to(self.device, torch.bfloat16).reshape(small.shape(name))
            for name in small.results
        }
        one, other = planes.drawn(small)
        copies = {name: self.arrays.host_copy(other.cut(name, x)) for name, x in named.items()}
        case = TorchCase(problem=small, variant="", params={}, tensors=tensors)
        self.compared(case, named, (one,), [DrawnCall(1, 0, 0.5, (other, copies))])
        TorchInputSets(tensors, case, functools.partial(inputs.fill, self.arrays)).change(False)
        self.references.clear()
        self.wait()

    def variants(self) -> dict[str, Variant]:
        return {
            name: replace(row, **row.gpu) if self.gpu else row
            for name, row in self.library.rows.items()
        }

    def hello(self) -> Message:
        return super().hello() | ({"absent": self.absent} if self.absent else {})

    def versions(self) -> dict[str, str]:
        found = super().versions()
        for module in self.loaded:
            found |= self.library.module_versions(module)
        return found

    def build(self, request: Request) -> tuple[TorchCase, Results, Message]:
        problem, name = request.problem, request.variant
        row = self.library.rows[name]
        if reason := self.absent or self.missing.get(name):
            raise Unsupported(reason)
        if row.on_gpu and self.gpu is None:
            raise Unsupported(f"{self.NAME}/{name} needs a GPU, and torch can use none")
        if problem.varlen and not row.packed:
            raise Unsupported(f"{self.NAME}/{name} takes no packed ragged batch")
        if problem.has_backward:
            import_autograd()
        if self.gpu:
            self._make_room(problem, row.stores_scores)
        case = TorchCase(
            problem=problem,
            variant=name,
            params=request.params,
            tensors=self.inputs(problem, request.seed),
            module=self.modules.get(name),
            **request.inputs,
        )
        if "access" in row.parameters:
            case.param("access", "views")
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                with case.settings:
                    case.built = row.build(case)
                    self.poison(map(problem.shape, problem.results), DTYPES[problem.dtype])
                    self.wait()
                    results, first = first_call(case.built.run, self.wait)
                    case.settings = case.settings.pop_all()
            except torch.OutOfMemoryError:
                raise
            except self.refusals as error:
                raise refusal(error, [str(warning.message) for warning in warned]) from error
        case.effective |= case.built.selected()
        about = {"effective": case.effective, "tuned": list(case.tuned)} | first
        problems = case.built.problems
        return case, results, about | ({"problems": problems} if problems > 1 else {})

    def check(self, case: TorchCase, results: Results) -> Message:
        found = super().check(case, results)
        if case.built.draws_lengths and len(results) > 1:
            short = _shortened(case.problem, results[-1])
            whole = self.inputs(case.problem, case.seed)
            cut = {name: x[:, : short.seq_q] for name, x in whole.items()}
            exact = reference(self.arrays, short, cut)["out"]
            of_short = difference(self.arrays, (results[-1], exact))
            found["errors"]["out"] = worst(found["errors"]["out"], of_short)
        return found

    def check_calls(
        self, case: TorchCase, seed: int, results: Results, drawn: Sequence[DrawnCall]
    ) -> Message:
        """For a call that draws its lengths, the larger error of its longest and its shortest:
        it has no place to spot-check."""
        if not case.built.draws_lengths:
            return super().check_calls(case, seed, results, drawn)
        make, errors = functools.cache(self.maker(case)), []
        of_inputs = tuple(plane.of_call(seed) for plane in planes.drawn(case.problem))
        self.check_inputs(case, of_inputs, of_inputs, make)
        for result in (results[0], results[-1]):
            some = planes.drawn(case.problem, length=result.shape[1])
            some = tuple(plane.of_call(seed) for plane in some)
            named = named_results(_shortened(case.problem, result), (result,))
            exact = self.exact(case, some, make)
            pairs = [(plane.cut("out", named["out"]), exact[plane]["out"]) for plane in some]
            error = NOT_FINITE if not_finite(self.arrays, named) else None
            errors.append(error or difference(self.arrays, *pairs))
        return {"errors": {"out": worst(*errors)}, "probes": {}}

    def turner(self, case: TorchCase) -> Callable[[], None]:
        if self.gpu is not None:
            return super().turner(case)
        return turner(case.tensors, case.built.refresh)

    def touch(self, value: torch.Tensor) -> None:
        super().touch(value.detach())

    def checks_each_call(self, case: TorchCase) -> bool:
        """Not where lengths are drawn: a call's are not known when it is checked."""
        return not case.built.draws_lengths

    def given(self, case: TorchCase) -> Tensors:
        return {name: tensor.detach() for name, tensor in case.tensors.items()}

    def maker(self, case: TorchCase) -> Make:
        """As the samples' inputs are rotated in memory."""
        dtype = DTYPES[case.problem.dtype]

        def make(name: str, some: Planes) -> Any:
            order = memory_order(case.tensors[name])
            return inputs.part(self.arrays, case.problem, name, some, dtype, order)

        return make

    def named(self, case: TorchCase, results: Results) -> Tensors:
        return named_results(case.problem, results)

    def timed_call(self, case: TorchCase) -> Call:
        return case.built

    def input_sets(self, case: TorchCase) -> TorchInputSets:
        fill = functools.partial(inputs.fill, self.arrays)
        return TorchInputSets(case.tensors, case, fill, case.built.refresh, made=self.made)

    def free_memory(self) -> bool:
        there = self.references.clear() | self.made.clear()
        gc.collect()
        if self.gpu:
            torch.cuda.empty_cache()
        return there

    def _make_room(self, problem: Problem, stores_scores: bool) -> None:
        """Lets go of everything where memory is short for a case: also of what torch's
        allocator holds, and of what is left in circles."""
        shapes = map(problem.shape, (*inputs.TENSORS, *problem.results))
        needed = NEEDED * sum(map(math.prod, shapes)) * int(DTYPES[problem.dtype].itemsize)
        if stores_scores:
            needed += 8 * problem.batch * problem.heads * problem.seq_q * problem.seq_k
        free, _ = torch.cuda.mem_get_info(self.device)
        idle = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        if free < needed <= free + idle:
            torch.cuda.empty_cache()
        elif free + idle < needed:
            self.free_memory()

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        found = super().profile(call, profiled)
        shown = self.library.rows[self.prepared().variant].effective_from_grid
        if effective := launches.effective_from_grid(found["launches"], shown):
            found["effective"] = effective
        calls, uncounted = functions.count_operators(call)
        found |= {"operators": calls} if calls else {}
        return found | {"uncounted": found.get("uncounted", {}) | uncounted}

    def release(self) -> None:
        """Drops the case; its memory is the next one's, and given back where that is short."""
        if self.case:
            self.case.settings.close()
        super().release()


def device_opened() -> TorchWorker:
    """Opens the device and the clock, and loads common kernels, for a worker that follows."""
    worker = TorchWorker(Library("device"))
    worker.versions()
    return worker


def named_results(problem: Problem, results: Results) -> Tensors:
    """The results by name. Raises Failed where one has another shape than the problem's."""
    named = dict(zip(problem.results, results, strict=False))
    for name, value in named.items():
        if tuple(value.shape) != problem.shape(name):
            raise Failed(f"{name} is {tuple(value.shape)}, not {problem.shape(name)}")
    return named


def _shortened(problem: Problem, result: torch.Tensor) -> Problem:
    return replace(problem, seq_q=result.shape[1], seq_k=result.shape[1])


def measure_on_cpu(
    call: Callable[[], Any],
    plan: timing.Plan,
    sets: Inputs,
    before: Callable[[], None] = lambda: None,
) -> Message:
    """Samples on the host; `before` precedes each, untimed."""
    flush = torch.ones(device.cpu_flush_bytes() if plan.cold else 0, dtype=torch.uint8)
    done = flush.bitwise_not_
    return timing.measure_wall(call, lambda results: None, plan, done, before=before, inputs=sets)


def copies(launch: Message) -> bool:
    """True if a kernel is one of torch's elementwise kernels that copy."""
    name = launch["name"].lower()
    return "copy" in name and "at::native" in name


def allocations(call: Callable[[], Any]) -> dict[str, int]:
    """Allocations of one call, and what it took beyond the results it returns."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    results = call()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats().get("allocation.all.allocated", 0)
    workspace = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
    del results
    return {"allocations": after - before, "workspace_bytes": workspace}
