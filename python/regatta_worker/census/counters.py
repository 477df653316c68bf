"""Counts the runs of named functions in a call: backend selections, autotuning, compilations.

A function is wrapped while a few steady calls are counted and put back afterwards, so
that nothing of it is in any timing. Every loaded module that holds the function under any
name gets the wrapper. A reference kept elsewhere (in a closure, an instance, a
`functools.partial`) passes by it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from regatta_worker.census import private
from regatta_worker.protocol.channel import Message

WARMUP_CALLS = 2
"""Calls with the wrappers in place before any is counted: what compiles against the
functions it refers to may compile again for them."""

COUNTED_CALLS = 8
FEWEST_CALLS = 2
BUDGET_S = 5.0
"""Past `FEWEST_CALLS`, no further call is counted after this long."""

Done = TypeVar("Done")
Progress = Callable[..., Any]
Wrapping = Callable[[Callable[..., Any]], Callable[..., Any]]


class NotCountable(Exception):
    """A function that cannot be found or wrapped; the text says why."""


@dataclass(frozen=True)
class Counter:
    """Functions whose calls are one kind of event."""

    name: str
    functions: tuple[str, ...]
    """Each `module:qualified.name`."""
    progress: Progress | None = None
    """A value of the arguments that a call changes if it is an event. None: every call is."""


BUILT_IN = (
    Counter(
        "triton_autotune",
        (str(private.TRITON_RUN),),
        # One entry for each key that was tuned.
        progress=lambda autotuner, *_, **__: len(autotuner.cache),
    ),
    Counter("triton_compile", (str(private.TRITON_COMPILE),)),
    Counter("torch_compile", (str(private.TORCH_COMPILE),)),
    Counter("jax_compile", (str(private.JAX_COMPILE),)),
)
"""Counted without being asked for, each where its module is loaded: what is not loaded
does nothing, and loading it for the count would take seconds."""


class Tally:
    """Events of one kind, and the host's time that is their own: less that of events within them,
    of tallies that share `within`."""

    def __init__(
        self, progress: Progress | None = None, within: threading.local | None = None
    ) -> None:
        self.events = 0
        self.nanoseconds = 0
        self._progress = progress
        self._lock = threading.Lock()
        self._within = within or threading.local()

    def clear(self) -> None:
        self.events = self.nanoseconds = 0

    def wrapping(self, function: Callable[..., Any]) -> Callable[..., Any]:
        within, progress = self._within, self._progress

        def counted(*args: Any, **kwargs: Any) -> Any:
            before = progress(*args, **kwargs) if progress else None
            outer = getattr(within, "events_ns", 0)
            within.events_ns = 0
            begin = time.perf_counter_ns()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter_ns() - begin
                own, within.events_ns = spent - within.events_ns, outer + within.events_ns
                if progress is None or progress(*args, **kwargs) != before:
                    within.events_ns = outer + spent
                    with self._lock:
                        self.events += 1
                        self.nanoseconds += own

        # Functions of C have not all the attributes, and none that can be set.
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            functools.update_wrapper(counted, function)
        return counted


def count(
    call: Callable[[], Any],
    asked: Sequence[Counter],
    built_in: Sequence[Counter] = BUILT_IN,
    agreed: Callable[[bool], bool] = bool,
) -> tuple[dict[str, int], dict[str, str]]:
    """Counts by name over steady calls, and why those that are missing could not be had.

    `calls.NAME` is the most events in any one call, so that 0 means none in all of them;
    `calls_in_8.NAME` their sum over the calls counted, where calls differ; `ns.NAME`, where
    there were any, the host's time inside them in nanoseconds a call, on average.

    `agreed` gives the common answer to one's own wish to continue, where a call is made by several
    processes together or by none.
    """
    loaded = [
        counter
        for counter in built_in
        if all(function.partition(":")[0] in sys.modules for function in counter.functions)
    ]
    with Wrappers() as wrappers:
        tallies: dict[str, Tally] = {}
        uncounted: dict[str, str] = {}
        for counter in (*asked, *loaded):
            tally = Tally(counter.progress)
            try:
                for function in counter.functions:
                    wrappers.add(function, tally.wrapping)
            except NotCountable as reason:
                uncounted[f"calls.{counter.name}"] = str(reason)
            else:
                tallies[counter.name] = tally
        wrappers.replace_imported()
        return (_counts(_events(call, tallies, agreed)) if tallies else {}), uncounted


def _events(
    call: Callable[[], Any], tallies: dict[str, Tally], agreed: Callable[[bool], bool]
) -> dict[str, list[tuple[int, int]]]:
    """Events and their nanoseconds in each counted call."""
    for _ in range(WARMUP_CALLS):
        call()
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in tallies}
    begin = time.monotonic()
    for number in range(COUNTED_CALLS):
        if number >= FEWEST_CALLS and not agreed(time.monotonic() - begin <= BUDGET_S):
            break
        for tally in tallies.values():
            tally.clear()
        call()
        for name, tally in tallies.items():
            found[name].append((tally.events, tally.nanoseconds))
    return found


def _counts(found: dict[str, list[tuple[int, int]]]) -> dict[str, int]:
    counts = {}
    for name, calls in found.items():
        events = [number for number, _ in calls]
        counts[f"calls.{name}"] = max(events)
        if min(events) != max(events):
            counts[f"calls_in_{len(calls)}.{name}"] = sum(events)
        if any(events):
            counts[f"ns.{name}"] = sum(spent for _, spent in calls) // len(calls)
    return counts


class Wrappers:
    """Functions that are replaced by wrappers of them until the end: where each lies, and, once
    `replace_imported` was called, where loaded modules have imported it."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._wrapper_of: dict[int, tuple[Any, Any]] = {}
        """By its address, each function that is replaced, and its wrapper."""
        self._has_replaced = False

    def __enter__(self) -> Wrappers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._has_replaced:
            # Modules loaded meanwhile have imported a wrapper.
            _replace_in_modules({id(new): (new, old) for old, new in self._wrapper_of.values()})
        self._undo.close()

    def add(self, function: str, wrapping: Wrapping, *, imported: bool = True) -> None:
        """Replaces a function where it lies; `imported` as modules have imported it, too.

        Raises NotCountable where it is not there, or cannot be replaced.
        """
        owner, name, found = _find(function)
        own = name in vars(owner)
        kind = type(found) if isinstance(found, (staticmethod, classmethod)) else None
        original = found.__func__ if kind else found
        counted = wrapping(original)
        try:
            setattr(owner, name, kind(counted) if kind else counted)
        except (AttributeError, TypeError) as error:
            raise NotCountable(f"{function} cannot be wrapped: {error}") from error
        if own:
            self._undo.callback(setattr, owner, name, found)
        else:
            self._undo.callback(delattr, owner, name)
        if imported:
            self._wrapper_of[id(original)] = original, counted

    def replace_imported(self) -> None:
        """Replaces the functions in all loaded modules, in one search: it takes some 15 ms."""
        if self._wrapper_of:
            self._has_replaced = True
            _replace_in_modules(self._wrapper_of)


@contextlib.contextmanager
def wrapped(function: str, wrapping: Wrapping) -> Iterator[None]:
    """A function replaced by what `wrapping` makes of it, where it lies alone."""
    with Wrappers() as wrappers:
        wrappers.add(function, wrapping, imported=False)
        yield


def _find(function: str) -> tuple[Any, str, Any]:
    """The module or class that a function is looked up in, its name there, and what lies there."""
    module, _, qualified = function.partition(":")
    *path, name = qualified.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for step in path:
            owner = getattr(owner, step)
        found = getattr(owner, name)
    except Exception as error:
        # A module may do anything when it is loaded; the case must not fail by it.
        raise NotCountable(f"{function} is not there: {type(error).__name__}: {error}") from error
    if isinstance(owner, type):
        found = inspect.getattr_static(owner, name)
    is_function = callable(found) or isinstance(found, classmethod)
    if isinstance(owner, (ModuleType, type)) and is_function and not isinstance(found, type):
        return owner, name, found
    raise NotCountable(
        f"{function} is a {type(found).__name__} of a {type(owner).__name__}: name a function of "
        "a module, or a method of a class"
    )


def _replace_in_modules(replacements: dict[int, tuple[Any, Any]]) -> None:
    """Puts the second of each two wherever a loaded module holds the first under any name. They
    stand by the address of the first; of a function that was replaced twice, the last counts."""
    for module in list(sys.modules.values()):
        names = vars(module) if isinstance(module, ModuleType) else {}
        if replacements.keys().isdisjoint(map(id, list(names.values()))):
            continue
        for name, value in list(names.items()):
            while id(value) in replacements:
                value = replacements[id(value)][1]
            if names.get(name) is not value:
                names[name] = value


WATCHED = (
    ("tuning", str(private.TRITON_TUNE)),
    ("compiling", str(private.TRITON_COMPILE)),
    ("loading", str(private.TRITON_LOAD)),
    ("tracing", str(private.TORCH_TRACE)),
    ("compiling", str(private.TORCH_COMPILE)),
    ("compiling", str(private.FLASHINFER_BUILD)),
    ("loading", str(private.FLASHINFER_LOAD)),
    ("compiling", str(private.CUPY_COMPILE)),
    ("planning", "regatta_worker.libraries.cudnn:ProblemGraphs._planned"),
)
"""The parts of a first call, and the functions whose time they are.

Functions that do such work are wrapped while the call is made, where their modules are loaded
already: what a call itself imports is not seen, and its time is in no part. Each part has the
time that is its own, less that of parts within it, so that they add up to no more than the call.
"""


def first_call(call: Callable[[], Done], wait: Callable[[], Any]) -> tuple[Done, Message]:
    """Makes the call and waits for the device, which was idle before: the results, and the
    members of `prepared` that say how long it took."""
    within = threading.local()
    parts = {name: Tally(within=within) for name, _ in WATCHED}
    with Wrappers() as wrappers:
        for name, function in WATCHED:
            module, _, qualified = function.partition(":")
            if module in sys.modules:
                # A method cannot be imported. Another version may lack the function: then it is
                # in no part.
                with contextlib.suppress(NotCountable):
                    imported = "." not in qualified
                    wrappers.add(function, parts[name].wrapping, imported=imported)
        wrappers.replace_imported()
        begin = time.perf_counter_ns()
        results = call()
        wait()
        nanoseconds = float(time.perf_counter_ns() - begin)
    found = {
        name: {"ns": float(part.nanoseconds), "count": part.events}
        for name, part in parts.items()
        if part.events
    }
    return results, {"first_call_ns": nanoseconds, "first_call_parts": found}
