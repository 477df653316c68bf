"""Holds the GPU clock against CUPTI on a machine with a GPU and PyTorch.

    cargo rustc --release -p regatta-probe --crate-type cdylib
    REGATTA_PROBE=target/release/libregatta_probe.so python3 crates/probe/tests/ruler.py

Prints what it measures and exits with 1 if the clock is off by more than it may be:
a kernel's reading by more than 0.5 µs from what CUPTI (through torch.profiler) says that
the kernel took, with the cache flushed alike; or more than 40 µs of the host's time
between samples, beside the flush and waiting for it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

from regatta_worker.clock import probe

SHAPES = ((1, 8, 128, 64), (2, 16, 512, 64), (2, 16, 1024, 64), (4, 16, 2048, 128))
"""[batch, heads, seq, head_dim] in bf16, for FlashAttention-2 through torch."""

ROUNDS = 6
"""Clock and CUPTI in turn: a board that warms up moves 400 µs by several."""

SAMPLES = 20
TOLERANCE_NS, TOLERANCE_SHARE = 500.0, 0.003
"""The share is for kernels that drift by more than 0.5 µs between two rounds."""

HOST_LIMIT_NS = 40_000.0

failures: list[str] = []


def say(text: str, right: bool = True) -> None:
    """One line of the report."""
    print(("ok    " if right else "FAIL  ") + text, flush=True)
    if not right:
        failures.append(text)


def by_clock(clock: probe.Probe, cold: bool, call: Callable[[], Any]) -> float:
    """Median reading, in ns."""
    return statistics.median(clock.sample(cold, call).device_ns for _ in range(SAMPLES))


def by_cupti(clock: probe.Probe, cold: bool, call: Callable[[], Any]) -> float:
    """Median duration of the call's one kernel, in ns, taken in the same surroundings."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(SAMPLES):
            clock.sample(cold, call)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    # The run-up is ours too: where the call does nothing, all are alike.
    real = [event for event in kernels if not event["name"].startswith("regatta_")] or kernels
    return float(statistics.median(event["dur"] * 1e3 for event in real))


def compare(clock: probe.Probe, name: str, cold: bool, call: Callable[[], Any]) -> None:
    """Clock against CUPTI, round by round."""
    for _ in range(10):
        call()
    for _ in range(5):
        clock.sample(cold, call)
    readings, durations = [], []
    for _ in range(ROUNDS):
        readings.append(by_clock(clock, cold, call))
        durations.append(by_cupti(clock, cold, call))
    off = statistics.median(a - b for a, b in zip(readings, durations, strict=True))
    duration = statistics.median(durations)
    spread = max(readings) - min(readings)
    say(
        f"{name} {'cold' if cold else 'hot'}: {statistics.median(readings) / 1e3:.2f} us, "
        f"CUPTI {duration / 1e3:.2f} us, off by {off / 1e3:+.2f} us "
        f"(between rounds {spread / 1e3:.2f} us)",
        abs(off) <= max(TOLERANCE_NS, TOLERANCE_SHARE * duration),
    )


def per_call_ns(work: Callable[[], Any], times: int = 200) -> float:
    """Host time of one call in a loop."""
    for _ in range(10):
        work()
    begin = time.perf_counter_ns()
    for _ in range(times):
        work()
    return (time.perf_counter_ns() - begin) / times


def host_cost(clock: probe.Probe) -> None:
    """What a sample costs the host beside flush and wait."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    buffer = torch.empty(2 * l2, dtype=torch.uint8, device="cuda")

    def flush() -> None:
        buffer.fill_(7)
        torch.cuda.synchronize()

    for every in (1, 0):
        clock.read_clock_every(every)
        cost = per_call_ns(lambda: clock.sample(True, lambda: None)) - per_call_ns(flush)
        say(
            f"host between samples {cost / 1e3:.1f} us beside flush and wait, "
            f"{'with' if every else 'without'} the SM clock",
            cost <= HOST_LIMIT_NS,
        )
    clock.read_clock_every(1)


def misbehaving_calls(clock: probe.Probe, call: Callable[[], Any]) -> None:
    """A call that waits, and one that fails, harm themselves alone."""

    def waits() -> None:
        call()
        torch.cuda.synchronize()

    forced, after = clock.sample(True, waits), clock.sample(True, call)
    say("a call that waits is let through and says so", forced.synchronised)
    say("the sample after it is an honest one", not after.synchronised)
    try:
        clock.sample(True, lambda: 1 / 0)
    except ZeroDivisionError:
        torch.cuda.synchronize()
        say("a call that fails leaves the gate open")


def main() -> int:
    """All checks; the process's exit status."""
    warnings.filterwarnings("ignore")
    torch.cuda.init()
    stream = torch.cuda.current_stream().cuda_stream
    torch.zeros(1, device="cuda")
    clock = probe.Probe(os.environ[probe.VARIABLE], 0, stream)
    print(f"clock {clock.version} on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for _ in range(3):
        print("     ", clock.calibrate())
    compare(clock, "a kernel that does nothing", False, clock.null_kernel)
    small = torch.randn(1024, device="cuda")
    compare(clock, "1024 elements plus one", True, lambda: small.add_(1.0))
    host_cost(clock)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for batch, heads, seq, head_dim in SHAPES:
            q, k, v = (
                torch.randn(
                    batch, seq, heads, head_dim, device="cuda", dtype=torch.bfloat16
                ).transpose(1, 2)
                for _ in range(3)
            )

            def call() -> torch.Tensor:
                return F.scaled_dot_product_attention(q, k, v)  # noqa: B023

            for cold in (True, False):
                compare(clock, f"FlashAttention-2 {(batch, heads, seq, head_dim)}", cold, call)
        misbehaving_calls(clock, call)
    clock.close()
    print(f"{len(failures)} failed" if failures else "all right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
