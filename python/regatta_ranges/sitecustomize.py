"""Turns PyTorch's own NVTX ranges on in a program that `regatta trace --torch` runs.

Python imports a module of this name at its start, from the first folder on its path that has
one: `regatta trace` puts this one's first. The module that it stands in front of is run as
well. Whatever goes wrong here is a line on standard error, and the program goes on.
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


class Finder(importlib.abc.MetaPathFinder):
    """Finds torch once, wherever the others find it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module as the other finders find it, whose loader turns ranges on."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader, execute = spec.loader, spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                del loader.exec_module
                execute(module)
                turn_on(module)

            try:
                loader.exec_module = executed  # type: ignore[method-assign]
            except AttributeError as error:
                print_error(f"PyTorch's ranges are not on: {error}")
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
