"""Threads that compute in a call, their waits for a core, and resident memory."""

import functools
import mmap
import os
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from regatta_worker.clock import memory, threads, timing
from regatta_worker.clock.threads import CallUsage, OneCore
from regatta_worker.protocol import channel
from support import measured

WORK_NS = 10_000_000


def compute(work_ns: int = WORK_NS) -> None:
    """For so much CPU time of the thread that calls it."""
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < work_ns:
        pass


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(3) as pool:
        # All of its threads, each of which would be started by a task.
        barrier = threading.Barrier(4)
        for _ in range(3):
            pool.submit(barrier.wait)
        barrier.wait()
        yield pool


@pytest.mark.parametrize(
    ("others", "own", "count"),
    # The last two hand out their work and wait: for a single thread both count.
    [(0, True, 1), (1, True, 2), (3, True, 4), (3, False, 3), (1, False, 2)],
)
def test_threads_count_that_compute(
    pool: ThreadPoolExecutor, others: int, own: bool, count: int
) -> None:
    # So that no thread takes the work of two.
    barrier = threading.Barrier(others + own)

    def work() -> None:
        barrier.wait()
        compute()

    def call() -> None:
        asked = [pool.submit(work) for _ in range(others)]
        if own:
            work()
        for each in asked:
            each.result()

    found = measured(call)
    assert found["threads"] == [count] * 5
    assert len(found["waited_ns"]) == 5


def test_a_thread_that_begins_and_ends_in_a_call_has_no_count() -> None:
    def call() -> None:
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()

    found = measured(call)
    assert "threads" not in found and "waited_ns" not in found
    assert len(found["cpu_ns"]) == 5


def test_a_busy_core_is_not_in_the_time_and_a_sleep_is() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        shared = measured(lambda: compute(4 * WORK_NS))
        asleep = measured(lambda: time.sleep(0.01))
    finally:
        busy.kill()
        busy.wait()
        os.sched_setaffinity(0, before)
    assert shared["threads"] == [1] * 5
    assert sum(shared["waited_ns"]) > 0.3 * 20 * WORK_NS, "nothing disturbed it"
    assert 1 <= sum(shared["device_ns"]) / (20 * WORK_NS) < 1.5
    # A wait between a reading of waits and one of the clock may be taken out of a sample.
    assert statistics.median(asleep["device_ns"]) >= WORK_NS


def test_what_the_kernel_does_not_show_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "pread", lambda *_: b"0 0 0\n")
    found = measured(compute)
    assert found["threads"] == [1] * 5 and "waited_ns" not in found
    monkeypatch.setattr(threads, "TASKS", "/proc/self/nothing")
    found = measured(compute)
    assert not {"threads", "waited_ns"} & found.keys()
    assert len(found["cpu_ns"]) == len(found["device_ns"]) == 5


def test_no_time_is_less_than_its_cpu_time() -> None:
    usage = threads.CallUsage(70, 0, threads=1, waited_ns=90, own_cpu_ns=70)
    assert usage.device_ns(100) == 70.0
    assert usage.device_ns(200) == 110.0
    assert usage.device_ns(60) == 60.0


def test_descriptors_are_closed() -> None:
    before = os.listdir("/proc/self/fd")
    measured(compute)
    assert os.listdir("/proc/self/fd") == before


def test_a_call_on_one_thread_stays_on_one_core_until_another_computes() -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with OneCore(core) as one:
        one.begin()
        assert one.pinned is None, "before a call was seen"
        one.saw(CallUsage(10**6, 0, threads=1))
        one.begin()
        assert [one.pinned, os.sched_getaffinity(0)] == [core, {core}]
        one.saw(CallUsage(10**6, 0, threads=2))
        assert [one.pinned, os.sched_getaffinity(0)] == [None, before]
        one.saw(CallUsage(10**6, 0, threads=1))
        one.begin()
    assert os.sched_getaffinity(0) == before
    for other, usage in (
        (core, CallUsage(10**6, 0)),
        (core, CallUsage(10**6, 0, threads=1, missed_thread=True)),
        (10**4, CallUsage(10**6, 0, threads=1)),
        (None, CallUsage(10**6, 0, threads=1)),
    ):
        with OneCore(other) as one:
            one.saw(usage)
            one.begin()
            assert one.pinned is None


@pytest.mark.parametrize(("most", "taken"), [(50, 9), (7, 7)])
def test_a_measurement_pauses_and_ends_after_the_last_turn(most: int, taken: int) -> None:
    calls, turns = [0], list[list[float]]()

    def pause(members: channel.Message) -> bool:
        turns.append(members["device_ns"])
        return len(turns) == 2

    def call() -> None:
        calls[0] += 1

    channel.on_pause(pause)
    plan = timing.Plan(2, most, 5, 1e6, cold=False, pause_every=3)
    measured = timing.measure_wall(call, lambda result: None, plan, lambda: None)
    assert [len(turn) for turn in turns] == [3, 3]
    assert turns[0] + turns[1] == measured["device_ns"][:6]
    assert len(measured["device_ns"]) == taken
    # The warm-up, the samples, and one after each pause.
    assert calls[0] == 2 + taken + 2


MIB = 1 << 20

measured_often = functools.partial(measured, samples=20)


def test_the_peak_is_that_of_the_samples() -> None:
    before = measured_often(lambda: None)["peak_bytes"]
    # Every byte is written, so that it is resident.
    during = measured_often(lambda: bytearray(b"1") * (64 * MIB))["peak_bytes"]
    after = measured_often(lambda: None)["peak_bytes"]
    assert during > before + 60 * MIB
    assert after < during - 32 * MIB


def new_memory() -> mmap.mmap:
    """Written, and not what an allocator had of an earlier test."""
    memory = mmap.mmap(-1, MIB)
    memory.write(b"1" * MIB)
    return memory


def test_what_a_call_keeps_is_growth() -> None:
    kept = []
    leaks = measured_often(lambda: kept.append(new_memory()))
    assert 0.8 * MIB < leaks["growth_bytes_per_call"] < 1.3 * MIB
    assert "growth_bytes_per_call" not in measured_often(lambda: new_memory().close())


def test_memory_grows_where_each_quarter_of_the_calls_has_more() -> None:
    assert memory.growth([n * MIB for n in range(20)]) == MIB
    assert memory.growth([100 * MIB] * 20) is None
    assert memory.growth([100 * MIB + n for n in range(20)]) is None, "less than counters lag"
    assert memory.growth([min(n, 6) * MIB for n in range(20)]) is None, "a cache that is full"
    assert memory.growth([-n * MIB for n in range(20)]) is None
    assert memory.growth([0, MIB, 2 * MIB]) is None
