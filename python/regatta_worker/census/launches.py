"""Records the device's operations in one call and their times, and hardware counters of kernels.

regatta's GPU library does this through CUPTI's activity records (`crates/probe/src/census/`),
which work in the same way for every framework.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from regatta_worker.clock import probe

Done = TypeVar("Done")


class CensusError(RuntimeError):
    """Raised if a census fails; the text is the library's own message."""


class Recording(probe.ProbeLibrary):
    """Library functions that record or count what happens between `begin` and `end`."""

    error = CensusError

    def between(self, done: Callable[[], Done], *arguments: Any) -> tuple[dict[str, Any], Done]:
        """Calls `done` between `begin` and `end`. Returns the recording and the result."""
        self.ask("begin", *arguments)
        text = ctypes.c_char_p()
        try:
            result = done()
        finally:
            self.ask("end", ctypes.byref(text))
        found: dict[str, Any] = json.loads((text.value or b"").decode(errors="replace"))
        return found, result


class Recorder(Recording):
    """Records calls of this process, one at a time."""

    prefix = "census_"

    def record(
        self, call: Callable[[], Any], wait: Callable[[Any], Any]
    ) -> tuple[dict[str, Any], int]:
        """Returns the recording of a call, and the host's time to issue it in ns.

        `wait` gets the call's result and returns when the device has computed it.
        """

        def timed() -> int:
            begin = time.perf_counter_ns()
            result = call()
            host_ns = time.perf_counter_ns() - begin
            self.ask("returned")
            wait(result)
            return host_ns

        return self.between(timed)

    def sampled(
        self, call: Callable[[], Any], sample: Callable[[Callable[[], Any]], float | None]
    ) -> tuple[dict[str, Any], float | None]:
        """Returns the recording while `sample` times the call, and the measured time in ns."""

        def marked() -> Any:
            self.ask("called")
            result = call()
            self.ask("returned")
            return result

        return self.between(lambda: sample(marked))


NVTX = "NVTX_INJECTION64_PATH"
"""Names the library that receives NVTX ranges. NVTX reads this variable at the first range."""


def library() -> str:
    path = os.environ.get(probe.VARIABLE)
    if not path:
        raise CensusError(f"{probe.VARIABLE} names no library")
    return path


Ranges = Callable[[], contextlib.AbstractContextManager[Any]]


def profile_call(
    call: Callable[[], Any], wait: Callable[[Any], Any], ranges: Ranges | None = None
) -> dict[str, Any]:
    """Returns `launches`, `counts` and `activity` of one steady call.

    The call is made twice, because the first recording of a process changes how code is loaded.
    A third call, within `ranges`, has the framework mark its operators; the marking would distort
    the times of the second call. Raises CensusError or OSError if nothing can be recorded.
    """
    recorder = Recorder(library())
    recorder.record(call, wait)
    recorded, host_ns = recorder.record(call, wait)
    if ranges is not None:
        os.environ.setdefault(NVTX, library())
        try:
            with ranges():
                marked, _ = recorder.record(call, wait)
            name_operators(recorded["operations"], marked["operations"])
        except Exception:
            # Goes into the worker's log: a census is useful without operators, too.
            traceback.print_exc()
    return reply(recorded, host_ns)


def name_operators(operations: list[dict[str, Any]], marked: list[dict[str, Any]]) -> None:
    """Copies operators from the operations of a marked call, if both calls did the same work."""

    def done(operation: dict[str, Any]) -> Any:
        return [operation.get(key) for key in ("kind", "name", "direction", "grid", "bytes")]

    if [done(operation) for operation in operations] != [done(operation) for operation in marked]:
        return
    for operation, other in zip(operations, marked, strict=True):
        operation |= {"operator": other["operator"]} if "operator" in other else {}


def reply(recorded: dict[str, Any], host_ns: int) -> dict[str, Any]:
    """Returns a recording in the protocol's form: times count from the first operation's start."""
    operations = recorded["operations"]
    kinds = [operation["kind"] for operation in operations]
    return {
        "launches": [
            {key: kernel[key] for key in LAUNCH if key in kernel}
            for kernel in operations
            if kernel["kind"] == "kernel"
        ],
        "counts": {"copies": kinds.count("copy"), "memsets": kinds.count("set")},
        "activity": {
            "operations": _operations(operations),
            "host_ns": host_ns,
            "calls": recorded["counts"],
            "calls_ns": recorded["ns"],
            "dropped": recorded["dropped"],
        },
    }


Shown = tuple[str, int]
"""A pattern of kernel names, with `*` for any text, and the grid axis that has the value."""


def effective_from_grid(
    launched: Sequence[Mapping[str, Any]], shown: Mapping[str, Shown]
) -> dict[str, int | str]:
    """Returns the values of parameters that the grids of a call's kernels show.

    If kernels differ, their values are joined by `+` in the order of launch. A parameter that no
    kernel of the call shows is left out.
    """
    effective: dict[str, int | str] = {}
    for name, (kernel, axis) in shown.items():
        sizes = [each["grid"][axis] for each in launched if fnmatchcase(each["name"], kernel)]
        values = list(dict.fromkeys(sizes))
        if values:
            effective[name] = values[0] if len(values) == 1 else "+".join(map(str, values))
    return effective


RECORDED_CALLS = 5
"""Number of recorded calls; medians are taken over them."""


def record_samples(
    call: Callable[[], Any],
    sample: Callable[[Callable[[], Any]], float | None],
    waits: bool = False,
) -> list[dict[str, Any]]:
    """Records steady calls while they are timed, each with its operations and the measured time.

    `sample` times one call and returns the time in ns, or None if it has no clock. Operations that
    it queues around the call (a flush, the run-up) are excluded. With `waits`, `call` contains a
    wait for the device that was added for the recording, so counts of CUDA calls are left out.
    Raises CensusError or OSError if nothing can be recorded.
    """
    recorder = Recorder(library())
    recorder.sampled(call, sample)
    found = []
    for _ in range(RECORDED_CALLS):
        recorded, time_ns = recorder.sampled(call, sample)
        operations, begin, end = (recorded[key] for key in ("operations", "called", "returned"))
        if recorded["dropped"] or not all("launched_ns" in of for of in operations):
            continue
        own = [of for of in operations if begin <= of["launched_ns"] <= end]
        of_sample: dict[str, Any] = {"operations": _operations(own)}
        of_sample |= {} if waits else {"calls": recorded["counts"]}
        found.append(of_sample | ({} if time_ns is None else {"time_ns": time_ns}))
    return found


LAUNCH = ("name", "grid", "block", "registers", "shared_bytes", "local_bytes", "cluster")
OPERATION = ("kind", "stream", "name", "direction", "bytes", "operator")
TIMES = ("start_ns", "end_ns", "launched_ns")
"""Members of an operation's times that are sent, if they are known."""


def _operations(operations: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = operations[0]["start_ns"] if operations else 0
    return [
        {key: operation[key] for key in OPERATION if key in operation}
        | {key: operation[key] - first for key in TIMES if key in operation}
        for operation in operations
    ]


# Hardware counters of each kernel of a call, through CUPTI's range profiler
# (`crates/probe/src/counters/`), outside of all timing: each kernel runs once for each pass that
# the metrics need, and no other kernel runs at the same time. The profiler numbers kernels but does
# not name them, so their names come from a census of the same call.

COUNTED_CALLS = 3
"""Number of counted calls: repetition shows whether a figure is exact."""


class Counting(Recording):
    """Reads hardware counters of kernels that this process launches."""

    prefix = "counters_"

    def count(
        self, metrics: Sequence[str], kernels: int, made: Callable[[], Any]
    ) -> dict[str, Any]:
        """Returns the counters while `made` runs, which must wait for the device at its end.

        `kernels` is the number of kernels that `made` launches. The more, the longer `begin` takes.
        """
        names = (ctypes.c_char_p * len(metrics))(*(name.encode() for name in metrics))
        number = ctypes.c_uint32(len(metrics))
        return self.between(made, names, number, ctypes.c_uint32(kernels))[0]


def count_instructions(
    call: Callable[[], Any], wait: Callable[[Any], Any], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Returns steady calls, each with its kernels and their values of `metrics`.

    `wait` gets a call's result and returns when the device has computed it. Raises CensusError
    or OSError, with the reason, if nothing can be counted.
    """
    recorded, _ = Recorder(library()).record(call, wait)
    kernels = [each["name"] for each in recorded["operations"] if each["kind"] == "kernel"]
    if not kernels:
        raise CensusError("a call launches no kernel")

    def made() -> None:
        for _ in range(COUNTED_CALLS):
            wait(call())

    expected = COUNTED_CALLS * len(kernels)
    counted = Counting(library()).count(metrics, expected, made)
    values, dropped = counted["kernels"], counted["dropped"]
    # Each call must launch the kernels of the census, or their counters cannot be assigned.
    if dropped or len(values) != expected:
        raise CensusError(
            f"{expected} kernels were expected of the counted calls, and {len(values) + dropped} "
            f"counted"
        )
    named = []
    for name, row in zip(kernels * COUNTED_CALLS, values, strict=True):
        pairs = zip(counted["metrics"], row, strict=True)
        # Unknown values are left out.
        known = {metric: value for metric, value in pairs if value is not None}
        named.append({"name": name, "counts": known})
    return [{"kernels": named[at : at + len(kernels)]} for at in range(0, expected, len(kernels))]
