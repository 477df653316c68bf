"""Finds changes by the code under test in modules that time and check it, this package included.

Compares by identity: finds any object that replaces a function, and replaced code within a
function. Native code can still change both. The harness's own clock, outside of the worker, limits
the gain from that (docs/TIMING.md).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

WATCHED = ("time", "json", "json.encoder", "random")
"""Modules, other than this package's, that the timing and the checks use."""

OF_ZONE = ("altzone", "daylight", "timezone", "tzname")
"""Variables that `time.tzset` reassigns. Some libraries, such as pandas and dateutil, call it
when they are imported."""

_MISSING = object()

Parts = dict[str, Any]


class _Module:
    """A record of the members of a module and of its classes, and the code of its functions."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spaces: list[tuple[str, Any, Parts]] = []
        """A prefix for names, the current namespace, and its recorded members."""
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
        """Returns the name of the first replaced member; empty if there isn't one."""
        for prefix, space, parts in self.spaces:
            for name, value in parts.items():
                if space.get(name, _MISSING) is not value:
                    return prefix + name
        for name, function, code in self.codes:
            if function.__code__ is not code:
                return name
        return ""


_known: dict[str, _Module] = {}
"""The record of each module from before the code under test ran."""


def note() -> None:
    """Records modules of this package, and those of `WATCHED`, that are not recorded yet."""
    for name, module in list(sys.modules.items()):
        own = name.startswith("regatta_worker.") or name in WATCHED
        if own and name not in _known and isinstance(module, ModuleType):
            _known[name] = _Module(module)


def replaced(file: str | None) -> str:
    """Returns the name of a replaced member; empty if there isn't one. torch.cuda adds members of
    its own late, so that one only counts if the code in `file` defined it."""
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
    """Yields a function, or each function of a class, with its name."""
    if isinstance(value, FunctionType):
        yield name, value
    if isinstance(value, type):
        for member, inner in list(vars(value).items()):
            if isinstance(inner, FunctionType):
                yield f"{name}.{member}", inner


note()
