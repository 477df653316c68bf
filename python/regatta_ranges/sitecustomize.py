"""Turns PyTorch's own NVTX ranges on in a program that `regatta trace --torch` runs.

Python imports a module of this name at its start, from the first folder on its path that has
one: `regatta trace` puts this one's first. The module that it stands in front of is run as
well. A failure here prints a line on standard error, and the program continues.
"""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


def turn_on(torch: ModuleType) -> None:
    """Has each operator of this thread, and of the backward passes it starts, mark a range.

    This is `torch.autograd.profiler.emit_nvtx` for good, without the `synchronize` that it
    begins with: that would initialise CUDA in a process that may fork yet.
    """
    try:
        ranges = torch.autograd.profiler.emit_nvtx(record_shapes=False)
        without_waiting(torch, ranges.__enter__)
        # Else torch says at the end that a callback was left behind.
        atexit.register(without_waiting, torch, ranges.__exit__, None, None, None)
    except Exception as error:
        print_error(f"PyTorch's ranges are not on: {error}")


def without_waiting(torch: ModuleType, change: Callable[..., object], *arguments: object) -> None:
    """Turns ranges on or off, with nothing in the place of `torch.cuda.synchronize`."""
    synchronize = torch.cuda.synchronize
    torch.cuda.synchronize = lambda *_: None
    try:
        change(*arguments)
    finally:
        torch.cuda.synchronize = synchronize


def print_error(text: str) -> None:
    line = text.splitlines()[0] if text else text
    sys.stderr.write(f"regatta trace --torch: {line}\n")


class Loader(importlib.abc.Loader):
    """Loads torch as its own loader does, and turns ranges on."""

    def __init__(self, own: importlib.abc.Loader) -> None:
        self.own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.own
        if module.__spec__:
            module.__spec__.loader = self.own
        self.own.exec_module(module)
        turn_on(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds torch once, wherever the others find it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = Loader(spec.loader)
        return spec


def behind() -> None:
    """Runs the module of this name that would have been imported without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [folder for folder in sys.path if os.path.abspath(folder) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Finder())
    behind()
