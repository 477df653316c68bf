"""Which Python functions run in a call, how often, and how long the host is in each.

Those of the library under test, not of Python or of the framework it stands on. Counts are
exact and need no GPU; they are taken apart from times, and both apart from all timing. Times
are of calls that are watched, which makes each function longer: shares more than times. A
generator counts each time that it goes on.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

MOST = 200
"""Names that are told; the calls of all others are one, `OTHERS`."""

OTHERS = "others"

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "cupy")
"""Not told, but where one is itself the library under test."""

OURS = "regatta_worker"
"""What watches: its time is nobody's."""

UNNAMED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Functions in some versions of Python, and in others none."""

Enter = Callable[[CodeType, dict[str, Any]], None]
Leave = Callable[[CodeType], None]


class NotWatched(Exception):
    """Functions cannot be watched here; the text says why."""


Watch = Callable[["Tally"], contextlib.AbstractContextManager[Any]]
"""What has a tally told of a framework's operators while it is open."""

TIMED_CALLS = 3
"""Calls whose times are taken: their medians."""

BUDGET_S = 1.0
"""No further one begins after this long."""


@dataclass
class Watched:
    """What was seen of a few steady calls."""

    calls: dict[str, int] = field(default_factory=dict)
    """Of one call, by `module:function`."""

    functions_ns: dict[str, int] = field(default_factory=dict)
    """The host's nanoseconds in each function itself, without what it calls that is named."""

    operators_ns: dict[str, int] = field(default_factory=dict)
    """The same in the framework's operators."""

    uncounted: dict[str, str] = field(default_factory=dict)
    """Why something of it is left out."""


def of_call(call: Callable[[], Any], library: str, operators: Watch | None = None) -> Watched:
    """Calls of functions of one steady call, without those of which two calls did not have as
    many, and their own times; with the framework's operators where `operators` tells of them.
    """
    call()
    begun = time.monotonic()
    try:
        first = _watched(call, library, timed=False)
        timed = [_watched(call, library, timed=True, operators=operators)]
        while len(timed) < TIMED_CALLS and time.monotonic() < begun + BUDGET_S:
            timed.append(_watched(call, library, timed=True, operators=operators))
    except NotWatched as reason:
        return Watched(uncounted={"functions": str(reason)})
    second = timed[0]
    differ = {
        name for name in first.calls | second.calls if first.calls[name] != second.calls[name]
    }
    uncounted = {}
    if differ:
        name = min(differ)
        uncounted["functions"] = (
            f"{len(differ)} left out, of which two calls did not have as many, as of {name}: "
            f"{first.calls[name]} and {second.calls[name]}"
        )
    calls = {name: number for name, number in first.calls.items() if name not in differ}
    return Watched(
        bounded(calls),
        bounded(_medians([tally.functions_ns for tally in timed])),
        bounded(_medians([tally.operators_ns for tally in timed])),
        uncounted,
    )


def _medians(several: list[Counter[str]]) -> dict[str, int]:
    names = set().union(*several)
    return {name: int(statistics.median(one[name] for one in several)) for name in names}


def bounded(figures: dict[str, int], most: int = MOST) -> dict[str, int]:
    """The largest so many by name, the sum of all others as `OTHERS`."""
    order = sorted(figures, key=lambda name: (-figures[name], name))
    told = {name: figures[name] for name in sorted(order[:most])}
    rest = sum(figures[name] for name in order[most:])
    return told | ({OTHERS: rest} if rest else {})


@dataclass
class _Open:
    """Something that was entered and not left yet."""

    code: object
    own: Counter[str] | None
    """Where its own time goes: to whoever called it, where this is None."""
    name: str
    begin: int
    told_ns: int = 0
    """Of its time, what belongs to others."""


class Tally:
    """Calls of functions and operators, and the time of each itself: what it calls that is named
    has its own."""

    def __init__(self, library: str, timed: bool) -> None:
        roots = {*sys.stdlib_module_names, *FRAMEWORKS, OURS, "__main__"}
        self.calls: Counter[str] = Counter()
        self.functions_ns: Counter[str] = Counter()
        self.operators_ns: Counter[str] = Counter()
        self._nobodys_ns: Counter[str] = Counter()
        self._passed_over = roots - {library.partition(".")[0]}
        self._timed = timed
        self._names: dict[CodeType, str | None] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def enter(self, code: CodeType, names: dict[str, Any]) -> None:
        """A function begins, or goes on."""
        name = self._named(code, names)
        if name is not None:
            with self._lock:
                self.calls[name] += 1
        if self._timed:
            # What watching takes is nobody's.
            watching = str(names.get("__name__", "?")).partition(".")[0] == OURS
            own = self._nobodys_ns if watching else self.functions_ns if name else None
            self._stack().append(_Open(code, own, name or "", time.perf_counter_ns()))

    def operator(self, name: str, run: Callable[[], Any]) -> Any:
        """An operator of the framework that runs."""
        stack = self._stack()
        stack.append(_Open(run, self.operators_ns, name, time.perf_counter_ns()))
        try:
            return run()
        finally:
            self._end(stack, run)

    def leave(self, code: CodeType) -> None:
        """It returns, yields or raises. One that was begun unseen is passed over."""
        if not self._timed:
            return
        self._end(self._stack(), code)

    def _end(self, stack: list[_Open], code: object) -> None:
        """Ends the last that is of this code, and what was begun in it and whose end was not seen,
        as this function itself where it is watched."""
        ended = time.perf_counter_ns()
        place = len(stack) - 1
        while place >= 0 and stack[place].code is not code:
            place -= 1
        if place < 0:
            return
        left = stack[place]
        del stack[place:]
        spent = ended - left.begin
        if left.own is not None:
            with self._lock:
                left.own[left.name] += max(spent - left.told_ns, 0)
        if stack:
            stack[-1].told_ns += left.told_ns if left.own is None else spent

    def _stack(self) -> list[_Open]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[_Open] = self._local.stack
        return stack

    def _named(self, code: CodeType, names: dict[str, Any]) -> str | None:
        if code not in self._names:
            module = str(names.get("__name__", "?"))
            passed_over = module.partition(".")[0] in self._passed_over
            # Before Python 3.11 a function does not know what it is in.
            function = getattr(code, "co_qualname", code.co_name)
            passed_over = passed_over or code.co_name in UNNAMED
            self._names[code] = None if passed_over else f"{module}:{function}"
        return self._names[code]


def _watched(
    call: Callable[[], Any], library: str, timed: bool, operators: Watch | None = None
) -> Tally:
    tally = Tally(library, timed)
    watching = _monitoring if sys.version_info >= (3, 12) else _profiling
    within = operators(tally) if operators else contextlib.nullcontext()
    with within, watching(tally.enter, tally.leave):
        call()
    return tally


@contextlib.contextmanager
def _profiling(enter: Enter, leave: Leave) -> Iterator[None]:
    """Of this thread, and of those that it starts."""
    if sys.getprofile() is not None:
        raise NotWatched("another profiler watches this thread")

    def seen(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            enter(frame.f_code, frame.f_globals)
        elif event == "return":
            leave(frame.f_code)

    before = threading.getprofile()
    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(before)


@contextlib.contextmanager
def _monitoring(enter: Enter, leave: Leave) -> Iterator[None]:
    """Of all threads: those in which autograd runs a backward pass are not Python's own."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    free = [number for number in range(6) if monitoring.get_tool(number) is None]
    if not free:
        raise NotWatched("other tools hold all places of sys.monitoring")

    def begins(code: CodeType, *_: Any) -> None:
        enter(code, sys._getframe(1).f_globals)

    def ends(code: CodeType, *_: Any) -> None:
        leave(code)

    tool, events = free[-1], monitoring.events
    entering = (events.PY_START, events.PY_RESUME, events.PY_THROW)
    leaving = (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND)
    monitoring.use_tool_id(tool, "regatta")
    try:
        for of, seen in ((entering, begins), (leaving, ends)):
            for event in of:
                monitoring.register_callback(tool, event, seen)
        monitoring.set_events(tool, sum(entering) + sum(leaving))
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
