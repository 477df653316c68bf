"""Which Python functions run in a call, how often, and how long the host is in each.

Those of the library under test, not of Python or of the framework it stands on. Counts are
exact and need no GPU; they are taken apart from times, and both apart from all timing. A
generator counts each time that it goes on.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

MOST = 200
"""Names that are told; the calls of all others are one, `OTHERS`."""

OTHERS = "others"

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "cupy")
"""Not told, but where one is itself the library under test."""

UNNAMED = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Functions in some versions of Python, and in others none."""

Enter = Callable[[CodeType, dict[str, Any]], None]
Leave = Callable[[CodeType], None]


class NotWatched(Exception):
    """Functions cannot be watched here; the text says why."""


def of_call(
    call: Callable[[], Any], library: str
) -> tuple[dict[str, int], dict[str, int], dict[str, str]]:
    """Calls and host nanoseconds of one steady call by `module:function`, and why calls of
    some are left out: those of which two calls did not have as many.
    """
    call()
    try:
        first, second = (_watched(call, library, timed) for timed in (False, True))
    except NotWatched as reason:
        return {}, {}, {"functions": str(reason)}
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
    return bounded(calls), bounded(second.nanoseconds), uncounted


def bounded(figures: dict[str, int], most: int = MOST) -> dict[str, int]:
    """The largest so many by name, the sum of all others as `OTHERS`."""
    order = sorted(figures, key=lambda name: (-figures[name], name))
    told = {name: figures[name] for name in sorted(order[:most])}
    rest = sum(figures[name] for name in order[most:])
    return told | ({OTHERS: rest} if rest else {})


class Tally:
    """Calls of functions, and the time in each: what it calls is in it, itself only once."""

    def __init__(self, library: str, timed: bool) -> None:
        roots = {*sys.stdlib_module_names, *FRAMEWORKS, "regatta_worker", "__main__"}
        self.calls: Counter[str] = Counter()
        self.nanoseconds: Counter[str] = Counter()
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
            stack, open_ = self._thread()
            if name is not None:
                open_[name] += 1
            stack.append((code, name, time.perf_counter_ns()))

    def leave(self, code: CodeType) -> None:
        """It returns, yields or raises. One that was begun unseen is passed over."""
        if not self._timed:
            return
        stack, open_ = self._thread()
        if not stack or stack[-1][0] is not code:
            return
        _, name, begin = stack.pop()
        if name is None:
            return
        open_[name] -= 1
        if open_[name] == 0:
            spent = time.perf_counter_ns() - begin
            with self._lock:
                self.nanoseconds[name] += spent

    def _thread(self) -> tuple[list[tuple[CodeType, str | None, int]], Counter[str]]:
        if not hasattr(self._local, "state"):
            self._local.state = ([], Counter())
        state: tuple[list[tuple[CodeType, str | None, int]], Counter[str]] = self._local.state
        return state

    def _named(self, code: CodeType, names: dict[str, Any]) -> str | None:
        if code not in self._names:
            module = str(names.get("__name__", "?"))
            passed_over = module.partition(".")[0] in self._passed_over
            # Before Python 3.11 a function does not know what it is in.
            function = getattr(code, "co_qualname", code.co_name)
            passed_over = passed_over or code.co_name in UNNAMED
            self._names[code] = None if passed_over else f"{module}:{function}"
        return self._names[code]


def _watched(call: Callable[[], Any], library: str, timed: bool) -> Tally:
    tally = Tally(library, timed)
    watching = _monitoring if sys.version_info >= (3, 12) else _profiling
    with watching(tally.enter, tally.leave):
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
