"""What one call does to a GPU, as CUPTI and torch's allocator tell it."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from regatta_worker.census.allocations import at_peak
from regatta_worker.census.instructions import of_calls
from regatta_worker.census.launches import CensusError, of_call, of_samples
from regatta_worker.clock.timing import Plan, gated_clock
from regatta_worker.protocol.channel import Unsupported


def census(call: Callable[[], Any]) -> dict[str, Any]:
    """`launches`, `counts` and `activity` of one call, apart from any timing.

    Where regatta's own census cannot be had, torch's profiler tells the launches.
    """
    torch.cuda.synchronize()
    try:
        ranges = partial(torch.autograd.profiler.emit_nvtx, record_shapes=False)
        found = of_call(call, lambda results: torch.cuda.synchronize(), ranges)
    except (CensusError, OSError):
        # Into the worker's log: the case is none the worse for it.
        traceback.print_exc()
        found = _profiled(call)
    if found["launches"]:
        found["counts"]["copies"] += sum(map(_copies, found["launches"]))
    found["counts"] |= _allocations(call)
    if allocated := _allocated(call):
        found["allocated"] = allocated
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


def _profiled(call: Callable[[], Any]) -> dict[str, Any]:
    """`launches` and `counts` by torch's profiler."""
    events = _device_events(call)
    launches = [_launch(event) for event in events if event["cat"] == "kernel"]
    categories = [event["cat"] for event in events]
    copies, fills = map(categories.count, ("gpu_memcpy", "gpu_memset"))
    return {
        "launches": launches,
        "counts": {"copies": copies, "memsets": fills} if events else {},
    }


def _device_events(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """Kernels, copies and fills of one call in order; empty where the profiler cannot run."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            # The profiler's own objects do not tell grid and block; the file does.
            profiler.export_chrome_trace(str(path))
            events = json.loads(path.read_text())["traceEvents"]
    except Exception:
        # CUPTI serves one client at a time: the case is none the worse for it.
        traceback.print_exc()
        return []
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    return sorted((e for e in events if e.get("cat") in kinds), key=lambda event: event["ts"])


def _launch(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event["args"]
    launch = {"name": event["name"], "grid": arguments["grid"], "block": arguments["block"]}
    for ours, theirs in (
        ("registers", "registers per thread"),
        ("shared_bytes", "shared memory"),
    ):
        if theirs in arguments:
            launch[ours] = int(arguments[theirs])
    return launch


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


RECORDED = 100_000
"""Entries of the allocator's record, of which a call leaves two an allocation."""


def _allocated(call: Callable[[], Any]) -> list[dict[str, int]]:
    """What one call has allocated at its peak, by size; empty where torch does not record it."""
    record = torch.cuda.memory._record_memory_history
    try:
        record("all", context=None, max_entries=RECORDED)
        try:
            results = call()
            torch.cuda.synchronize()
            traces = torch.cuda.memory._snapshot()["device_traces"]
        finally:
            record(None)
    except (AttributeError, KeyError, RuntimeError, TypeError):
        # Into the worker's log: the case is none the worse for it.
        traceback.print_exc()
        return []
    del results
    device = torch.cuda.current_device()
    # A record that is full has lost its beginning.
    whole = device < len(traces) and len(traces[device]) < RECORDED
    return at_peak(traces[device]) if whole else []
