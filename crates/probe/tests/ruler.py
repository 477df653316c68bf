"""Compares the GPU clock with CUPTI on a machine with a GPU and PyTorch.

    cargo rustc --release -p regatta-probe --crate-type cdylib
    REGATTA_PROBE=target/release/libregatta_probe.so python3 crates/probe/tests/ruler.py

Exits with 1 if a kernel's reading is off by more than 0.5 µs from CUPTI's duration of it, the cache
flushed alike.

Several operations have gaps between them, which CUPTI stretches: their reading lies between the
time in which any of them ran and the time from the first start to the last end, within 0.1 µs an
operation, because kernels that overlap begin later under CUPTI.
"""

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "python"))

from regatta_worker.census.launches import Recorder
from regatta_worker.clock.probe import VARIABLE, Probe

ROUNDS = 6
"""Rounds of clock and CUPTI in turn: a board that warms up moves 400 µs by several."""

SAMPLES = 20
TOLERANCE_NS, TOLERANCE_SHARE = 500.0, 0.003
"""The share is for kernels that drift by more than 0.5 µs between two rounds."""

OVERLAP_NS = 100.0
"""Further tolerance for each operation of a call that has several."""

FLUSH_BYTES = 64 << 20
"""A fill of this size or more is the clock's own; no result here is that large."""

Operation = dict[str, Any]
failures: list[str] = []


def say(text: str, right: bool = True) -> None:
    print(("ok    " if right else "FAIL  ") + text, flush=True)
    if not right:
        failures.append(text)


def summary() -> int:
    """Prints the last line of the report; returns the exit status."""
    print(f"{len(failures)} failed" if failures else "all right")
    return 1 if failures else 0


def record(sample: Callable[[], Any]) -> list[Operation]:
    """The operations of a call while it is sampled, without the clock's own; of a call that
    launches nothing else, one of the clock's kernels."""
    recorded, _ = Recorder(os.environ[VARIABLE]).between(sample)
    operations: list[Operation] = recorded["operations"]
    ours = [op for op in operations if op.get("name", "").startswith("regatta_")]
    call = [op for op in operations if op not in ours and op.get("bytes", 0) < FLUSH_BYTES]
    return call or ours[-1:]


def busy_ns(operations: list[Operation]) -> int:
    """The time in which any operation ran: a kernel may begin before the one before it ends."""
    total, until = 0, 0
    for op in operations:
        total += max(op["end_ns"] - max(op["start_ns"], until), 0)
        until = max(until, op["end_ns"])
    return total


def span_ns(operations: list[Operation]) -> int:
    return int(max(op["end_ns"] for op in operations) - operations[0]["start_ns"])


def compare(clock: Probe, name: str, cold: bool, call: Callable[[], Any]) -> None:
    """Compares the clock with CUPTI, round by round."""

    def sample() -> float:
        return clock.sample(cold, call).device_ns

    for _ in range(15):
        sample()
    readings, busy, spans, most = [], [], [], 1
    for _ in range(ROUNDS):
        readings.append(median(sample() for _ in range(SAMPLES)))
        calls = [record(sample) for _ in range(SAMPLES)]
        busy.append(float(median(map(busy_ns, calls))))
        spans.append(float(median(map(span_ns, calls))))
        most = max(map(len, calls))
    reading, lower, upper = map(median, (readings, busy, spans))
    if most == 1:
        off = median(a - b for a, b in zip(readings, busy, strict=True))
        right = abs(off) <= max(TOLERANCE_NS, TOLERANCE_SHARE * lower)
        truth = f"CUPTI {lower / 1e3:.2f} us, off by {off / 1e3:+.2f} us"
    else:
        tolerance = max(TOLERANCE_NS, most * OVERLAP_NS)
        right = lower - tolerance <= reading <= upper + tolerance
        truth = f"CUPTI {lower / 1e3:.2f} to {upper / 1e3:.2f} us, {most} operations"
    between = (max(readings) - min(readings)) / 1e3
    heat = "cold" if cold else "hot"
    say(f"{name} {heat}: {reading / 1e3:.2f} us, {truth} (between rounds {between:.2f} us)", right)


def misbehaving_calls(clock: Probe, call: Callable[[], Any], wait: Callable[[Any], Any]) -> None:
    """Checks that a call that waits, and one that fails, harm themselves alone."""
    forced, after = clock.sample(True, lambda: wait(call())), clock.sample(True, call)
    say("a call that waits is let through and says so", forced.synchronised)
    say("the sample after it is an honest one", not after.synchronised)
    try:
        clock.sample(True, lambda: 1 / 0)
    except ZeroDivisionError:
        wait(call())
        say("a call that fails leaves the stream free")


SHAPES = ((1, 8, 128, 64), (2, 16, 512, 64), (2, 16, 1024, 64), (4, 16, 2048, 128))
"""[batch, heads, seq, head_dim] in bf16, for FlashAttention-2 through torch."""


def main() -> int:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    warnings.filterwarnings("ignore")
    torch.cuda.init()
    stream = torch.cuda.current_stream().cuda_stream
    torch.zeros(1, device="cuda")
    clock = Probe(os.environ[VARIABLE], 0, stream)
    print(f"clock {clock.version} on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    null_kernel = partial(clock.ask, "null_kernel", clock._handle)
    compare(clock, "a kernel that does nothing", False, null_kernel)
    small = torch.randn(1024, device="cuda")
    compare(clock, "1024 elements plus one", True, lambda: small.add_(1.0))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for batch, heads, seq, head_dim in SHAPES:
            q, k, v = (
                torch.randn(
                    batch, seq, heads, head_dim, device="cuda", dtype=torch.bfloat16
                ).transpose(1, 2)
                for _ in range(3)
            )

            def call() -> Any:
                return F.scaled_dot_product_attention(q, k, v)  # noqa: B023

            for cold in (True, False):
                compare(clock, f"FlashAttention-2 {(batch, heads, seq, head_dim)}", cold, call)
        misbehaving_calls(clock, call, lambda results: torch.cuda.synchronize())
    return summary()


if __name__ == "__main__":
    sys.exit(main())
