"""Library `jax`: `jax.nn.dot_product_attention` compiled by XLA or given to cuDNN."""

from __future__ import annotations

import os

# Read when the backend starts: without it JAX takes three quarters of the GPU at once,
# and nothing else can be measured beside it.
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from regatta_worker import device, on_jax
from regatta_worker.case import Case, CaseType, CaseWorker, Request
from regatta_worker.census import launches
from regatta_worker.clock import timing
from regatta_worker.clock.peak import jax_peak
from regatta_worker.on_jax import ByName, refill
from regatta_worker.problem.arrays import Arrays
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import Inputs, InputSets, seed_of
from regatta_worker.problem.variant import HALVES, Variant
from regatta_worker.protocol.channel import Message, Unsupported
from regatta_worker.protocol.refusals import refusal

DTYPES = {"f32": np.float32, "f16": np.float16, "bf16": jnp.bfloat16}


class OnJax(CaseWorker[CaseType]):
    """Common to the workers on JAX: compiled calls on the first device that it sees."""

    packages = (
        *("jax", "jaxlib", "numpy"),
        *("jax-cuda12-plugin", "jax-cuda13-plugin", "nvidia-cudnn-cu12", "nvidia-cudnn-cu13"),
    )

    def __init__(self) -> None:
        self.device = jax.devices()[0]
        gpu = device.NvidiaDevice() if self.device.platform == "gpu" else None
        super().__init__(Arrays.for_numpy(), gpu)
        self.clock = on_jax.open_clock(self.device) if gpu else None

    def compiled(self, case: CaseType) -> Any:
        """The computation that a call of the case runs."""
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        found = super().versions()
        if self.gpu:
            # Readings of different clocks are not to be compared.
            found["clock"] = f"probe {self.clock.version}" if self.clock else "wall"
        return found

    def gpu_device(self) -> Message:
        limit = (self.device.memory_stats() or {}).get("bytes_limit", 0)
        return {"name": self.device.device_kind, "memory_bytes": limit}

    def peak(self, dtypes: tuple[str, ...]) -> Message:
        return jax_peak({dtype: DTYPES[dtype] for dtype in dtypes}, on_gpu=self.gpu is not None)

    def compile(
        self, function: Callable[..., Any], arguments: Sequence[Any]
    ) -> tuple[Any, dict[str, int]]:
        """The call for such arguments, compiled, and the nanoseconds that each part took."""
        begin = time.perf_counter_ns()
        lowered = self.jitted(function).lower(*arguments)
        traced = time.perf_counter_ns()
        compiled = lowered.compile()
        return compiled, {"tracing": traced - begin, "compiling": time.perf_counter_ns() - traced}

    def first_call(
        self, compiled: Any, arguments: Sequence[Any], parts: Mapping[str, int]
    ) -> tuple[Any, Message]:
        """The results of a call, and the members of `prepared` about it and its compilation."""
        begin = time.perf_counter_ns()
        results = jax.block_until_ready(compiled(*arguments))
        total = time.perf_counter_ns() - begin + sum(parts.values())
        return results, {
            "first_call_ns": float(total),
            "first_call_parts": {n: {"ns": float(ns), "count": 1} for n, ns in parts.items()},
        }

    def jitted(self, function: Callable[..., Any]) -> Any:
        """Jitted, and as the clock needs it. What is checked is what is timed."""
        return jax.jit(on_jax.marked(function) if self.clock else function)

    def timed(self, case: CaseType, plan: timing.Plan, sets: Inputs) -> Message:
        """Samples on a blocked stream, or else by the wall: `timing.measure_wall`."""
        measured = None
        if self.clock and self.gpu:
            measured = on_jax.measure(case.call, plan, self.clock, self.gpu, sets)
        if measured is None:
            flush = self._flush() if plan.cold else lambda: None
            host = on_jax.host_reference() if self.gpu else None
            measured = timing.measure_wall(
                case.call, self.wait, plan, flush, gpu=self.gpu, inputs=sets, host=host
            )
            if self.clock:
                print("the call waits for the device: timed by the wall, not on a blocked stream")
                measured["synchronised"] = True
        if memory := self.compiled(case).memory_analysis():
            measured["peak_bytes"] = (
                memory.argument_size_in_bytes
                + memory.output_size_in_bytes
                + memory.temp_size_in_bytes
            )
        return measured

    def _flush(self) -> Callable[[], Any]:
        """Reads, inverts and writes a buffer larger than the last-level cache."""
        if self.gpu is None:
            host = np.ones(device.cpu_flush_bytes(), dtype=np.uint8)
            return lambda: np.invert(host, out=host)
        buffer = [jnp.arange(timing.flush_bytes(self.gpu.l2_bytes()), dtype=jnp.uint8)]
        invert = jax.jit(jnp.invert, donate_argnums=0)

        def flush() -> None:
            buffer[0] = jax.block_until_ready(invert(buffer[0]))

        return flush

    def wait(self, results: Any = None) -> None:
        """Until these results are there; or, of none, until a copy to the device is."""
        if results is None:
            results = jax.device_put(np.zeros(1), self.device)
        jax.block_until_ready(results)

    def no_memory(self, error: Exception) -> bool:
        return "RESOURCE_EXHAUSTED" in str(error)

    def call(self) -> Any:
        """One call of the prepared case, and its end: calls must not pile up on the device."""
        return jax.block_until_ready(super().call())

    def profile(self, call: Callable[[], Any], profiled: Message) -> Message:
        """Adds what the compiler planned to allocate beside the results."""
        if memory := self.compiled(self.prepared()).memory_analysis():
            profiled["counts"]["workspace_bytes"] = memory.temp_size_in_bytes
        return profiled

    def recordings(self, case: CaseType) -> list[Message]:
        """Calls recorded one after the other: XLA launches in its own time."""

        def sample(timed: Callable[[], Any]) -> None:
            jax.block_until_ready(timed())

        return launches.record_samples(
            lambda: jax.block_until_ready(case.call()), sample, waits=True
        )

    def release(self) -> None:
        self.case = None
        jax.clear_caches()
        super().release()


Function = Callable[..., Any]
"""On tensors in the caller's layout."""


@dataclass(kw_only=True)
class _Case(Case):
    """A prepared case: the compiled call and what it is called with."""

    problem: Problem
    compiled: Any
    arguments: tuple[Any, ...]
    arrays: ByName
    """The inputs that the arguments are, or were made of."""
    arranged: Callable[[ByName], tuple[Any, ...]]
    """The arguments of inputs: for backward, forward is run."""

    def call(self) -> Any:
        return self.compiled(*self.arguments)

    def put(self, number: int) -> None:
        """Another set for the one before, in its memory where the backend lets it."""
        # First what was made of the old inputs, which would keep them alive.
        self.arguments = ()
        self.arrays = refill(self.problem, self.arrays, seed_of(self.seed, number))
        self.arguments = jax.block_until_ready(self.arranged(self.arrays))


class JaxWorker(OnJax[_Case]):
    """Compiled cases on the first device that JAX sees."""

    NAME = "jax"
    DTYPES = DTYPES
    REFUSALS: tuple[type[Exception], ...] = (ValueError, NotImplementedError, RuntimeError)
    """The exceptions for a case that a variant does not support."""

    def variants(self) -> dict[str, Variant]:
        return {
            "xla": Variant(
                "jax.nn.dot_product_attention as XLA compiles it",
                dtypes=tuple(DTYPES),
                stores_scores=True,
                # XLA's default precision for float32 products on Ampere and later.
                tf32=self.gpu is not None,
            ),
            "cudnn": Variant(
                "jax.nn.dot_product_attention given to cuDNN's fused attention", dtypes=HALVES
            ),
        }

    def attend(
        self, problem: Problem, variant: str, params: Mapping[str, Any]
    ) -> tuple[Function, Function | None]:
        """`out` of `q, k, v`; and all results of the direction of `dout, q, k, v`, or None: JAX
        differentiates the first.

        The library takes BTNH alone. A BHSD caller's tensors are transposed inside the
        compiled function: that is JAX's way, and XLA decides whether it costs a copy.
        """
        if problem.varlen:
            raise Unsupported(
                "jax.nn.dot_product_attention takes padded sequences with their lengths; "
                "it has no packed ragged batch"
            )
        masking, transposed = _mask_arguments(problem), problem.layout == "bhsd"

        def attend(*tensors: Any) -> Any:
            if transposed:
                tensors = tuple(jnp.swapaxes(tensor, 1, 2) for tensor in tensors)
            out = jax.nn.dot_product_attention(*tensors, implementation=variant, **masking)
            return jnp.swapaxes(out, 1, 2) if transposed else out

        return attend, None

    def build(self, request: Request) -> tuple[_Case, Any, Message]:
        """Compiles the call and makes it once, which is timed together.

        JAX allocates its own results, so they cannot be poisoned beforehand.
        """
        problem = request.problem
        attend = self.attend(problem, request.variant, request.params)
        # On the device, in the order in memory that the caller holds.
        arrays = {
            name: jax.device_put(problem.turned(array), self.device)
            for name, array in self.inputs(problem, request.seed).items()
        }
        function, arranged = self._function(problem, *attend)
        try:
            arguments = jax.block_until_ready(arranged(arrays))
            compiled, parts = self.compile(function, arguments)
        except Exception as error:
            if isinstance(error, self.REFUSALS) and not self.no_memory(error):
                raise refusal(error, []) from error
            raise
        results, about = self.first_call(compiled, arguments, parts)
        case = _Case(
            problem=problem,
            compiled=compiled,
            arguments=arguments,
            arrays=arrays,
            arranged=arranged,
            **request.inputs,
        )
        return case, results, about

    def _function(
        self, problem: Problem, forward: Function, results: Function | None
    ) -> tuple[Any, Callable[[ByName], tuple[Any, ...]]]:
        """The call, to be compiled, and its arguments of inputs."""
        if problem.direction == "forward":
            return lambda *qkv: (forward(*qkv),), _qkv
        if results is None and problem.direction == "backward":
            # One compiled function, which gives the same structure each time: what forward saved
            # travels as the leaves of the pulled-back function.
            pulled_back = jax.jit(lambda *qkv: jax.vjp(forward, *qkv)[1])
            return lambda pull_back, dout: pull_back(dout), lambda arrays: (
                pulled_back(*_qkv(arrays)),
                arrays["dout"],
            )

        def both(dout: Any, *qkv: Any) -> tuple[Any, ...]:
            out, pull_back = jax.vjp(forward, *qkv)
            return (out, *pull_back(dout))

        return results or both, lambda arrays: (arrays["dout"], *_qkv(arrays))

    def compiled(self, case: _Case) -> Any:
        return case.compiled

    def named(self, case: _Case, results: Any) -> dict[str, np.ndarray]:
        pairs = zip(case.problem.results, results, strict=True)
        return {name: case.problem.turned(np.asarray(value)) for name, value in pairs}

    def input_sets(self, case: _Case) -> InputSets:
        return InputSets(case, case.put, self.no_memory)

    def turner(self, case: _Case) -> Callable[[], None]:
        if self.gpu is not None:
            return super().turner(case)

        def turn() -> None:
            case.arguments = ()
            case.arrays = on_jax.turned(case.arrays)
            case.arguments = jax.block_until_ready(case.arranged(case.arrays))

        return turn

    def touch(self, value: Any) -> None:
        super().touch(np.asarray(value))

    def in_place(self, case: _Case) -> dict[str, Any]:
        turned = case.problem.turned
        return {name: turned(np.asarray(array)) for name, array in case.arrays.items()}


def _mask_arguments(problem: Problem) -> dict[str, Any]:
    """The arguments of `dot_product_attention` for the mask.

    Its `is_causal` and `local_window_size` are aligned top-left (`jnp.tril` and
    `query <= key + left` in jax/_src/nn/functions.py); the other alignment has to be
    an explicit boolean mask, unless both mean the same.
    """
    mask, seq_q, seq_k = problem.mask, problem.seq_q, problem.seq_k
    if mask.is_full:
        return {}
    if problem.has_blind_query:
        raise Unsupported(
            "jax.nn.dot_product_attention gives a query that sees no key the mean of all "
            "values, not 0, and this mask leaves such queries"
        )
    if mask.align == "top-left" or problem.is_square:
        if mask.is_causal:
            return {"is_causal": True}
        unbounded = max(seq_q, seq_k)
        window = tuple(unbounded if side is None else side for side in (mask.left, mask.right))
        return {"is_causal": mask.right == 0, "local_window_size": window}
    rows, columns = np.arange(seq_q)[:, None], np.arange(seq_k)[None, :]
    visible = mask.visible(rows, columns, mask.offset(seq_q, seq_k))
    return {"mask": jnp.asarray(visible[None, None])}


def _qkv(arrays: ByName) -> tuple[Any, ...]:
    return arrays["q"], arrays["k"], arrays["v"]


WORKER = JaxWorker
