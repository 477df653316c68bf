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

_MISSING = object()

Parts = dict[str, Any]


class _Module:
    """The parts of a module, of its classes and of its functions, as they were."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spaces: list[tuple[str, Any, Parts]] = []
        """A prefix of names, what has them now, and they as they were."""
        self.codes: list[tuple[str, FunctionType, Any]] = []
        self._add("", vars(module))

    def _add(self, prefix: str, space: Any) -> None:
        parts = {
            name: value
            for name, value in list(space.items())
            if prefix or not (name.startswith("__") or (name in OF_ZONE and self.module is time))
        }
        self.spaces.append((prefix, space, parts))
        for name, value in parts.items():
            if isinstance(value, FunctionType):
                self.codes.append((prefix + name, value, value.__code__))
            if isinstance(value, type) and not prefix:
                self._add(f"{name}.", vars(value))

    def replaced(self) -> str:
        """The first part that is another, or an empty text."""
        for prefix, space, parts in self.spaces:
            for name, value in parts.items():
                if space.get(name, _MISSING) is not value:
                    return prefix + name
        for name, function, code in self.codes:
            if function.__code__ is not code:
                return name
        return ""


_known: dict[str, _Module] = {}
"""Each module, as it was before the code under test ran."""


def note() -> None:
    """Remembers the modules that are new."""
    for name, module in list(sys.modules.items()):
        own = name.startswith("regatta_worker.") or name in WATCHED
        if own and name not in _known and isinstance(module, ModuleType):
            _known[name] = _Module(module)


def replaced(file: str | None) -> str:
    """The part that was replaced, or an empty text. Torch makes parts of its own late: there a part
    counts if the code of this file defined it."""
    for name, known in _known.items():
        if sys.modules.get(name) is not known.module:
            return name
        if part := known.replaced():
            return f"{name}.{part}"
    torch_cuda = sys.modules.get("torch.cuda")
    for part, value in list(vars(torch_cuda).items()) if file and torch_cuda else ():
        for name, function in _functions(part, value):
            if function.__code__.co_filename == file:
                return f"torch.cuda.{name}"
    return ""


def _functions(name: str, value: Any) -> Iterator[tuple[str, FunctionType]]:
    """A function, or the functions of a class, by name."""
    if isinstance(value, FunctionType):
        yield name, value
    if isinstance(value, type):
        for member, inner in list(vars(value).items()):
            if isinstance(inner, FunctionType):
                yield f"{name}.{member}", inner


note()
