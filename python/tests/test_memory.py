"""Resident memory while samples are taken."""

import functools
import mmap

import support
from regatta_worker.clock import memory

MIB = 1 << 20


measured = functools.partial(support.measured, samples=20)


def test_the_peak_is_that_of_the_samples() -> None:
    before = measured(lambda: None)["peak_bytes"]
    # Every byte is written, so that it is resident.
    during = measured(lambda: bytearray(b"1") * (64 * MIB))["peak_bytes"]
    after = measured(lambda: None)["peak_bytes"]
    assert during > before + 60 * MIB
    assert after < during - 32 * MIB


def new_memory() -> mmap.mmap:
    """Written, and not what an allocator had of an earlier test."""
    memory = mmap.mmap(-1, MIB)
    memory.write(b"1" * MIB)
    return memory


def test_what_a_call_keeps_is_growth() -> None:
    kept = []
    leaks = measured(lambda: kept.append(new_memory()))
    assert 0.8 * MIB < leaks["growth_bytes_per_call"] < 1.3 * MIB
    assert "growth_bytes_per_call" not in measured(lambda: new_memory().close())


def test_memory_grows_where_each_quarter_of_the_calls_has_more() -> None:
    assert memory.growth([n * MIB for n in range(20)]) == MIB
    assert memory.growth([100 * MIB] * 20) is None
    assert memory.growth([100 * MIB + n for n in range(20)]) is None, "less than counters lag"
    assert memory.growth([min(n, 6) * MIB for n in range(20)]) is None, "a cache that is full"
    assert memory.growth([-n * MIB for n in range(20)]) is None
    assert memory.growth([0, MIB, 2 * MIB]) is None
