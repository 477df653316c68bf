"""What both rulers share: readings of the GPU clock beside CUPTI's records, round by round.

Of a call that is one kernel a reading is compared with CUPTI's duration of it, the cache flushed
alike. A call of several operations has gaps, which CUPTI stretches; its reading must lie between
the time in which any of them ran and the time from the first start to the last end, give or take
0.1 µs an operation: kernels that begin before the one before them has ended do so later under
CUPTI.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import groupby
from typing import Any

from cupti import Cupti, Operation
from regatta_worker.clock.probe import Probe

ROUNDS = 6
"""Clock and CUPTI in turn: a board that warms up moves 400 µs by several."""

SAMPLES = 20
TOLERANCE_NS, TOLERANCE_SHARE = 500.0, 0.003
"""The share is for kernels that drift by more than 0.5 µs between two rounds."""

OVERLAP_NS = 100.0
"""Further tolerance for each operation of a call that has several."""

FLUSH_BYTES = 64 << 20
"""A larger fill is the clock's own; no result here is that large."""

failures: list[str] = []


def say(text: str, right: bool = True) -> None:
    """One line of the report."""
    print(("ok    " if right else "FAIL  ") + text, flush=True)
    if not right:
        failures.append(text)


def summary() -> int:
    """The last line of the report, and the exit status."""
    print(f"{len(failures)} failed" if failures else "all right")
    return 1 if failures else 0


def calls_of(operations: list[Operation]) -> list[list[Operation]]:
    """The operations of each call: between two calls stands a kernel of the clock's. Where the
    calls do nothing but that, all are alike."""
    parts = groupby(operations, key=lambda operation: operation.name.startswith("regatta_"))
    found = ([op for op in part if op.bytes < FLUSH_BYTES] for ours, part in parts if not ours)
    calls = [part for part in found if part]
    return calls or [[op] for op in operations if op.name.startswith("regatta_")]


def busy_ns(operations: list[Operation]) -> int:
    """The time in which any ran: a kernel may begin before the one before it ends."""
    total, until = 0, 0
    for op in operations:
        total += max(op.end - max(op.start, until), 0)
        until = max(until, op.end)
    return total


def compare(cupti: Cupti, clock: Probe, name: str, cold: bool, call: Callable[[], Any]) -> None:
    """Clock against CUPTI, round by round."""
    for _ in range(15):
        clock.sample(cold, call)
    readings, busy, spans, most = [], [], [], 1
    for _ in range(ROUNDS):
        readings.append(
            statistics.median(clock.sample(cold, call).device_ns for _ in range(SAMPLES))
        )
        with cupti.recording() as operations:
            for _ in range(SAMPLES):
                clock.sample(cold, call)
        calls = calls_of(operations)
        busy.append(float(statistics.median(map(busy_ns, calls))))
        spans.append(
            float(statistics.median(max(op.end for op in part) - part[0].start for part in calls))
        )
        most = max(map(len, calls))
    reading, lower, upper = map(statistics.median, (readings, busy, spans))
    if most == 1:
        off = statistics.median(a - b for a, b in zip(readings, busy, strict=True))
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
    """A call that waits, and one that fails, harm themselves alone."""
    forced, after = clock.sample(True, lambda: wait(call())), clock.sample(True, call)
    say("a call that waits is let through and says so", forced.synchronised)
    say("the sample after it is an honest one", not after.synchronised)
    try:
        clock.sample(True, lambda: 1 / 0)
    except ZeroDivisionError:
        wait(call())
        say("a call that fails leaves the stream free")
