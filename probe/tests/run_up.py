"""Which run-up is long enough: each against CUPTI, and what each costs the host.

    cargo build --release -p regatta-probe
    REGATTA_PROBE=target/release/libregatta_probe.so python3 probe/tests/run_up.py

Settings take turns, round by round. For each, kernel and cache, in microseconds:
the median of the rounds' medians, less CUPTI's median duration of the same kernel in the
same surroundings (`off`); the spread of the rounds' medians as a coefficient of variation;
and the share of samples that started late, 0.4 µs above the lowest tenth. The last two
columns are what an empty sample costs the host from Python: all of it, and all but
flushing and waiting twice.
"""

from __future__ import annotations

import os
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from ruler import by_cupti, per_call_ns

from regatta_worker.clock import probe

SETTINGS = (
    (0, False), (1, False), (2, False), (4, False), (8, False), (12, False),
    (1, True), (8, True), (12, True),
)  # fmt: skip
"""Run-up, and whether it is queued ahead: probe/src/sample.rs, `Settings`."""

SHAPES = ((1, 8, 128, 64), (2, 16, 512, 64), (2, 16, 1024, 64))
"""[batch, heads, seq, head_dim] in bf16, for FlashAttention-2 through torch."""

ROUNDS, SAMPLES = 12, 40
CUPTI_ROUNDS = 2


@dataclass
class Cell:
    """What was read with one setting, kernel and cache, in ns."""

    medians: list[float] = field(default_factory=list)
    readings: list[float] = field(default_factory=list)
    truths: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        reading = statistics.median(self.medians)
        off = reading - statistics.median(self.truths)
        spread = statistics.stdev(self.medians) / statistics.mean(self.medians)
        lowest = sorted(self.readings)[len(self.readings) // 10]
        late = sum(reading > lowest + 400 for reading in self.readings) / len(self.readings)
        return f"{reading / 1e3:5.2f} {off / 1e3:+5.2f} {spread:5.2%} {late:4.0%}"


def attention(shape: tuple[int, int, int, int]) -> Callable[[], Any]:
    """A forward call on random inputs."""
    batch, heads, seq, head_dim = shape
    size = (batch, seq, heads, head_dim)
    q, k, v = (
        torch.randn(size, device="cuda", dtype=torch.bfloat16).transpose(1, 2) for _ in range(3)
    )
    return lambda: F.scaled_dot_product_attention(q, k, v)


def choose(clock: probe.Probe, setting: tuple[int, bool]) -> None:
    """Sets the run-up, and what is subtracted with it."""
    run_up, ahead = setting
    clock.configure(run_up=run_up, ahead=ahead)
    clock.calibrate()


def main() -> None:
    """Prints the table."""
    warnings.filterwarnings("ignore")
    torch.cuda.init()
    stream = torch.cuda.current_stream().cuda_stream
    torch.zeros(1, device="cuda")
    clock = probe.Probe(os.environ[probe.VARIABLE], 0, stream)
    print(f"clock {clock.version} on {torch.cuda.get_device_name()}, torch {torch.__version__}")
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    buffer = torch.empty(2 * l2, dtype=torch.uint8, device="cuda")

    def flush() -> None:
        buffer.fill_(7)
        torch.cuda.synchronize()
        torch.cuda.synchronize()

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        calls = [attention(shape) for shape in SHAPES]
        for call in calls:
            for _ in range(10):
                call()
        columns = [(call, cold) for call in calls for cold in (True, False)]
        cells = {setting: [Cell() for _ in columns] for setting in SETTINGS}
        for number in range(ROUNDS):
            for setting in SETTINGS:
                choose(clock, setting)
                for cell, (call, cold) in zip(cells[setting], columns, strict=True):
                    for _ in range(3):
                        clock.sample(cold, call)
                    readings = [clock.sample(cold, call).device_ns for _ in range(SAMPLES)]
                    cell.readings += readings
                    cell.medians.append(statistics.median(readings))
                    if number < CUPTI_ROUNDS:
                        cell.truths.append(by_cupti(clock, cold, call))
        print("run-up, ahead | median off spread late, cold and hot | host us")
        for setting, row in cells.items():
            choose(clock, setting)
            whole = per_call_ns(lambda: clock.sample(True, lambda: None))
            beside = whole - per_call_ns(flush)
            run_up, ahead = setting
            print(
                f"{run_up:2} {ahead!s:5} | {' | '.join(map(str, row))}"
                f" | {whole / 1e3:5.1f} {beside / 1e3:5.1f}",
                flush=True,
            )
    clock.close()


if __name__ == "__main__":
    main()
