"""Functions called by place and declared operators of one file or module, served by one worker."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from regatta_worker.callables.operators.function import OperatorFunction
from regatta_worker.protocol.channel import Message, Unsupported


class Functions:
    """Passes each case to the worker of its kind; that of operators is created when needed."""

    def __init__(
        self,
        functions: Mapping[str, OperatorFunction],
        native: Callable[[], Any] | None,
        operators: Callable[[], Any],
    ) -> None:
        self._functions = functions
        self._operators = functools.cache(operators)
        self._native = None if native is None else native()
        self._active: Any = self._native or self._operators()

    def hello(self) -> Message:
        hello: Message = (self._native or self._operators()).hello()
        variants = {variant["name"]: variant for variant in hello["variants"]}
        for name, function in self._functions.items():
            own = function.variant().wire(name)
            variants[name] = {**own, **variants.get(name, {}), "arguments": own["arguments"]}
        return hello | {"variants": list(variants.values())}

    def prepare(self, request: Message) -> Message:
        declared = request.get("operands") is not None
        if not declared and self._native is None:
            name = request.get("variant", "")
            function = self._functions.get(name)
            raise Unsupported(
                (function.only_declared if function else "")
                or f"`{name}` computes declared operators alone"
            )
        wanted: Any = self._operators() if declared else self._native
        if wanted is not self._active:
            self._active.release()
            self._active = wanted
        prepared: Message = wanted.prepare(request)
        return prepared

    def release(self) -> None:
        self._active.release()

    def __getattr__(self, name: str) -> Any:
        """Passes all other requests to the worker that has the case."""
        return getattr(self._active, name)


def operator_worker(framework: str) -> Any:
    """Returns the class that serves declared operators on arrays of `framework`."""
    try:
        return importlib.import_module(
            f"regatta_worker.callables.operators.{framework}_operators"
        ).WORKER
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("regatta_worker"):
            raise Unsupported(
                f"functions of {framework} arrays compute no declared operators"
            ) from error
        raise
