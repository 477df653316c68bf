"""Counts the runs of named functions in a call: backend selections, autotuning, compilations.

A function is wrapped while a few steady calls are counted, and restored afterwards, so
that the wrapper affects no timing. Every loaded module that holds the function under any
name gets the wrapper. A reference kept elsewhere (in a closure, an instance, a
`functools.partial`) bypasses it.
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
"""Uncounted calls with the wrappers in place: code that was compiled against the original
functions may be compiled again for the wrappers."""

COUNTED_CALLS = 8
FEWEST_CALLS = 2
BUDGET_S = 5.0
"""After this many seconds no further call is counted, once `FEWEST_CALLS` were."""

Done = TypeVar("Done")
Progress = Callable[..., Any]
Wrapping = Callable[[Callable[..., Any]], Callable[..., Any]]


class NotCountable(Exception):
    """Raised for a function that cannot be found or wrapped; the text says why."""


@dataclass(frozen=True)
class Counter:
    """Functions whose calls are counted as one kind of event."""

    name: str
    functions: tuple[str, ...]
    """Each is `module:qualified.name`."""
    progress: Progress | None = None
    """Maps a call's arguments to a value. A call is an event if it changes that value; with None
    every call is one."""


BUILT_IN = (
    Counter(
        "triton_autotune",
        (str(private.TRITON_RUN),),
        # The cache has one entry for each key that was tuned.
        progress=lambda autotuner, *_, **__: len(autotuner.cache),
    ),
    Counter("triton_compile", (str(private.TRITON_COMPILE),)),
    Counter("torch_compile", (str(private.TORCH_COMPILE),)),
    Counter("jax_compile", (str(private.JAX_COMPILE),)),
)
"""Counted without a request, if their modules are loaded. A module that is not loaded does no
work, and loading it only for the count would take seconds."""


class Tally:
    """Counts events of one kind and their own host time, which excludes the time of nested events
    in all tallies that share `within`."""

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

        # Functions in C lack some of the attributes, and theirs cannot be set.
        with contextlib.suppress(AttributeError, TypeError, ValueError):
            functools.update_wrapper(counted, function)
        return counted


def count(
    call: Callable[[], Any],
    asked: Sequence[Counter],
    built_in: Sequence[Counter] = BUILT_IN,
    agreed: Callable[[bool], bool] = bool,
) -> tuple[dict[str, int], dict[str, str]]:
    """Returns counts by name over steady calls, and the reasons for missing counts by name.

    `calls.NAME` is the largest number of events in one call, so that 0 means none in any call.
    `calls_in_8.NAME` is the sum over the counted calls, 8 here; present if calls differ.
    `ns.NAME` is the average host time inside events per call, in ns; present if there were any.

    If several processes must make each call together, `agreed` turns this process's wish to
    continue into the common decision.
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
    """Returns, by name, the events and their nanoseconds in each counted call."""
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
    """Replaces functions by wrappers until the context ends: in the module or class that defines
    each, and, after `replace_imported`, in all loaded modules that have imported it."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()
        self._wrapper_of: dict[int, tuple[Any, Any]] = {}
        """Maps the `id` of a replaced function to the function and its wrapper."""
        self._has_replaced = False

    def __enter__(self) -> Wrappers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._has_replaced:
            # Modules that were loaded in the meantime may have imported a wrapper.
            _replace_in_modules({id(new): (new, old) for old, new in self._wrapper_of.values()})
        self._undo.close()

    def add(self, function: str, wrapping: Wrapping, *, imported: bool = True) -> None:
        """Replaces a function in its module or class; `imported` has `replace_imported` include it.

        Raises NotCountable if the function does not exist or cannot be replaced.
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
        """Replaces the functions in all loaded modules. One search, of about 15 ms, finds all."""
        if self._wrapper_of:
            self._has_replaced = True
            _replace_in_modules(self._wrapper_of)


@contextlib.contextmanager
def wrapped(function: str, wrapping: Wrapping) -> Iterator[None]:
    """Replaces a function by `wrapping(function)`, only in its own module or class."""
    with Wrappers() as wrappers:
        wrappers.add(function, wrapping, imported=False)
        yield


def _find(function: str) -> tuple[Any, str, Any]:
    """Returns the module or class that holds a function, its name there, and the attribute."""
    module, _, qualified = function.partition(":")
    *path, name = qualified.split(".")
    try:
        owner: Any = importlib.import_module(module)
        for step in path:
            owner = getattr(owner, step)
        found = getattr(owner, name)
    except Exception as error:
        # Importing a module may raise anything, which must not fail the case.
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
    """Replaces objects in all loaded modules, under any name. `replacements` maps an object's `id`
    to the object and its replacement. If a replacement is itself replaced, the last one is used."""
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
"""The parts of a first call, and the functions whose time counts for each part.

These functions are wrapped during the call if their modules are already loaded. Modules that the
call itself imports are not seen, and their time is in no part. The time of a part excludes the
parts nested in it, so that all parts together take no longer than the call.
"""


def first_call(call: Callable[[], Done], wait: Callable[[], Any]) -> tuple[Done, Message]:
    """Makes the first call and waits for the device, which must be idle before. Returns the
    results, and the members of `prepared` with the time of the call and of its parts."""
    within = threading.local()
    parts = {name: Tally(within=within) for name, _ in WATCHED}
    with Wrappers() as wrappers:
        for name, function in WATCHED:
            module, _, qualified = function.partition(":")
            if module in sys.modules:
                # Modules cannot import a method by itself. Another version may lack the function,
                # whose time is then in no part.
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
