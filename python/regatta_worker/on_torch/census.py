"""What one call does to a GPU, as CUPTI and torch's allocator tell it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from regatta_worker.census.instructions import of_calls
from regatta_worker.census.launches import CensusError, of_call, of_samples
from regatta_worker.clock.timing import Plan, gated_clock
from regatta_worker.protocol.channel import Unsupported


def census(call: Callable[[], Any]) -> dict[str, Any]:
    """`launches`, `counts` and `activity` of one call, apart from any timing."""
    torch.cuda.synchronize()
    try:
        ranges = partial(torch.autograd.profiler.emit_nvtx, record_shapes=False)
        found = of_call(call, lambda results: torch.cuda.synchronize(), ranges)
    except (CensusError, OSError):
        # Into the worker's log: the case is none the worse for it.
        traceback.print_exc()
        found = {"launches": [], "counts": {}}
    if found["launches"]:
        found["counts"]["copies"] += sum(map(_copies, found["launches"]))
    found["counts"] |= _allocations(call)
    return found


def recorded(call: Callable[[], Any], plan: Plan, synchronised: bool) -> list[dict[str, Any]]:
    """Calls recorded as `plan` timed them: behind the gate, or one after the other."""
    if plan.graph:
        # Its replays are timed, and the graph is gone.
        return []
    gated = None if synchronised else gated_clock()

    def sample(timed: Callable[[], Any]) -> float | None:
        if gated:
            return gated.sample(plan.cold, timed).device_ns
        torch.cuda.synchronize()
        timed()
        torch.cuda.synchronize()
        return None

    try:
        return of_samples(call, sample)
    except (CensusError, OSError, AttributeError):
        # Into the worker's log: the case is none the worse for it.
        traceback.print_exc()
        return []


def counted(call: Callable[[], Any], on_gpu: bool, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Hardware counters of the kernels of some calls."""
    if not on_gpu:
        raise Unsupported("hardware counters are a GPU's, and this device is none")
    torch.cuda.synchronize()
    return of_calls(call, lambda results: torch.cuda.synchronize(), metrics)


def _copies(launch: dict[str, Any]) -> bool:
    """Whether it is one of torch's elementwise kernels that copy."""
    name = launch["name"].lower()
    return "copy" in name and "at::native" in name


def _allocations(call: Callable[[], Any]) -> dict[str, int]:
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
