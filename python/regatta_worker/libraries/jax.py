"""Library `jax`: `jax.nn.dot_product_attention` compiled by XLA or handed to cuDNN."""

from __future__ import annotations

import os

# Read when the backend starts: without it JAX takes three quarters of the GPU at once,
# and nothing else can be measured beside it.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import gc
import importlib.metadata
import platform
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from regatta_worker import device
from regatta_worker.census import instructions
from regatta_worker.census.launches import CensusError, of_call, of_samples
from regatta_worker.clock import timing
from regatta_worker.clock.peak import jax_peak
from regatta_worker.on_jax import clock as jax_clock
from regatta_worker.on_jax.attention import Attend, attention, with_gradients
from regatta_worker.on_jax.inputs import Held, refill
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
from regatta_worker.problem.variant import HALVES, Variant
from regatta_worker.protocol.channel import Failed, Message, Unsupported, required
from regatta_worker.protocol.refusals import refusal

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": jnp.bfloat16}

PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
"""Packages beside jaxlib that decide its speed on a GPU."""


@dataclass
class _Case(CaseInputs):
    """A prepared case: the compiled call and what it is called with."""

    problem: Problem
    compiled: Any
    arguments: tuple[Any, ...]
    held: Held
    """The inputs that the arguments are, or were made of."""
    arranged: Callable[[Held], tuple[Any, ...]]
    """The arguments of inputs: for backward, forward is run."""

    def call(self) -> Any:
        return self.compiled(*self.arguments)

    def put(self, number: int) -> None:
        """Another set for the one before, in its memory where the backend lets it."""
        # First what was made of the old inputs, which would hold on to them.
        self.arguments = ()
        self.held = refill(self.problem, self.held, seed_of(self.seed, number))
        self.arguments = jax.block_until_ready(self.arranged(self.held))

    def results(self, values: Any) -> dict[str, np.ndarray]:
        """What a call gave, by name, in logical order on the host."""
        logical = {}
        for name, value in zip(self.problem.results, values, strict=True):
            array = np.asarray(value)
            logical[name] = array.swapaxes(1, 2) if self.problem.layout == "bhsd" else array
        return logical


def _versions() -> dict[str, str]:
    found = {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    for package in PLUGINS:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class JaxWorker:
    """Holds at most one compiled case, on the first device that JAX sees."""

    NAME = "jax"
    REFUSALS: tuple[type[Exception], ...] = (ValueError, NotImplementedError, RuntimeError)
    """What is raised for a case that a variant does not do."""

    def __init__(self) -> None:
        self._device = jax.devices()[0]
        self._gpu = device.NvidiaDevice() if self._device.platform == "gpu" else None
        self._arrays = Arrays.of_numpy()
        self._references = ReferenceCache(self._arrays)
        self._case: _Case | None = None
        self._clock = jax_clock.of_device(self._device) if self._gpu else None

    def hello(self) -> Message:
        """Versions, device and variants."""
        return {
            "worker": self.NAME,
            "versions": _versions() | self._device_versions(),
            "device": self._describe_device(),
            "variants": [variant.wire(name) for name, variant in self.variants().items()],
        }

    def variants(self) -> dict[str, Variant]:
        """XLA's own attention, and cuDNN's."""
        return {
            "xla": Variant(
                "jax.nn.dot_product_attention as XLA compiles it",
                dtypes=tuple(DTYPES),
                stores_scores=True,
                # XLA's default precision for float32 products on Ampere and later.
                tf32=self._gpu is not None,
            ),
            "cudnn": Variant(
                "jax.nn.dot_product_attention handed to cuDNN's fused attention", dtypes=HALVES
            ),
        }

    def attend(self, problem: Problem, variant: str, params: Mapping[str, Any]) -> Attend:
        """How a case is computed, on tensors in the caller's layout."""
        if problem.varlen:
            raise Unsupported(
                "jax.nn.dot_product_attention takes padded sequences with their lengths; "
                "it has no packed ragged batch"
            )
        return Attend(attention(problem, variant))

    def _device_versions(self) -> dict[str, str]:
        if self._gpu is None:
            return {}
        # Readings of different clocks are not to be compared.
        clock = f"probe {self._clock.version}" if self._clock else "wall"
        return {"driver": self._gpu.driver(), "clock": clock}

    def _describe_device(self) -> Message:
        if self._gpu is None:
            return device.cpu_device()
        return {
            "kind": "cuda",
            "name": self._device.device_kind,
            "memory_bytes": (self._device.memory_stats() or {}).get("bytes_limit", 0),
            "facts": self._gpu.facts(),
        }

    def prepare(self, request: Message) -> Message:
        """Inputs, compilation and first call, and the check against float64."""
        self.release()
        problem = Problem.from_wire(required(request, "problem"))
        variant, seed = required(request, "variant"), required(request, "seed")
        if variant not in (variants := self.variants()):
            raise Failed(f"library {self.NAME} has no variant `{variant}`")
        params = variants[variant].taken(variant, request.get("params", {}))
        attend = self.attend(problem, variant, params)
        host = {
            name: inputs.numpy_input(problem, name, seed, DTYPES[problem.dtype])
            for name in (inputs.TENSORS if problem.has_backward else ("q", "k", "v"))
        }
        results, first = self._first_call(problem, attend, host)
        self._prepared().seed = seed
        self._prepared().sets = int(request.get("input_sets", 1))
        exact = self._references.of(problem, seed, host)
        return {"effective": {}} | compared(self._arrays, results, exact) | first

    def _first_call(
        self, problem: Problem, attend: Attend, host: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], Message]:
        """Compiles and calls once; results in logical order on the host, and what all took.

        JAX allocates its own results, so they cannot be poisoned beforehand.
        """
        held = {name: self._put(problem, value) for name, value in host.items()}
        forward, results_of = attend.forward, attend.results
        if problem.direction == "forward":
            function = self._timed(lambda *qkv: (forward(*qkv),))
        elif results_of is not None:
            function = self._timed(lambda dout, *qkv: results_of(*qkv, dout))
        elif problem.direction == "both":
            function = self._timed(lambda dout, *qkv: with_gradients(forward, qkv, dout))
        else:
            function = self._timed(lambda pull_back, dout: pull_back(dout))
            # One compiled function, which gives the same structure each time.
            pulled_back = jax.jit(lambda *qkv: jax.vjp(forward, *qkv)[1])

        def arranged(held: Held) -> tuple[Any, ...]:
            qkv = (held["q"], held["k"], held["v"])
            if problem.direction == "forward":
                return qkv
            if problem.direction == "both" or results_of is not None:
                return (held["dout"], *qkv)
            # What forward saved travels as the leaves of the pulled-back function.
            return (pulled_back(*qkv), held["dout"])

        try:
            arguments = jax.block_until_ready(arranged(held))
            begin = time.perf_counter_ns()
            lowered = function.lower(*arguments)
            traced = time.perf_counter_ns()
            compiled = lowered.compile()
            made = time.perf_counter_ns()
        except Exception as error:
            if _no_memory(error):
                raise Failed(str(error).strip()) from error
            if isinstance(error, self.REFUSALS):
                raise refusal(error, []) from error
            raise
        results = jax.block_until_ready(compiled(*arguments))
        end = time.perf_counter_ns()
        first = {
            "first_call_ns": float(end - begin),
            "first_call_parts": {
                "tracing": {"ns": float(traced - begin), "count": 1},
                "compiling": {"ns": float(made - traced), "count": 1},
            },
        }
        case = _Case(problem, compiled, arguments, held, arranged)
        self._case = case
        return case.results(results), first

    def _timed(self, function: Callable[..., Any]) -> Any:
        """Jitted, and as the clock needs it. What is checked is what is timed."""
        return jax.jit(jax_clock.marked(function) if self._clock else function)

    def _put(self, problem: Problem, logical: np.ndarray) -> Any:
        """On the device, in the order in memory that the caller holds."""
        if problem.layout == "bhsd":
            logical = np.ascontiguousarray(logical.swapaxes(1, 2))
        return jax.device_put(logical, self._device)

    def measure(self, request: Message) -> Message:
        """Samples behind the gate, or else by the wall: `timing.measure_wall`."""
        case, plan = self._prepared(), timing.Plan.from_wire(request)
        if case.sets == 1:
            return self._timed_case(case, plan, Inputs())
        sets = InputSets(case.sets, case.numbers, case.put, _no_memory, case.place)
        try:
            measured = self._timed_case(case, plan, sets)
        finally:
            case.place = sets.number
        return measured | sets.told() | {"checked": self._checked(case, sets)}

    def peak(self, dtypes: tuple[str, ...]) -> Message:
        """What the device reaches at the most."""
        known = {dtype: DTYPES[dtype] for dtype in dtypes}
        return jax_peak(known, on_gpu=self._gpu is not None)

    def _checked(self, case: _Case, sets: InputSets) -> Message:
        """What the last timed call computed: some planes held to float64, of inputs made anew,
        and no element that is not finite."""
        problem, seed = case.problem, seed_of(case.seed, sets.number)

        def make(name: str, plane: Plane) -> np.ndarray:
            return inputs.numpy_part(problem, name, seed, plane, DTYPES[problem.dtype])

        results = case.results(sets.kept.pop())
        return checked(self._arrays, self._references, problem, seed, results, make)

    def _timed_case(self, case: _Case, plan: timing.Plan, sets: Inputs) -> Message:
        measured = None
        if self._clock and self._gpu:
            measured = jax_clock.measure(case.call, plan, self._clock, self._gpu, sets)
        if measured is None:
            flush = self._flush() if plan.cold else lambda: None
            wait = jax.block_until_ready
            host = jax_clock.host_reference() if self._gpu else None
            measured = timing.measure_wall(
                case.call, wait, plan, flush, gpu=self._gpu, inputs=sets, host=host
            )
            if self._clock:
                print("the call waits for the device: timed by the wall, not behind the gate")
                measured["synchronised"] = True
        if memory := case.compiled.memory_analysis():
            measured["peak_bytes"] = (
                memory.argument_size_in_bytes
                + memory.output_size_in_bytes
                + memory.temp_size_in_bytes
            )
        return measured

    def _flush(self) -> Callable[[], Any]:
        """Reads, inverts and writes a buffer larger than the last-level cache."""
        if self._gpu is None:
            host = np.ones(device.cpu_flush_bytes(), dtype=np.uint8)
            return lambda: np.invert(host, out=host)
        size = timing.flush_bytes(self._gpu.l2_bytes())
        held = [jnp.arange(size, dtype=jnp.uint8)]
        invert = jax.jit(jnp.invert, donate_argnums=0)

        def flush() -> None:
            held[0] = jax.block_until_ready(invert(held[0]))

        return flush

    def call(self) -> Any:
        """One call of the prepared case, and its end: calls must not pile up on the device."""
        return jax.block_until_ready(self._prepared().call())

    def census(self) -> Message:
        """What runs on the device, and what the compiler planned to allocate beside the results."""
        case = self._prepared()
        found: Message = {"launches": [], "counts": {}}
        if self._gpu:
            try:
                found = of_call(case.call, jax.block_until_ready)
            except (CensusError, OSError):
                # Into the worker's log: the case is none the worse for it.
                traceback.print_exc()
        if memory := case.compiled.memory_analysis():
            found["counts"]["workspace_bytes"] = memory.temp_size_in_bytes
        return found

    def recorded(self) -> list[Message]:
        """Calls recorded one after the other: XLA launches in its own time, behind no gate."""
        case = self._prepared()
        if self._gpu is None:
            return []

        def sample(timed: Callable[[], Any]) -> None:
            jax.block_until_ready(timed())

        try:
            return of_samples(lambda: jax.block_until_ready(case.call()), sample, waits=True)
        except (CensusError, OSError):
            # Into the worker's log: the case is none the worse for it.
            traceback.print_exc()
            return []

    def counted(self, metrics: Sequence[str]) -> list[Message]:
        """Hardware counters of the kernels of some calls."""
        if self._gpu is None:
            raise Unsupported("hardware counters are a GPU's, and this device is none")
        return instructions.of_calls(self._prepared().call, jax.block_until_ready, metrics)

    def release(self) -> None:
        """Drops the case with its buffers and its compiled code."""
        self._case = None
        jax.clear_caches()
        gc.collect()

    def _prepared(self) -> _Case:
        if self._case is None:
            raise Failed("no case is prepared")
        return self._case


def _no_memory(error: Exception) -> bool:
    return "RESOURCE_EXHAUSTED" in str(error)


WORKER = JaxWorker
