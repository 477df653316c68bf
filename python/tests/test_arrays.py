"""Facts of one call of a function of NumPy arrays."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from regatta_worker.census.arrays import count_arrays

ONES = np.ones((64, 64), dtype=np.float32)
ARRAYS = (ONES, ONES, ONES)

MEMORY = {"call_peak_bytes", "garbage_collections", "ns.garbage_collections"}


def softmax(q: Any, k: Any, v: Any) -> Any:
    scores = np.exp(q @ k.T)
    scores /= scores.sum(axis=-1, keepdims=True)
    return np.matmul(scores, v)


def test_operations_are_counted_and_memory() -> None:
    counts, why = count_arrays(softmax, ARRAYS)
    assert why == {}
    # @, exp, sum, /= and matmul.
    assert counts["array_operations"] == 5
    assert counts["wider_results"] == counts["denormal_values"] == 0
    # Two products, or a product and its exponentials, at once.
    assert 2 * ONES.nbytes <= counts["call_peak_bytes"] < 2.5 * ONES.nbytes


def test_collections_of_garbage_are_counted_with_their_time() -> None:
    counts, _ = count_arrays(lambda q, k, v: q + len([[i] for i in range(20_000)]), ARRAYS)
    assert counts["garbage_collections"] > 5 and counts["ns.garbage_collections"] > 10_000
    counts, _ = count_arrays(lambda q, k, v: q + 1, ARRAYS)
    assert counts["garbage_collections"] == counts["ns.garbage_collections"] == 0


def test_a_function_of_numpy_is_one_operation() -> None:
    counts, _ = count_arrays(lambda q, k, v: np.linalg.norm(np.concatenate([q, k])), ARRAYS)
    assert counts["array_operations"] == 2


def test_a_temporary_in_float64_is_wider() -> None:
    counts, _ = count_arrays(lambda q, k, v: q * np.ones(64) + k, ARRAYS)
    assert counts["wider_results"] == 2


def test_denormal_numbers_are_counted_in_arguments_and_results() -> None:
    tiny = np.full(8, 1e-40, dtype=np.float32)
    arrays = (tiny, np.ones(8, dtype=np.float32), np.zeros(8, dtype=np.float32))
    assert count_arrays(lambda q, k, v: k + v, arrays)[0]["denormal_values"] == 8
    assert count_arrays(lambda q, k, v: q * k, arrays)[0]["denormal_values"] == 16
    small = (np.full(8, 1e-20, dtype=np.float32),) * 3
    assert count_arrays(lambda q, k, v: q * k, small)[0]["denormal_values"] == 8


def test_memory_without_values_has_no_denormal_numbers() -> None:
    def made(q: Any, k: Any, v: Any) -> Any:
        tiny = np.full(8, 1e-40, dtype=np.float32)
        del tiny  # Its memory is that of the next array.
        return np.empty_like(q)

    ones = (np.ones(8, dtype=np.float32),) * 3
    assert count_arrays(made, ones)[0]["denormal_values"] == 0


def test_what_cannot_be_recorded_is_not_0() -> None:
    def picky(q: Any, k: Any, v: Any) -> Any:
        if type(q) is not np.ndarray:
            raise TypeError("plain arrays\nalone")
        return q + k

    counts, why = count_arrays(picky, ARRAYS)
    assert counts.keys() == MEMORY
    assert why == {"array_operations": "TypeError: plain arrays"}
    counts, why = count_arrays(lambda q, k, v: np.asarray(q) + 1, ARRAYS)
    assert counts.keys() == MEMORY and "none of its arguments" in str(why)
    calls = []

    def changing(q: Any, k: Any, v: Any) -> Any:
        calls.append(q)
        return sum((q + k for _ in calls), start=q)

    counts, why = count_arrays(changing, ARRAYS)
    assert counts.keys() == MEMORY and "two calls differ" in str(why)


def test_results_are_written_where_the_caller_has_them() -> None:
    seen = []

    def into(q: Any, k: Any, v: Any) -> Any:
        out = np.empty((64, 64), dtype=np.float32)
        np.multiply(q, 3, out=out)
        np.add(out, k, out=out, where=q > 0)
        seen.append(out)
        return out

    counts, _ = count_arrays(into, ARRAYS)
    assert counts["array_operations"] == 3
    assert all((out == 4).all() and type(out) is np.ndarray for out in seen)


def test_allocations_of_numba_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [0]
    stats = SimpleNamespace(
        memsys_stats_enabled=lambda: False,
        memsys_enable_stats=lambda: None,
        memsys_disable_stats=lambda: None,
        memsys_get_stats_alloc=lambda: made[0],
    )

    def call(q: Any, k: Any, v: Any) -> Any:
        made[0] += 7
        return q + 1

    module = SimpleNamespace(_nrt_python=stats)
    monkeypatch.setitem(sys.modules, "numba.core.runtime", module)
    assert count_arrays(call, ARRAYS)[0]["numba_allocations"] == 7
    monkeypatch.setitem(sys.modules, "numba.core.runtime", SimpleNamespace())
    assert "numba_allocations" not in count_arrays(call, ARRAYS)[0]


def test_operations_of_threads_that_overlap_are_counted() -> None:
    meet = threading.Barrier(2, timeout=10)

    def half(part: Any) -> Any:
        # One thread is in a function of NumPy while the other multiplies.
        scaled = np.apply_along_axis(lambda row: (meet.wait(), row)[1], 0, part[:, :1])
        meet.wait()
        return scaled * part

    def outside(part: Any) -> Any:
        meet.wait()
        result = part * part
        meet.wait()
        return result

    def call(q: Any, k: Any, v: Any) -> Any:
        with ThreadPoolExecutor(2) as pool:
            both = pool.submit(half, q), pool.submit(outside, k)
            return [result.result() for result in both]

    counts, why = count_arrays(call, ARRAYS)
    assert why == {}
    assert counts["array_operations"] == 3
