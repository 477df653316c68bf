"""Counts the Python functions that one call runs, and PyTorch's operators.

Functions are those of the library under test, and those of Python and of other modules that it
calls itself: `re:compile`, `gc:collect`, `numpy:ndarray.copy`. What these call in turn is not
counted, nor what every line calls: `builtins`, and methods of lists, dictionaries and strings.
Counts are exact and need no GPU. A generator counts each time that it is resumed. The part of a
call that each takes is that of a profiled call, and tells only where a change lies.
"""

from __future__ import annotations

import contextlib
import cProfile
import gc
import math
import re
import sys
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from regatta_worker.census.private import TORCH_COMPILED

MOST = 200
"""Names that are listed; the calls of all others are summed up as `OTHERS`."""

OTHERS = "others"

PARTS = "ppm.in."
"""Before a function in the name of its part of a call."""

MOST_PARTS = 4
LEAST_PART = 0.05
"""Functions whose parts are listed: those with the largest, from this one on."""

QUICK_S = 0.02
QUICK_CALLS = 5
"""Calls that are profiled of a call that takes less, since each may be disturbed."""

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "cupy")
"""Left out, unless one is itself the library under test."""

OURS = "regatta_worker"

OF_ANOTHER_MODULE = re.compile(
    r"<built-in method (?!builtins\.)([\w.]+)\.(\w+)>|<method '(\w+)' of '([\w.]+)\.(\w+)' objects>"
)
"""A function in C, as the profiler names it; a type of `builtins` has no module in its name."""

MAIN = ("__main__", "__mp_main__")
"""Names of a script's module: its functions are named by its file."""

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Comprehensions are functions in some versions of Python, and in others none."""

IN_FUNCTION = rf"\.<locals>\.({'|'.join(COMPREHENSIONS)})$"
"""The rest of a comprehension's name, after its function's."""


def count_memory(call: Callable[[], Any]) -> dict[str, int]:
    """The most that a steady call allocates of Python's and NumPy's memory, beyond what there was
    before; its collections of garbage, and the CPU time in these."""
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start()
    try:
        gc.collect()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not was_tracing:
            tracemalloc.stop()
    # In a call that is not traced.
    times: list[int] = []

    def watch(phase: str, _: dict[str, int]) -> None:
        times.append(time.thread_time_ns())

    gc.collect()
    gc.callbacks.append(watch)
    try:
        call()
    finally:
        gc.callbacks.remove(watch)
    lasted = sum(stop - start for start, stop in zip(times[::2], times[1::2], strict=False))
    return {
        "call_peak_bytes": max(peak - before, 0),
        "garbage_collections": len(times) // 2,
        "ns.garbage_collections": lasted,
    }


Counted = tuple[dict[str, int], dict[str, int], dict[str, str]]
"""Functions by name and how often each ran; the millionths of the call that those with the largest
parts take; and why something is left out."""


def count_functions(call: Callable[[], Any], library: str) -> Counted:
    """Counts the functions that one steady call runs by `module:function`, except those whose
    counts differ between two calls."""
    call()
    modules = {
        file: Path(file).stem if name in MAIN else name
        for name, module in list(sys.modules.items())
        if isinstance(file := getattr(module, "__file__", None), str)
    }
    try:
        begin = time.perf_counter()
        profiles = [_profiled(call, library, modules) for _ in range(2)]
        if time.perf_counter() - begin < 2 * QUICK_S:
            profiles += [_profiled(call, library, modules) for _ in range(2, QUICK_CALLS)]
    except ValueError as error:
        # Another profiler watches.
        return {}, {}, {"functions": str(error)}
    (first, _), (second, _) = profiles[:2]
    differ = {name for name in first | second if first[name] != second[name]}
    uncounted = {}
    if differ:
        name = min(differ)
        uncounted["functions"] = (
            f"{len(differ)} left out, of which two calls did not have as many, as of {name}: "
            f"{first[name]} and {second[name]}"
        )
    same = {name: first[name] for name in first if name not in differ}
    return bounded(same), parts([times for _, times in profiles]), uncounted


def parts(profiles: list[dict[str, float]]) -> dict[str, int]:
    """The largest parts of a call that functions take, by the least time of each."""
    names = {name for times in profiles for name in times}
    least = {name: min(times.get(name, math.inf) for times in profiles) for name in names}
    part = {name: least[name] / (sum(least.values()) or 1.0) for name in least}
    largest = sorted(part, key=lambda name: -part[name])[:MOST_PARTS]
    return {PARTS + name: round(1e6 * part[name]) for name in largest if part[name] >= LEAST_PART}


def bounded(figures: dict[str, int], most: int = MOST) -> dict[str, int]:
    """The largest so many by name, the sum of all others as `OTHERS`."""
    order = sorted(figures, key=lambda name: (-figures[name], name))
    listed = {name: figures[name] for name in sorted(order[:most])}
    rest = sum(figures[name] for name in order[most:])
    return listed | ({OTHERS: rest} if rest else {})


def _profiled(
    call: Callable[[], Any], library: str, modules: dict[str, str]
) -> tuple[Counter[str], dict[str, float]]:
    """The functions of one call, of a backward pass too, which runs in this thread; and the seconds
    in each: of the library's own without those that have a name here. `modules` has the name of
    each file's module."""
    profile = cProfile.Profile()
    torch = sys.modules.get("torch")
    with torch.autograd.set_multithreading_enabled(False) if torch else contextlib.nullcontext():
        profile.runcall(call)
    left_out = {*sys.stdlib_module_names, *FRAMEWORKS, OURS} - {library.split(".")[0]}

    def named(code: CodeType | str) -> tuple[str, str]:
        """The module of a function, if it is known, and its name."""
        if isinstance(code, CodeType):
            # Before Python 3.11 a function does not know what it is in.
            name = getattr(code, "co_qualname", code.co_name)
            return modules.get(code.co_filename, ""), name
        words = OF_ANOTHER_MODULE.fullmatch(code)
        if words is None:
            return "", code
        module, function, method, package, kind = words.groups()
        return (module, function) if module else (package, f"{kind}.{method}")

    calls: Counter[str] = Counter()
    times: dict[str, float] = defaultdict(float)
    for entry in profile.getstats():
        module, name = named(entry.code)
        if not module or module.partition(".")[0] in left_out:
            continue
        # A comprehension is a part of its function.
        caller = f"{module}:{re.sub(IN_FUNCTION, '', name)}"
        times[caller] += entry.inlinetime
        if not name.endswith(COMPREHENSIONS):
            calls[f"{module}:{name}"] += entry.callcount
        for callee in entry.calls or ():
            module, name = named(callee.code)
            top = module.partition(".")[0]
            private = re.search(r"(^|\.)_(?!_)[^.]*$", name)
            # Functions in C have no entry of their own. PyTorch's operators are counted.
            is_outside = top in left_out or (module and isinstance(callee.code, str))
            if not is_outside and module:
                continue
            outside = f"{module.partition('._')[0]}:{name}"
            has_name = is_outside and top != OURS and not private
            # Without what a function in C calls of the library, as `sum` does a generator.
            own = callee.inlinetime if isinstance(callee.code, str) else callee.totaltime
            times[outside if has_name else caller] += callee.totaltime if has_name else own
            if has_name and top != "torch":
                calls[outside] += callee.callcount
    return calls, times


def count_operators(call: Callable[[], Any]) -> tuple[dict[str, int], dict[str, str]]:
    """PyTorch's operators of one steady call by name, or the reason why they are not counted.

    They are counted as they are dispatched, behind autograd: those that are made of others are
    seen as what they are made of.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Else torch imports its compiler at the first call, for most of a second.
            return False

        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            # Without the name of the overload.
            calls[function._schema.name] += 1
            return function(*arguments, **(keywords or {}))

    if compiles():
        reason = "torch.compile does not compile under a dispatch mode: the call would be another"
        return {}, {"operators": reason}
    counted = []
    try:
        for _ in range(2):
            calls = Counter[str]()
            with Counting():
                call()
            counted.append(calls)
    except Exception as error:
        # A library may not support a mode; the case must not fail by it.
        return {}, {"operators": f"{type(error).__name__}: {error}".splitlines()[0]}
    first, second = counted
    if first != second:
        name = min(name for name in first | second if first[name] != second[name])
        reason = f"two calls differ, as in {name}: {first[name]} and {second[name]}"
        return {}, {"operators": reason}
    return bounded(dict(second)), {}


def compiles() -> bool:
    """True if anything of this process was given to `torch.compile`."""
    frames = sys.modules.get(TORCH_COMPILED.module)
    backends: dict[int, Any] = getattr(frames, TORCH_COMPILED.name, {})
    # One that is None switches the compiler off.
    return any(backend is not None for backend in backends.values())
