"""Compares the GPU clock with CUPTI on a machine with a GPU and PyTorch.

    cargo rustc --release -p regatta-probe --crate-type cdylib
    REGATTA_PROBE=target/release/libregatta_probe.so python3 crates/probe/tests/ruler.py

Prints what it measures and exits with 1 if the clock is off by more than it may be: a kernel's
reading by more than 0.5 µs from what CUPTI says that the kernel took, with the cache flushed alike;
or more than 40 µs of the host's time between samples, beside the flush and waiting for it.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))

from regatta_worker.clock import probe
from rounds import compare, misbehaving_calls, say, summary

SHAPES = ((1, 8, 128, 64), (2, 16, 512, 64), (2, 16, 1024, 64), (4, 16, 2048, 128))
"""[batch, heads, seq, head_dim] in bf16, for FlashAttention-2 through torch."""

HOST_LIMIT_NS = 40_000.0


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
        misbehaving_calls(clock, call, lambda results: torch.cuda.synchronize())
    clock.close()
    return summary()


if __name__ == "__main__":
    sys.exit(main())
