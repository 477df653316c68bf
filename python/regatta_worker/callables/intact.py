"""Finds what the code under test changed in the clock, the interpreter's hooks or this package.

By identity: an object in the place of a function is found as well as a function, and so is other
code in the function itself. Native code can still change both; the clock outside of the worker
bounds what it gains (docs/TIMING.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

WATCHED = ("time", "json", "json.encoder", "random")
"""Modules beside this package's by which calls are timed and checked."""

OF_ZONE = ("altzone", "daylight", "timezone", "tzname")
"""Variables that `time.tzset` sets again. Libraries call it as they are imported, pandas and
dateutil among them."""

_known: dict[str, dict[str, Any]] = {}
"""Each module's parts, as they were before the code under test ran."""


def note() -> None:
    """Remembers the modules that are new."""
    for name, module in list(sys.modules.items()):
        own = name.startswith("regatta_worker.") or name in WATCHED
        if own and name not in _known and isinstance(module, ModuleType):
            _known[name] = dict(_parts(module))


def replaced(file: str | None) -> str:
    """The part that was replaced, or an empty text. Torch makes parts of its own late: there a part
    counts if the code of this file defined it."""
    for name, parts in _known.items():
        now = dict(_parts(sys.modules.get(name)))
        for part, value in parts.items():
            if now.get(part, _known) is not value:
                return f"{name}.{part.removesuffix('.__code__')}"
    for part, value in _parts(sys.modules.get("torch.cuda")):
        if part.endswith(".__code__") and file and value.co_filename == file:
            return f"torch.cuda.{part.removesuffix('.__code__')}"
    return ""


def _parts(module: ModuleType | None) -> Iterator[tuple[str, Any]]:
    """Everything that a module names, with members of its classes and the code of functions."""
    for name, value in list(vars(module).items()) if module else ():
        if name.startswith("__") or (name in OF_ZONE and module is time):
            continue
        yield from _with_code(name, value)
        if isinstance(value, type):
            for member, inner in list(vars(value).items()):
                yield from _with_code(f"{name}.{member}", inner)


def _with_code(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    yield name, value
    if isinstance(value, FunctionType):
        yield f"{name}.__code__", value.__code__


note()
