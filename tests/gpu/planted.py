"""Functions that a benchmark times, 5 % slower on the device, for tests/gpu/scripts.py."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOWER = 1.05
SHORTEST_US = 40.0
"""Shorter calls stay as they are: a kernel more costs them over 5 %."""

CYCLES = Path(__file__).parent / "reports" / "planted.jsonl"
"""A line a timed call of the script: what its function was given. The process that lists the calls
writes it, alone on the device; processes of a pair run beside each other, and read it."""

calls = itertools.count()


class Slowed:
    """A function that is followed by a kernel that spins. It has the name and the code of the
    function, by which a case is named."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function, self.cycles, self.call = function, -1, next(calls)
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        if hasattr(function, "__code__"):
            self.__code__ = function.__code__

    def __call__(self) -> Any:
        import torch

        results = self.function()
        if self.cycles < 0:
            # The first call's results are compared: the calls that find the cycles come after it.
            results = torch.utils._pytree.tree_map(
                lambda value: value.detach().clone() if torch.is_tensor(value) else value, results
            )
            self.cycles = cycles_of(self.function, self.call)
        if self.cycles:
            torch.cuda._sleep(self.cycles)
        return results


def device_us(function: Callable[[], Any], calls: int) -> float:
    """The median device time of a call with a cold L2 cache, by events; fills of memory keep the
    device busy until the host has launched the call."""
    import torch

    room = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(calls):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        room.zero_()
        start.record()
        function()
        stop.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(stop)) * 1e3)
    return sorted(times)[len(times) // 2]


def cycles_of(function: Callable[[], Any], call: int) -> int:
    """The cycles that make a call 5 % slower; 0 where it is too short."""
    import torch

    lines = CYCLES.read_text().splitlines() if CYCLES.exists() else []
    known = [row["cycles"] for row in map(json.loads, lines) if row["call"] == call]
    if known:
        return int(known[0])
    plain, cycles, share = device_us(function, 7), 0, 1.0
    if plain >= SHORTEST_US:
        cycles = int((SLOWER - 1) * plain * 1500)
        for last in (False, False, False, True):

            def both(cycles: int = cycles) -> None:
                function()
                torch.cuda._sleep(cycles)

            share = device_us(both, 7) / plain
            if not last:
                cycles = max(1, cycles + int((SLOWER - share) * plain * 1500))
    CYCLES.parent.mkdir(exist_ok=True)
    with CYCLES.open("a") as log:
        row = {"call": call, "cycles": cycles, "us": round(plain, 1), "times": round(share, 3)}
        log.write(json.dumps(row) + "\n")
    return cycles


def slowed(function: Callable[[], Any]) -> Callable[[], Any]:
    """The function, 5 % slower where a call takes long enough."""
    return Slowed(function)
