"""CPU time and waits of each thread of this process in a call (docs/TIMING.md, threads and waits).

As crates/worker/src/on_processor/threads.rs reads them.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
from dataclasses import dataclass

# Bound here, before the code under test is imported, which may replace them.
from os import fstat, listdir, pread, sched_getaffinity, sched_setaffinity
from time import clock_gettime_ns, process_time_ns

TASKS = "/proc/self/task"

MIN_CPU_NS = 5_000
"""Least CPU time of a thread that computed in a call. One that wakes up, finds nothing to do and
sleeps again takes 2 to 4 µs."""

MIN_PART = 10
"""The least part of the busiest thread's CPU time, a tenth. Threads that share the work of a call
have about as much each, however many there are. A timer, a collector or the thread that hands the
work out and waits for it (10 to 20 µs) has less."""


@dataclass(frozen=True)
class CallUsage:
    """The use of the cores in one call; a figure that the kernel does not show is None."""

    cpu_ns: int
    """CPU time of the process; 0 where its clock does not move."""
    preempted: int
    """Times that a core was taken from it."""
    page_faults: int = 0
    """Pages of memory that the system gave it when it touched them first."""
    threads: int | None = None
    """Threads that computed."""
    waited_ns: int | None = None
    """Time that they were ready and had no core, together."""
    missed_thread: bool = False
    """True where more than a tenth of the CPU time is of no thread that counts, as of one that
    began and ended within the call."""
    own_cpu_ns: int = 0
    """CPU time of the calling thread."""

    def device_ns(self, wall_ns: int) -> float:
        """The time of the call by a clock on the wall, without the waits for a core where it ran
        on one thread.

        No less than the thread's CPU time: a wait between two readings of different clocks would
        be taken out of a time that it is not in.
        """
        if self.threads != 1 or self.waited_ns is None or self.missed_thread:
            return float(wall_ns)
        return float(max(wall_ns - self.waited_ns, min(self.own_cpu_ns, wall_ns)))


class _Thread:
    """One thread, as it was when a call began."""

    def __init__(self, number: int, waits_shown: bool) -> None:
        # The clock of a thread by its id, as `MAKE_THREAD_CPUCLOCK` of Linux has it. It is exact
        # for a thread that runs, for which schedstat lags by a tick of the scheduler.
        self.clock = ~number << 3 | 6
        self.cpu_ns = 0
        self.waited_ns: int | None = 0
        self._schedstat: int | None = None
        if waits_shown:
            with contextlib.suppress(OSError):
                self._schedstat = os.open(f"{TASKS}/{number}/schedstat", os.O_RDONLY)

    def cpu_now(self) -> int | None:
        """The CPU time; None where the thread has ended."""
        try:
            return clock_gettime_ns(self.clock)
        except OSError:
            return None

    def figure(self, place: int) -> int | None:
        """CPU time, time ready without a core, or number of times on a core."""
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
    """The threads of this process, read before and after each call of the thread that made this.

    Descriptors stay open until the end, and threads are listed again only when their number
    changes: a sample takes 13 µs for one thread, 17 µs for two, 250 µs for 64.
    """

    def __init__(self) -> None:
        self._folder: int | None = None
        with contextlib.suppress(OSError):
            self._folder = os.open(TASKS, os.O_RDONLY | os.O_DIRECTORY)
        self._links = 0
        """Links of the folder when threads were listed, which rise and fall with their number."""
        self._own_number = threading.get_native_id()
        self._own = _Thread(self._own_number, True)
        # Without `CONFIG_SCHED_INFO` each figure is 0, also how often it was on a core.
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
        """Lists the threads again where their number has changed. A new one has no CPU time and no
        waits before."""
        if self._folder is None or (links := fstat(self._folder).st_nlink) == self._links:
            return
        numbers = {int(name) for name in listdir(TASKS)} - {self._own_number}
        for number in self._others.keys() - numbers:
            self._others.pop(number).close()
        for number in numbers - self._others.keys():
            self._others[number] = _Thread(number, self._waits_shown)
        self._links = links

    def begin(self) -> None:
        """Reads all, right before a call; the process and the calling thread last."""
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
        """Reads all right after the call, the process and the calling thread first."""
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
        # The calling thread began the work of a single other, and waited for it.
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
    """Keeps the calling thread on one core while its calls run on this thread alone.

    Two processes that take turns then share a core, and with it its clock and its neighbours:
    cores of one machine differ by a fifth and more. Threads that exist are left where they are. A
    call that uses another thread ends it, as new threads would begin on that core.
    """

    def __init__(self, core: int | None) -> None:
        self._core, self._before = core, sched_getaffinity(0)
        self._on_one_thread = False
        self.pinned: int | None = None

    def saw(self, usage: CallUsage) -> None:
        """Takes in what a call used."""
        self._on_one_thread = usage.threads == 1 and not usage.missed_thread
        if not self._on_one_thread:
            self._release()

    def begin(self) -> None:
        """Pins the thread, if the last call ran on it alone."""
        if self._on_one_thread:
            self.pin()

    def pin(self) -> None:
        """Pins the thread, whose calls are known to run on it alone."""
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
    """Members of `measured` with an entry a call, those that are known of each."""
    names = ["cpu_ns", "preempted", "page_faults"] if all(usage.cpu_ns for usage in usages) else []
    # A thread that was missed in one call of ten changes no median.
    if 10 * sum(usage.missed_thread for usage in usages) <= len(usages):
        names += ["threads", "waited_ns"]
    lists = {name: [getattr(usage, name) for usage in usages] for name in names}
    return {name: figures for name, figures in lists.items() if None not in figures}


def _since(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else now - before


def _preemptions_and_faults() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nivcsw, usage.ru_minflt
