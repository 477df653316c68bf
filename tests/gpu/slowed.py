"""The torch worker with three cases 3 % slower on the device, for tests/gpu/rule.

python3 tests/gpu/slowed.py --library torch
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))

import torch

from regatta_worker import main
from regatta_worker.libraries import torch as library
from regatta_worker.on_torch.case import Call, TorchCase
from regatta_worker.on_torch.library import Row

SLOWER = 1.03
CASES = {
    ("sdpa-flash", 4096, "forward"),
    ("sdpa-efficient", 4096, "backward"),
    ("sdpa-cudnn", 2048, "backward"),
}
"""Variant, length and direction; of both masks the full one."""


def device_us(call: Any, calls: int = 30) -> float:
    """The device time of a call, by events around many.

    The device is kept busy meanwhile, so that it does not wait for the host between them.
    """
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    torch.cuda._sleep(60_000_000)
    start.record()
    for _ in range(calls):
        call()
    stop.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(stop)) * 1e3 / calls


def slowed(call: Any) -> Any:
    """The call, followed by a kernel that spins for as long as is missing."""
    plain = device_us(call)

    def spinning(cycles: int) -> Any:
        def both() -> Any:
            results = call()
            torch.cuda._sleep(cycles)
            return results

        return both

    cycles = 1000
    for _ in range(8):
        added = device_us(spinning(cycles)) - plain
        cycles = max(1, cycles + int(((SLOWER - 1) * plain - added) * 1500))
    return spinning(cycles)


def slow_down(name: str, row: Row) -> Row:
    """A variant, some cases of it slower."""

    def build(case: TorchCase) -> Call:
        call, problem = row.build(case), case.problem
        causal = problem.mask.right is not None
        if (name, problem.seq_q, problem.direction) in CASES and not causal:
            return replace(call, run=slowed(call.run))
        return call

    return replace(row, build=build)


if __name__ == "__main__":
    rows = library.WORKER.rows
    rows |= {name: slow_down(name, row) for name, row in rows.items()}
    main.main()
