"""Gathers facts of one untimed call of a function of NumPy arrays: memory, operations, values.

They are evidence for causes of a change; they never make a case fail.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from regatta_worker.census.functions import count_memory
from regatta_worker.census.private import NUMBA_COUNTS

Arrays = Sequence[np.ndarray]


def count_arrays(
    function: Callable[..., Any], arguments: Arrays
) -> tuple[dict[str, int], dict[str, str]]:
    """Returns counts of one steady call by name, and the reasons for missing counts by name."""
    counts = count_memory(lambda: function(*arguments))
    counts |= _numba_allocations(function, arguments)
    try:
        first, second = (_recorded(function, arguments) for _ in range(2))
    except Exception as error:
        # A function may reject a subclass of NumPy's arrays, which must not fail the case.
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        return counts, {"array_operations": words}
    if first != second:
        return counts, {"array_operations": f"two calls differ: {first} and {second}"}
    if first.array_operations:
        return counts | asdict(first), {}
    return counts, {"array_operations": "the call gives NumPy none of its arguments"}


def _numba_allocations(function: Callable[..., Any], arguments: Arrays) -> dict[str, int]:
    """Returns the allocations of compiled code in a call, if numba is loaded and counts them."""
    runtime = sys.modules.get(NUMBA_COUNTS.module)
    try:
        stats: Any = runtime and getattr(runtime, NUMBA_COUNTS.name)
        if stats is None:
            return {}
        # Since numba 0.58, allocations are counted only after this is enabled.
        enabled = stats.memsys_stats_enabled()
        stats.memsys_enable_stats()
        try:
            before = stats.memsys_get_stats_alloc()
            function(*arguments)
            return {"numba_allocations": stats.memsys_get_stats_alloc() - before}
        finally:
            if not enabled:
                stats.memsys_disable_stats()
    except AttributeError:
        # Another version has other names.
        return {}


@dataclass
class _Record:
    """Figures of a call's operations: NumPy ufuncs and functions whose operands are the call's
    arguments, or derive from them."""

    array_operations: int = 0
    wider_results: int = 0
    """Results whose floating type is wider than that of every argument of the call."""
    denormal_values: int = 0
    """Denormals in arguments and results: absolute values between 0 and the smallest normal."""

    def operation(self, results: Any, widest: int) -> None:
        self.array_operations += 1
        for result in results if isinstance(results, tuple) else (results,):
            if isinstance(result, np.ndarray) and result.dtype.kind == "f" and result.size > 1:
                self.wider_results += result.dtype.itemsize > widest
                self.values(result)

    def values(self, array: np.ndarray) -> None:
        plain = np.abs(array.view(np.ndarray))
        least = np.finfo(plain.dtype).smallest_normal
        self.denormal_values += int(np.count_nonzero((plain > 0) & (plain < least)))


class _Depth(threading.local):
    """Nesting depth of NumPy functions in the current thread."""

    value = 0


def _recorded(function: Callable[..., Any], arguments: Arrays) -> _Record:
    """Returns the figures of a call whose arguments are recording subclasses of NumPy's arrays. The
    call may use them in several threads at once."""
    record, lock, depth = _Record(), threading.Lock(), _Depth()
    widest = max(array.dtype.itemsize for array in arguments)

    def operation(results: Any) -> None:
        with lock:
            record.operation(results, widest)

    def plain(value: Any) -> Any:
        return value.view(np.ndarray) if isinstance(value, Recorded) else value

    class Recorded(np.ndarray):
        def __array_ufunc__(
            self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **keywords: Any
        ) -> Any:
            keywords = {name: plain(value) for name, value in keywords.items()}
            if out is not None:
                keywords["out"] = tuple(map(plain, out))
            results = getattr(ufunc, method)(*map(plain, inputs), **keywords)
            if not depth.value:
                operation(results)
            if out is not None:
                return out[0] if len(out) == 1 else out
            if isinstance(results, tuple):
                return tuple(map(recording, results))
            return recording(results)

        def __array_function__(
            self, function: Any, types: Any, arguments: Any, keywords: Any
        ) -> Any:
            depth.value += 1
            try:
                results = super().__array_function__(function, types, arguments, keywords)
            finally:
                depth.value -= 1
            if not depth.value:
                # The memory of `empty_like` holds no values yet.
                operation(() if function is np.empty_like else results)
            # Some functions, such as `np.concatenate`, return a plain array.
            return recording(results)

    def recording(value: Any) -> Any:
        return value.view(Recorded) if isinstance(value, np.ndarray) else value

    for array in arguments:
        record.values(array)
    function(*map(recording, arguments))
    return record
