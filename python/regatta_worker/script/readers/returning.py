"""The result of a benchmark that returns nothing, so that a wrong one is seen.

`def time_sum(self): np.sum(self.x)` drops its result. Its first call, which is compared with the
base's and not timed, is of the same code with `return` before the last expression. The arrays that
it changes in its object, as by `out=self.y`, are results too.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from regatta_worker.script.results import outputs

POISON = 90
"""The elements of an array that `empty` gives, which else has an earlier result in its memory."""


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Has `empty` and `empty_like` of NumPy and torch give poisoned arrays, for results."""
    with contextlib.ExitStack() as undo:
        for module in filter(None, map(sys.modules.get, ("numpy", "torch"))):
            for name in {"empty", "empty_like"} & set(vars(module)):
                undo.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, Poisoned(getattr(module, name)))
        yield


class Poisoned:
    """A function like `empty`. It equals the one that it stands for: numba, as it is imported and
    as it compiles in a setup, looks up the functions that it knows."""

    def __init__(self, empty: Callable[..., Any]) -> None:
        functools.update_wrapper(self, empty)
        self._empty = empty

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        array = self._empty(*args, **kwargs)
        with contextlib.suppress(Exception):
            (getattr(array, "fill_", None) or array.fill)(POISON)
        return array

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._empty

    def __hash__(self) -> int:
        return hash(self._empty)


class Returning:
    """A function's first call and its results."""

    def __init__(self, function: Any, given: tuple[Any, ...], attributes: dict[str, Any]) -> None:
        """`attributes` are those of the object that it is a method of."""
        own = inspect.unwrap(getattr(function, "__func__", function))
        code = getattr(own, "__code__", None)
        if code := code and _rewritten(code.co_filename).get(_key(code)):
            twin = FunctionType(
                code, own.__globals__, own.__name__, own.__defaults__, own.__closure__
            )
            twin.__kwdefaults__ = own.__kwdefaults__
            bound = getattr(function, "__self__", None)
            function = twin if bound is None else functools.partial(twin, bound)
        self.call = functools.partial(function, *given)
        self._attributes = attributes
        self._before = {name: outputs(value) for name, value in attributes.items()}

    def results(self, returned: Any) -> Any:
        """The arrays that the first call returned; without one those that it changed."""
        if outputs(returned):
            return returned
        now = self._attributes.items()
        return [value for name, value in now if outputs(value) != self._before.get(name, [])]


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_name, code.co_firstlineno


@functools.cache
def _rewritten(path: str) -> dict[tuple[str, int], CodeType]:
    """The functions of a file, with the value returned where their last statement is an
    expression."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and isinstance(last := node.body[-1], ast.Expr):
                node.body[-1] = ast.copy_location(ast.Return(last.value), last)
        return {_key(code): code for code in _codes(compile(tree, path, "exec"))}
    except (OSError, SyntaxError, ValueError):
        return {}


def _codes(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from (each, *_codes(each))
