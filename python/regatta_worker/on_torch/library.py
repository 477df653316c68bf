"""What every library on torch shares, so that a library's own file is about that library.

Inputs, the first call, the check against float64, clock and census are here. A library
says what it has (`variants`) and builds a call (`build`).
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import platform
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from regatta_worker import device
from regatta_worker.census.first_call import made
from regatta_worker.clock import timing
from regatta_worker.clock.peak import torch_peak
from regatta_worker.on_torch import operators
from regatta_worker.on_torch.case import DTYPES, Asked, Built, Call, PreparedCase, Results, Tensors
from regatta_worker.on_torch.case import Variant as Variant
from regatta_worker.on_torch.census import census, counted, recorded
from regatta_worker.on_torch.inputs import TorchInputSets
from regatta_worker.on_torch.kept import Kept, import_autograd
from regatta_worker.problem import inputs, planes
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import Inputs, seed_of
from regatta_worker.problem.reference import (
    Arrays,
    ReferenceCache,
    difference,
    difference_of_planes,
    probes,
)
from regatta_worker.protocol.channel import Failed, Lost, Message, Unsupported, required
from regatta_worker.protocol.refusals import absence, broke, refusal

Done = TypeVar("Done")


class TorchLibrary:
    """Holds at most one case, on a CUDA device (the first) or else on the CPU."""

    NAME = ""
    """As `--library` has it."""
    PACKAGES: tuple[str, ...] = ()
    """Distributions whose versions a reading depends on, beside torch; first its own."""
    REFUSALS: tuple[type[Exception], ...] = (RuntimeError,)
    """What the library raises for a case that it does not do."""

    def __init__(self, ordinal: int = 0) -> None:
        self._gpu = device.NvidiaDevice(ordinal) if torch.cuda.is_available() else None
        self._device = torch.device("cuda", ordinal) if self._gpu else torch.device("cpu")
        self._arrays = Arrays.of_torch(self._device)
        self._kept = Kept(self._device)
        self._references = ReferenceCache(self._arrays, near=self._kept.shelf)
        self._case: PreparedCase | None = None
        self._absent: str | None = None
        try:
            self.load()
        except Exception as error:
            traceback.print_exc()
            own = next(iter(self.PACKAGES), self.NAME)
            self._absent = absence(f"library {self.NAME}", error, own)

    def load(self) -> None:
        """Imports the library; where that fails its cases are unsupported, with the reason."""

    @classmethod
    def preload(cls) -> None:
        """Imports the library for workers that are forked later; where that fails, they say it."""
        import_autograd()
        with contextlib.suppress(Exception):
            cls.__new__(cls).load()

    def variants(self) -> dict[str, Variant]:
        """What the library has, whether or not it could be loaded."""
        raise NotImplementedError

    def build(self, asked: Asked) -> Built:
        """A call of this case; does what precedes the timed call, such as forward."""
        raise NotImplementedError

    def errors(self, problem: Problem, seed: int, tensors: Tensors, results: Results) -> Message:
        """How far each result of the first call is from float64, by name."""
        named = self._named(problem, results)
        exact = self._references.of(problem, seed, tensors)
        return {name: difference(self._arrays, value, exact[name]) for name, value in named.items()}

    def checked(self, problem: Problem, seed: int, results: Results) -> Message:
        """`errors` of the last timed call, over some planes and from inputs made anew, and
        `probes` of the whole; empty where these are not the problem's own results."""
        named = self._named(problem, results)
        return {
            "errors": self.errors_of_planes(problem, seed, planes.chosen(problem), named),
            "probes": {name: probes(value) for name, value in named.items()},
        }

    def errors_of_planes(
        self, problem: Problem, seed: int, chosen: tuple[planes.Plane, ...], named: Tensors
    ) -> Message:
        """How far these planes of results are from float64, by name."""
        dtype = DTYPES[problem.dtype]

        def make(name: str, plane: planes.Plane) -> torch.Tensor:
            return inputs.torch_part(problem, name, seed, plane, dtype, self._device)

        exact = self._references.planes(problem, seed, chosen, make)
        return {
            name: difference_of_planes(self._arrays, name, value, exact)
            for name, value in named.items()
        }

    def peak(self, dtypes: tuple[str, ...]) -> Message:
        """What the device reaches at the most."""
        return torch_peak(self._device, {dtype: DTYPES[dtype] for dtype in dtypes})

    def hello(self) -> Message:
        """Versions, device and variants; and why none can run, where the library is not there."""
        return {
            "worker": self.NAME,
            "versions": self.versions(),
            "device": self._describe_device(),
            "variants": [variant.wire(name) for name, variant in self.variants().items()],
        } | ({"absent": self._absent} if self._absent else {})

    def versions(self) -> dict[str, str]:
        """What a reading depends on."""
        found = {"torch": torch.__version__, "python": platform.python_version()}
        if self._gpu:
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["driver"] = self._gpu.driver()
            # Readings of different clocks are not to be compared.
            found["clock"] = timing.cuda_clock()
        for package in (*self.PACKAGES, "triton") if self._gpu else self.PACKAGES:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found[package] = importlib.metadata.version(package)
        return found

    def _describe_device(self) -> Message:
        if self._gpu is None:
            return device.cpu_device()
        told = torch.cuda.get_device_properties(self._device)
        facts = {"memory_bytes": told.total_memory, "facts": self._gpu.facts()}
        return {"kind": "cuda", "name": told.name} | facts

    def prepare(self, request: Message) -> Message:
        """Inputs, first call, and the check against float64 on the device."""
        self.release()
        return self._on_device(lambda: self._prepare(request))

    def _on_device(self, work: Callable[[], Done]) -> Done:
        """Runs it; where memory runs out, once more without what is kept, and then frees all
        there is, so that the next case has it.

        Raises Lost where something broke and the device does not answer any more.
        """
        for _ in range(2):
            try:
                return work()
            except torch.OutOfMemoryError as error:
                words = str(error)
            except Exception as error:
                if broke(error) and self._lost():
                    traceback.print_exc()
                    raise Lost(str(error).strip().partition("\n")[0]) from error
                raise
            # Out here the exception is gone, and with it the frames that held tensors.
            if not self._kept.clear():
                break
        self.release()
        self._kept.clear()
        raise Failed(f"out of memory: {words}")

    def _lost(self) -> bool:
        """Whether every call fails. The first may only report what has failed before it."""
        with contextlib.suppress(Exception):
            self._synchronize()
        try:
            self._synchronize()
        except Exception:
            return True
        return False

    def _asked(self, request: Message) -> tuple[str, dict[str, Any]]:
        """Name of the variant that is asked for, and its parameters."""
        name = required(request, "variant")
        variant = self.variants().get(name)
        if variant is None:
            raise Failed(f"library {self.NAME} has no variant `{name}`")
        return name, variant.taken(name, request.get("params", {}))

    def _prepare(self, request: Message) -> Message:
        problem = Problem.from_wire(required(request, "problem"))
        name, params = self._asked(request)
        seed = required(request, "seed")
        if self._absent:
            raise Unsupported(self._absent)
        if problem.has_backward:
            import_autograd()
        self._kept.make_room(problem, self.variants()[name].stores_scores)
        tensors = self._kept.working(problem, seed)
        built, settings, results, first = self._first_call(problem, name, params, tensors)
        sets = int(request.get("input_sets", 1))
        self._case = PreparedCase(problem, built, settings, tensors, seed=seed, sets=sets)

        named = self._named(problem, results)
        # What the call was given it may have written into. Detached, or the reference would
        # keep a graph of all its temporaries.
        given = self._kept.inputs(problem, seed) if self._kept.keeps(problem) else tensors
        given = {tensor: value.detach() for tensor, value in given.items()}
        prepared = {
            "errors": self.errors(problem, seed, given, results),
            "probes": {name: probes(value) for name, value in named.items()},
            "effective": built.effective,
            "tuned": list(built.tuned),
        } | first
        return prepared | ({"problems": built.problems} if built.problems > 1 else {})

    def _first_call(
        self, problem: Problem, variant: str, params: Mapping[str, Any], tensors: Tensors
    ) -> tuple[Built, contextlib.ExitStack, Results, Message]:
        """Builds the call and makes it once; its results, the time of that call and its parts.

        Settings such as a backend's selection hold for as long as the case lives: making
        them anew in each call would be counted as the host's time.
        """
        with contextlib.ExitStack() as settings, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                built = self.build(Asked(problem, variant, params, tensors, settings))
                self._poison(problem)
                self._synchronize()
                results, first = made(built.call, self._synchronize)
            except torch.OutOfMemoryError:
                raise
            except self.REFUSALS as error:
                raise refusal(error, [str(warning.message) for warning in said]) from error
            return built, settings.pop_all(), results, first

    def _named(self, problem: Problem, results: Results) -> Tensors:
        """The results of the problem itself, which come first, by name."""
        named = dict(zip(problem.results, results, strict=False))
        for name, value in named.items():
            if tuple(value.shape) != problem.shape(name):
                raise Failed(f"{name} is {tuple(value.shape)}, not {problem.shape(name)}")
        return named

    def _poison(self, problem: Problem) -> None:
        """Leaves NaN where the library is about to allocate its results.

        The library allocates them itself; but torch's allocator gives the block that fits
        best among those just freed, which are these.
        """
        if self._gpu:
            dtype = DTYPES[problem.dtype]
            blocks = [
                torch.full(problem.shape(name), torch.nan, dtype=dtype, device=self._device)
                for name in problem.results
            ]
            del blocks

    def _synchronize(self) -> None:
        if self._gpu:
            torch.cuda.synchronize()

    def measure(self, request: Message) -> Message:
        """Samples by the device's own events, or on a CPU by the monotonic clock."""
        case, plan = self._prepared(), timing.Plan.from_wire(request)
        if plan.graph and case.built.earlier_stream:
            raise Unsupported(
                "autograd runs backward on the stream of its forward call, which was made "
                "before the capture: no CUDA graph can hold it"
            )
        if plan.graph and case.built.varies:
            raise Unsupported(
                "a CUDA graph replays the lengths and plans of its capture, and each call is to "
                "make its own: measure with graph = false"
            )
        measured = self._on_device(lambda: self._measured(case, plan))
        case.timed = plan, bool(measured.get("synchronised"))
        return measured

    def _measured(self, case: PreparedCase, plan: timing.Plan) -> Message:
        """Samples, and what the last of them computed."""
        call, problem = case.built.call, case.problem
        if case.sets == 1:
            return self._timed(call, plan, Inputs())

        def kept(number: int) -> Tensors:
            return self._kept.inputs(problem, seed_of(case.seed, number))

        sets = TorchInputSets(
            case.tensors,
            case.seed,
            case.sets,
            inputs.torch_fill,
            case.built.refresh,
            case.numbers,
            case.place,
            made=kept if self._kept.keeps(problem, case.sets) else None,
        )
        try:
            measured = self._timed(call, plan, sets)
        finally:
            case.place = sets.number
            sets.forget()
        seed, results = seed_of(case.seed, sets.number), sets.kept.pop()
        checked = {"seed": seed, **self.checked(problem, seed, results)}
        return measured | sets.told() | {"checked": checked}

    def _timed(self, call: Call, plan: timing.Plan, sets: Inputs) -> Message:
        if gpu := self._gpu:
            sets.held_bytes += self._kept.held_bytes
            return timing.measure_cuda(call, plan, gpu, sets)
        size = device.cpu_flush_bytes() if plan.cold else 0
        flush = torch.ones(size, dtype=torch.uint8)
        return timing.measure_wall(
            call, lambda results: None, plan, flush.bitwise_not_, inputs=sets
        )

    def call(self) -> Any:
        """One call of the prepared case."""
        return self._on_device(self._prepared().built.call)

    def census(self) -> Message:
        """Kernels, copies and allocations of one call, unknown on a CPU; torch's operators."""
        call = self._prepared().built.call
        found: Message = {"launches": [], "counts": {}}
        if self._gpu is not None:
            found = self._on_device(lambda: census(call))
        return found | self._on_device(lambda: operators.told(call))

    def recorded(self) -> list[Message]:
        """Calls recorded as the last samples were taken; none where nothing can be recorded."""
        case = self._prepared()
        if self._gpu is None or (timed := case.timed) is None:
            return []
        return self._on_device(lambda: recorded(case.built.call, *timed))

    def counted(self, metrics: Sequence[str]) -> list[Message]:
        """Hardware counters of the kernels of some calls."""
        call = self._prepared().built.call
        return self._on_device(lambda: counted(call, self._gpu is not None, metrics))

    def release(self) -> None:
        """Drops the case; its memory is the next one's, and given back where that is short."""
        if self._case:
            self._case.settings.close()
        self._case = None
        # Circles hold tensors; what was imported is frozen, so there is little to look at.
        gc.collect()

    def _prepared(self) -> PreparedCase:
        if self._case is None:
            raise Failed("no case is prepared")
        return self._case
