"""Counts the Python functions that one call runs, and PyTorch's operators.

These are functions of the library under test, and functions of Python and of other modules that
the library calls directly: `re:compile`, `gc:collect`, `numpy:ndarray.copy`. Their own callees are
not counted, nor are `builtins` and methods of lists, dictionaries and strings, which every line
calls. Counts are exact and need no GPU. A generator counts each time that it is resumed. A
function's share of the time comes from a profiled call, and only shows where a change lies.
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
"""Number of names that are listed; the calls of all others are summed as `OTHERS`."""

OTHERS = "others"

PARTS = "ppm.in."
"""Prefix of the name under which a function's share of a call is reported."""

MOST_PARTS = 4
LEAST_PART = 0.05
"""Shares are listed for the `MOST_PARTS` functions with the largest, if at least `LEAST_PART`."""

QUICK_S = 0.02
QUICK_CALLS = 5
"""Profiles taken of a call shorter than `QUICK_S` seconds, since each may be disturbed."""

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "cupy")
"""Modules whose functions are not counted, unless the module is the library under test."""

OURS = "regatta_worker"

OF_ANOTHER_MODULE = re.compile(
    r"<built-in method (?!builtins\.)([\w.]+)\.(\w+)>|<method '(\w+)' of '([\w.]+)\.(\w+)' objects>"
)
"""The profiler's name of a function in C. For types of `builtins` it contains no module."""

MAIN = ("__main__", "__mp_main__")
"""Module names of a script; the script's functions are reported under its file's name."""

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
"""Names of comprehensions, which are functions in some versions of Python and not in others."""

IN_FUNCTION = rf"\.<locals>\.({'|'.join(COMPREHENSIONS)})$"
"""Matches the end of a comprehension's name, after the name of the enclosing function."""


def count_memory(call: Callable[[], Any]) -> dict[str, int]:
    """Returns the peak of Python's and NumPy's memory in a steady call, less the memory before
    it; the call's garbage collections, and the CPU time in them."""
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
    # Collections are counted in another call, without tracing.
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
"""Runs of each function by name; the largest shares of the call's time, in millionths; and the
reasons for missing counts."""


def count_functions(call: Callable[[], Any], library: str) -> Counted:
    """Counts the functions that one steady call runs, by `module:function`. Functions whose counts
    differ between two calls are left out."""
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
        # Another profiler is active.
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
    """Returns the functions' largest shares, in millionths, by each one's least time."""
    names = {name for times in profiles for name in times}
    least = {name: min(times.get(name, math.inf) for times in profiles) for name in names}
    part = {name: least[name] / (sum(least.values()) or 1.0) for name in least}
    largest = sorted(part, key=lambda name: -part[name])[:MOST_PARTS]
    return {PARTS + name: round(1e6 * part[name]) for name in largest if part[name] >= LEAST_PART}


def bounded(figures: dict[str, int], most: int = MOST) -> dict[str, int]:
    """Returns the `most` largest figures by name, and the sum of all others as `OTHERS`."""
    order = sorted(figures, key=lambda name: (-figures[name], name))
    listed = {name: figures[name] for name in sorted(order[:most])}
    rest = sum(figures[name] for name in order[most:])
    return listed | ({OTHERS: rest} if rest else {})


def _profiled(
    call: Callable[[], Any], library: str, modules: dict[str, str]
) -> tuple[Counter[str], dict[str, float]]:
    """Profiles one call; a backward pass runs in this thread, so it is included. Returns the runs
    of each function, and the seconds in each. A library function's time excludes callees that are
    listed by name. `modules` maps files to module names."""
    profile = cProfile.Profile()
    torch = sys.modules.get("torch")
    with torch.autograd.set_multithreading_enabled(False) if torch else contextlib.nullcontext():
        profile.runcall(call)
    left_out = {*sys.stdlib_module_names, *FRAMEWORKS, OURS} - {library.split(".")[0]}

    def named(code: CodeType | str) -> tuple[str, str]:
        """Returns a function's module, empty if it is unknown, and the function's name."""
        if isinstance(code, CodeType):
            # Before Python 3.11, code objects have no qualified name.
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
        # A comprehension counts as a part of the enclosing function.
        caller = f"{module}:{re.sub(IN_FUNCTION, '', name)}"
        times[caller] += entry.inlinetime
        if not name.endswith(COMPREHENSIONS):
            calls[f"{module}:{name}"] += entry.callcount
        for callee in entry.calls or ():
            module, name = named(callee.code)
            top = module.partition(".")[0]
            private = re.search(r"(^|\.)_(?!_)[^.]*$", name)
            # Functions in C have no entry of their own. PyTorch's operators are counted elsewhere.
            is_outside = top in left_out or (module and isinstance(callee.code, str))
            if not is_outside and module:
                continue
            outside = f"{module.partition('._')[0]}:{name}"
            has_name = is_outside and top != OURS and not private
            # Excludes library code that a function in C calls, such as a generator under `sum`.
            own = callee.inlinetime if isinstance(callee.code, str) else callee.totaltime
            times[outside if has_name else caller] += callee.totaltime if has_name else own
            if has_name and top != "torch":
                calls[outside] += callee.callcount
    return calls, times


def count_operators(call: Callable[[], Any]) -> tuple[dict[str, int], dict[str, str]]:
    """Counts PyTorch's operators in one steady call by name, or returns why it cannot.

    They are counted when they are dispatched, below autograd: a composite operator is seen as the
    operators that it consists of.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            # Otherwise torch imports its compiler at the first call, which takes most of a second.
            return False

        def __torch_dispatch__(
            self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
        ) -> Any:
            # The schema's name excludes the overload.
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
        # A library may not support dispatch modes, which must not fail the case.
        return {}, {"operators": f"{type(error).__name__}: {error}".splitlines()[0]}
    first, second = counted
    if first != second:
        name = min(name for name in first | second if first[name] != second[name])
        reason = f"two calls differ, as in {name}: {first[name]} and {second[name]}"
        return {}, {"operators": reason}
    return bounded(dict(second)), {}


def compiles() -> bool:
    """True if this process has passed anything to `torch.compile`."""
    frames = sys.modules.get(TORCH_COMPILED.module)
    backends: dict[int, Any] = getattr(frames, TORCH_COMPILED.name, {})
    # A backend of None disables the compiler.
    return any(backend is not None for backend in backends.values())
