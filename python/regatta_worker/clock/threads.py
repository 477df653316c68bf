"""CPU time and waits of each thread of this process in a call (docs/TIMING.md, threads and waits).

crates/worker/src/on_processor/threads.rs reads the same for workers in Rust.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from dataclasses import dataclass

# Bound here, because the code under test, which is imported later, may replace them.
from os import fstat, listdir, pread, sched_getaffinity, sched_setaffinity
from time import clock_gettime_ns, process_time_ns

TASKS = "/proc/self/task"

MIN_CPU_NS = 5_000
"""Least CPU time in a call of a thread that counts as computing. A thread that wakes up, finds
nothing to do and sleeps again takes 2 to 4 µs."""

MIN_PART = 10
"""A thread computes only if it has at least 1/MIN_PART of the busiest thread's CPU time. Threads
that share the work of a call have about equal CPU times, however many there are. A timer, a
garbage collector or the thread that hands out work and waits for it (10 to 20 µs) has less."""


@dataclass(frozen=True)
class CallUsage:
    """The use of cores in one call. A figure that the kernel does not report is None."""

    cpu_ns: int
    """CPU time of the process; 0 if its clock does not advance."""
    preempted: int
    """Number of times that a thread of the process lost its core involuntarily."""
    page_faults: int = 0
    """Pages of memory that the process touched for the first time (minor faults)."""
    threads: int | None = None
    """Number of threads that computed."""
    waited_ns: int | None = None
    """Total time in which these threads were ready to run but had no core."""
    missed_thread: bool = False
    """True if at least a tenth of the CPU time, and at least `MIN_CPU_NS`, belongs to no thread
    that computed, for example to one that began and ended within the call."""
    own_cpu_ns: int = 0
    """CPU time of the calling thread."""

    def device_ns(self, wall_ns: int) -> float:
        """Returns the wall time of the call, less the waits for a core if it ran on one thread.

        The result is at least the thread's CPU time: a wait that falls between the readings of two
        clocks would otherwise be subtracted from a time that does not include it.
        """
        if self.threads != 1 or self.waited_ns is None or self.missed_thread:
            return float(wall_ns)
        return float(max(wall_ns - self.waited_ns, min(self.own_cpu_ns, wall_ns)))


class _Thread:
    """One thread and its figures at the beginning of a call."""

    def __init__(self, number: int, waits_shown: bool) -> None:
        # The CPU clock of the thread with this id, as Linux's `MAKE_THREAD_CPUCLOCK` forms it. It
        # is exact for a running thread, whose schedstat lags by up to a scheduler tick.
        self.clock = ~number << 3 | 6
        self.cpu_ns = 0
        self.waited_ns: int | None = 0
        self._schedstat: int | None = None
        if waits_shown:
            with contextlib.suppress(OSError):
                self._schedstat = os.open(f"{TASKS}/{number}/schedstat", os.O_RDONLY)

    def cpu_now(self) -> int | None:
        """Returns the CPU time in ns; None if the thread has ended."""
        try:
            return clock_gettime_ns(self.clock)
        except OSError:
            return None

    def figure(self, place: int) -> int | None:
        """Returns the schedstat field at `place`: 0 is the CPU time, 1 the time ready without a
        core, 2 the number of times on a core. None if it cannot be read."""
        if self._schedstat is None:
            return None
        try:
            return int(pread(self._schedstat, 64, 0).split()[place])
        except (OSError, IndexError, ValueError):
            return None

    def waited_now(self) -> int | None:
        return self.figure(1)

    def close(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None


class Threads(contextlib.AbstractContextManager["Threads"]):
    """Reads all threads of this process before and after each call of the creating thread.

    Descriptors stay open until the end, and threads are listed again only when their number
    changes: a sample takes 13 µs for one thread, 17 µs for two, 250 µs for 64.
    """

    def __init__(self) -> None:
        self._folder: int | None = None
        with contextlib.suppress(OSError):
            self._folder = os.open(TASKS, os.O_RDONLY | os.O_DIRECTORY)
        self._links = 0
        """Link count of the folder when threads were listed; it changes with their number."""
        self._own_number = threading.get_native_id()
        self._own = _Thread(self._own_number, True)
        # Without `CONFIG_SCHED_INFO` every figure is 0, even the number of times on a core.
        self._waits_shown = bool(self._own.figure(2))
        if not self._waits_shown:
            self._own.close()
        self._others: dict[int, _Thread] = {}
        self._process_ns, self._counts = 0, (0, 0)

    def __exit__(self, *error: object) -> None:
        for thread in (self._own, *self._others.values()):
            thread.close()
        if self._folder is not None:
            os.close(self._folder)

    def _list(self) -> None:
        """Lists the threads again if their number has changed. A new thread starts with zero CPU
        time and waits."""
        if self._folder is None or (links := fstat(self._folder).st_nlink) == self._links:
            return
        numbers = {int(name) for name in listdir(TASKS)} - {self._own_number}
        for number in self._others.keys() - numbers:
            self._others.pop(number).close()
        for number in numbers - self._others.keys():
            self._others[number] = _Thread(number, self._waits_shown)
        self._links = links

    def begin(self) -> None:
        """Reads all figures right before a call; the calling thread and the process last."""
        self._list()
        for number, thread in list(self._others.items()):
            thread.waited_ns = thread.waited_now()
            if (cpu_ns := thread.cpu_now()) is None:
                self._others.pop(number).close()
            else:
                thread.cpu_ns = cpu_ns
        self._counts = _preemptions_and_faults()
        self._own.waited_ns = self._own.waited_now()
        self._own.cpu_ns = self._own.cpu_now() or 0
        self._process_ns = process_time_ns()

    def end(self) -> CallUsage:
        """Reads all figures right after the call; the process and the calling thread first."""
        cpu_ns = process_time_ns() - self._process_ns
        own_ns, own_waited_ns = self._own.cpu_now(), self._own.waited_now()
        counts = _preemptions_and_faults()
        preempted, faults = (now - then for now, then in zip(counts, self._counts, strict=True))
        self._list()
        if self._folder is None or own_ns is None or cpu_ns <= 0:
            return CallUsage(max(cpu_ns, 0), preempted, faults)

        own = (own_ns - self._own.cpu_ns, _since(own_waited_ns, self._own.waited_ns))
        computed = [own]
        for thread in self._others.values():
            if (now_ns := thread.cpu_now()) is not None:
                waited_ns = _since(thread.waited_now(), thread.waited_ns)
                computed.append((now_ns - thread.cpu_ns, waited_ns))
        least_ns = max(MIN_CPU_NS, max(ns for ns, _ in computed) // MIN_PART)
        computed = [(ns, waited_ns) for ns, waited_ns in computed if ns >= least_ns]
        # If one other thread did the work, the calling thread, which started it and waited for
        # it, counts too.
        if len(computed) < 2 and own[0] < least_ns:
            computed.append(own)

        waits = [waited_ns for _, waited_ns in computed if waited_ns is not None]
        missed_ns = cpu_ns - sum(ns for ns, _ in computed)
        return CallUsage(
            cpu_ns,
            preempted,
            faults,
            threads=len(computed),
            waited_ns=sum(waits) if len(waits) == len(computed) else None,
            missed_thread=missed_ns >= max(MIN_CPU_NS, cpu_ns // MIN_PART),
            own_cpu_ns=own[0],
        )


class OneCore(contextlib.AbstractContextManager["OneCore"]):
    """Keeps the calling thread on one core while calls run on this thread alone.

    Two processes that take turns then share a core, and so its clock and its neighbours: cores
    of one machine differ by a fifth and more. Other existing threads are not moved. A call that
    uses another thread ends the pinning, as new threads would start on that core.
    """

    def __init__(self, core: int | None) -> None:
        self._core, self._before = core, sched_getaffinity(0)
        self._on_one_thread = False
        self.pinned: int | None = None

    def saw(self, usage: CallUsage) -> None:
        """Ends the pinning if the call with this `usage` used more than the calling thread."""
        self._on_one_thread = usage.threads == 1 and not usage.missed_thread
        if not self._on_one_thread:
            self._release()

    def begin(self) -> None:
        """Pins the thread if the last call ran on it alone."""
        if self._on_one_thread:
            self.pin()

    def pin(self) -> None:
        """Pins the thread. The caller knows that calls run on it alone."""
        if self._core in self._before:
            with contextlib.suppress(OSError):
                sched_setaffinity(0, {self._core})
                self.pinned = self._core

    def _release(self) -> None:
        if self.pinned is not None:
            sched_setaffinity(0, self._before)
            self.pinned = None

    def __exit__(self, *error: object) -> None:
        self._release()


def usage_lists(usages: list[CallUsage]) -> dict[str, list[int]]:
    """Returns members of `measured` with one entry per call, if known for every call."""
    names = ["cpu_ns", "preempted", "page_faults"] if all(usage.cpu_ns for usage in usages) else []
    # A thread missed in at most one call of ten does not change the median.
    if 10 * sum(usage.missed_thread for usage in usages) <= len(usages):
        names += ["threads", "waited_ns"]
    lists = {name: [getattr(usage, name) for usage in usages] for name in names}
    return {name: figures for name, figures in lists.items() if None not in figures}


def _since(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _preemptions_and_faults() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nivcsw, usage.ru_minflt
