"""Hardware counters of each kernel of a call, by regatta's GPU library.

Through CUPTI's range profiler (`crates/probe/src/counters/`), apart from all timing: each kernel
runs once for each pass that the metrics take, and other kernels do not run beside it. The profiler
numbers kernels and does not name them, so a census of the same call gives their names.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from regatta_worker.census.launches import CensusError, Recorder, Recording, library

COUNTED_CALLS = 3
"""Calls that are counted: whether a figure is exact, repeating tells."""


class Counting(Recording):
    """Counts kernels of calls of this process."""

    prefix = "counters_"

    def count(
        self, metrics: Sequence[str], kernels: int, made: Callable[[], Any]
    ) -> dict[str, Any]:
        """What is counted while something is made, which ends with the device done.

        `kernels` are as many as are launched meanwhile: to begin takes longer the more they are.
        """
        names = (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))
        number = ctypes.c_uint32(len(metrics))
        return self.between(made, names, number, ctypes.c_uint32(kernels))[0]


def count_instructions(
    call: Callable[[], Any], wait: Callable[[Any], Any], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Steady calls, each with its kernels and what `metrics` count of them.

    `wait` gets a call's result and returns when the device is done with it. Raises CensusError
    or OSError where nothing can be counted, which tells why.
    """
    path = library()
    try:
        recorded, _ = Recorder(path).record(call, wait)
        kernels = [each["name"] for each in recorded["operations"] if each["kind"] == "kernel"]
        if not kernels:
            raise CensusError("a call launches no kernel")

        def made() -> None:
            for _ in range(COUNTED_CALLS):
                wait(call())

        counted = Counting(path).count(metrics, COUNTED_CALLS * len(kernels), made)
    except AttributeError as error:
        raise CensusError(f"{path} reads no hardware counters: {error}") from error
    return by_call(kernels, counted)


def by_call(kernels: list[str], counted: dict[str, Any]) -> list[dict[str, Any]]:
    """What was counted, call by call: each launches `kernels`, or nobody knows which is which."""
    values = counted["kernels"]
    expected = len(kernels) * COUNTED_CALLS
    if counted["dropped"] or len(values) != expected:
        raise CensusError(
            f"{expected} kernels were expected of the counted calls, and "
            f"{len(values) + counted['dropped']} counted"
        )
    named = [
        {"name": name, "counts": known(counted["metrics"], row)}
        for name, row in zip(kernels * COUNTED_CALLS, values, strict=True)
    ]
    return [{"kernels": named[at : at + len(kernels)]} for at in range(0, expected, len(kernels))]


def known(metrics: list[str], row: list[float | None]) -> dict[str, float]:
    """The values of one kernel; what is not known is left out."""
    pairs = zip(metrics, row, strict=True)
    return {metric: value for metric, value in pairs if value is not None}
