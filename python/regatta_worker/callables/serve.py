"""The worker of somebody's functions, by the framework whose arrays they take."""

from __future__ import annotations

import importlib
import os
from typing import cast

from regatta_worker.callables import load
from regatta_worker.callables.function import Function
from regatta_worker.callables.load import Target
from regatta_worker.protocol.channel import Failed, Worker


def open_worker(target: Target) -> Worker:
    """Imports the code and what serves it."""
    found = _imported(target)
    framework = load.framework(target, found)
    try:
        module = importlib.import_module(f"regatta_worker.callables.of_{framework}")
    except ModuleNotFoundError as error:
        # The framework that the suite says; one that the code imports is there.
        raise Failed(load.not_imported(target, error)) from error
    return cast("Worker", module.WORKER(target, found))


def preload(target: Target) -> None:
    """Imports the code and its framework for workers that are forked later."""
    found = _imported(target)
    module = importlib.import_module(f"regatta_worker.callables.of_{load.framework(target, found)}")
    if hasattr(module.WORKER, "preload"):
        module.WORKER.preload()


def _imported(target: Target) -> dict[str, Function]:
    # Read when JAX's backend starts, which the code may do while it is imported: see
    # libraries/jax.py.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    return load.functions(target, load.imported(target))
