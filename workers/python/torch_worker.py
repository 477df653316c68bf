"""Library `torch`: SDPA with each of its backends, and the memory-efficient ops called directly."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel

import device
import inputs
import timing
from channel import Failed, Message, Unsupported, required
from cutlass_splits import effective_splits
from problem import DIRECTIONS, Problem
from reference import Arrays, ReferenceCache, difference, probes
from torch_census import census
from torch_variants import SDPA_BACKENDS, Access, Call, build_efficient, build_sdpa

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}

SUMMARIES = {
    "sdpa-math": "scaled_dot_product_attention, unfused",
    "sdpa-flash": "scaled_dot_product_attention, FlashAttention 2",
    "sdpa-efficient": "scaled_dot_product_attention, memory-efficient (CUTLASS)",
    "sdpa-cudnn": "scaled_dot_product_attention, cuDNN",
    "efficient": "aten::_efficient_attention_forward and _backward called directly",
}

HALF_ONLY = ("sdpa-flash", "sdpa-cudnn")
"""Variants without a float32 kernel on a GPU."""

NO_REFUSAL = ("cuda error", "cublas", "cudnn_status_execution_failed", "internal assert")
"""Words in a RuntimeError by which something broke; any other is a check the case did not pass."""


@dataclass(frozen=True)
class _Case:
    """A prepared case: the call, and what must stay as it is while the call is made."""

    problem: Problem
    call: Call
    settings: contextlib.ExitStack
    earlier_stream: bool
    """The call takes the stream of an earlier one: backward through autograd, of forward."""


class TorchWorker:
    """Holds at most one case, on the first CUDA device or else on the CPU."""

    def __init__(self) -> None:
        self._gpu = device.NvidiaDevice() if torch.cuda.is_available() else None
        self._device = torch.device("cuda", 0) if self._gpu else torch.device("cpu")
        self._arrays = Arrays.of_torch(self._device)
        self._references = ReferenceCache(self._arrays)
        self._case: _Case | None = None

    def hello(self) -> Message:
        """Versions, device and variants."""
        return {
            "worker": "torch",
            "versions": self._versions(),
            "device": self._describe_device(),
            "variants": [self._describe(name) for name in SUMMARIES],
        }

    def _versions(self) -> dict[str, str]:
        found = {"torch": torch.__version__, "python": platform.python_version()}
        if self._gpu:
            found["cuda"] = str(torch.version.cuda)
            found["cudnn"] = str(torch.backends.cudnn.version())
            found["driver"] = self._gpu.driver()
            # Readings of different clocks are not to be compared.
            found["clock"] = timing.cuda_clock()
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                found["triton"] = importlib.metadata.version("triton")
        return found

    def _describe_device(self) -> Message:
        if self._gpu is None:
            return device.cpu_device()
        properties = torch.cuda.get_device_properties(self._device)
        return {
            "kind": "cuda",
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "facts": self._gpu.facts(),
        }

    def _describe(self, name: str) -> Message:
        half_only = self._gpu and name in HALF_ONLY
        parameters: dict[str, Any] = {"access": ["views", "copies"]}
        if name == "efficient":
            parameters["num_splits_key"] = "integer"
        rounds = torch.backends.cuda.matmul.allow_tf32 and self._gpu is not None
        return {
            "name": name,
            "summary": SUMMARIES[name],
            "dtypes": ["f16", "bf16"] if half_only else list(DTYPES),
            "directions": list(DIRECTIONS),
            "parameters": parameters,
            "stores_scores": name == "sdpa-math",
            # The CUTLASS kernels split each float32 product into three of TF32 and keep
            # float32's accuracy; the unfused path obeys torch's switch.
            "tf32": rounds and name == "sdpa-math",
        }

    def prepare(self, request: Message) -> Message:
        """Inputs, first call, and the check against float64 on the device."""
        self.release()
        return self._within_memory(lambda: self._prepare(request))

    def _within_memory(self, work: Callable[[], Message]) -> Message:
        """Runs it; where memory runs out, frees all there is, so that the next case has it."""
        try:
            return work()
        except torch.OutOfMemoryError as error:
            words = str(error)
        # Out here the exception is gone, and with it the frames that held tensors.
        self.release()
        raise Failed(f"out of memory: {words}")

    def _prepare(self, request: Message) -> Message:
        problem = Problem.from_wire(required(request, "problem"))
        variant, seed = required(request, "variant"), required(request, "seed")
        if variant not in SUMMARIES:
            raise Failed(f"library torch has no variant `{variant}`")
        access, num_splits_key = _parameters(variant, request.get("params", {}))
        tensors = {
            name: inputs.torch_input(problem, name, seed, DTYPES[problem.dtype], self._device)
            for name in (inputs.TENSORS if problem.has_backward else ("q", "k", "v"))
        }
        reader = Access(problem, copies=access == "copies")
        results, first_call_ns = self._first_call(problem, variant, tensors, reader, num_splits_key)
        effective: Message = {"access": access}
        splits = self._effective_splits(problem, variant, num_splits_key)
        if splits is not None:
            effective["num_splits_key"] = splits
        # Detached, or the reference would keep a graph of all its temporaries.
        values = {name: tensor.detach() for name, tensor in tensors.items()}
        exact = self._references.of(problem, seed, values)
        return {
            "effective": effective,
            "errors": {
                name: difference(self._arrays, value, exact[name])
                for name, value in results.items()
            },
            "probes": {name: probes(value) for name, value in results.items()},
            "first_call_ns": first_call_ns,
        }

    def _first_call(
        self,
        problem: Problem,
        variant: str,
        tensors: dict[str, torch.Tensor],
        access: Access,
        num_splits_key: int | None,
    ) -> tuple[dict[str, torch.Tensor], float]:
        """Builds the call and makes it once; its results, and the time of that call.

        The backend is selected for as long as the case lives: selecting it anew in each
        call would be counted as the host's time.
        """
        with contextlib.ExitStack() as settings, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                if variant in SDPA_BACKENDS:
                    settings.enter_context(sdpa_kernel(SDPA_BACKENDS[variant]))
                    call = build_sdpa(problem, tensors, access)
                else:
                    call = build_efficient(problem, tensors, access, num_splits_key)
                self._poison(problem)
                self._synchronize()
                begin = time.perf_counter_ns()
                results = call()
                self._synchronize()
                first_call_ns = float(time.perf_counter_ns() - begin)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                raise _refusal(error, [str(warning.message) for warning in said]) from error
            autograd = variant in SDPA_BACKENDS and problem.direction == "backward"
            self._case = _Case(problem, call, settings.pop_all(), earlier_stream=autograd)
        return dict(zip(problem.results, results, strict=True)), first_call_ns

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

    def _effective_splits(
        self, problem: Problem, variant: str, requested: int | None
    ) -> int | None:
        if variant != "efficient" or not problem.has_backward or not self._gpu:
            return None
        properties = torch.cuda.get_device_properties(self._device)
        return effective_splits(
            problem,
            requested,
            (properties.major, properties.minor),
            properties.shared_memory_per_block_optin,
            torch.are_deterministic_algorithms_enabled()
            and not torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    def _synchronize(self) -> None:
        if self._gpu:
            torch.cuda.synchronize()

    def measure(self, request: Message) -> Message:
        """Samples by the device's own events, or on a CPU by the monotonic clock."""
        case, plan = self._prepared(), timing.Plan.from_wire(request)
        if plan.graph and case.earlier_stream:
            raise Unsupported(
                "autograd runs backward on the stream of its forward call, which was made "
                "before the capture: no CUDA graph can hold it"
            )
        if gpu := self._gpu:
            return self._within_memory(lambda: timing.measure_cuda(case.call, plan, gpu))
        size = 2 * device.cpu_cache_bytes() if plan.cold else 0
        flush = torch.ones(size, dtype=torch.uint8)
        return timing.measure_wall(case.call, lambda results: None, plan, flush.bitwise_not_)

    def call(self) -> Any:
        """One call of the prepared case."""
        return self._prepared().call()

    def census(self) -> Message:
        """Kernels, copies and allocations of one call; nothing is known on a CPU."""
        case = self._prepared()
        if self._gpu is None:
            return {"launches": [], "counts": {}}
        return self._within_memory(lambda: census(case.call))

    def release(self) -> None:
        """Drops the case and gives its memory back to the device."""
        if self._case:
            self._case.settings.close()
        self._case = None
        gc.collect()
        if self._gpu:
            torch.cuda.empty_cache()

    def _prepared(self) -> _Case:
        if self._case is None:
            raise Failed("no case is prepared")
        return self._case


def _parameters(variant: str, params: Message) -> tuple[str, int | None]:
    """`access` and `num_splits_key`; None is the implementation's own choice."""
    given = {name: value for name, value in params.items() if value != "auto"}
    access = given.pop("access", "views")
    num_splits_key = given.pop("num_splits_key", None) if variant == "efficient" else None
    if given:
        raise Failed(f"variant `{variant}` has no parameter `{next(iter(given))}`")
    if access not in ("views", "copies"):
        raise Failed(f"parameter access={access!r} is neither `views` nor `copies`")
    if not isinstance(num_splits_key, (int, type(None))) or isinstance(num_splits_key, bool):
        raise Failed(f"parameter num_splits_key={num_splits_key!r} is no integer")
    return access, num_splits_key


def _refusal(error: RuntimeError, said: list[str]) -> Exception:
    """The library's refusal in its own words: SDPA gives its reasons as warnings.

    Only the first paragraph of the words: the dispatcher adds a page of backends.
    """
    words = str(error).strip()
    if any(sign in words.lower() for sign in NO_REFUSAL):
        return error
    reasons = [text.partition(" (Triggered internally")[0].strip() for text in said]
    return Unsupported(" ".join([words.split("\n\n")[0], *reasons]))
