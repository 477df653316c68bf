"""A function of `q, k, v` as a variant: reads its signature, and calls it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from regatta_worker.problem import Problem
from regatta_worker.problem.numbers import DIRECTIONS, DTYPE_BYTES
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed

FRAMEWORKS = ("torch", "jax", "numpy", "cupy")
"""Frameworks whose arrays a function may take."""

FIRST = ("q", "k", "v")
"""First parameters by which a function is a variant even if the suite does not name it."""

GIVEN = ("dout", "problem")
"""Arguments, other than a case's parameters, that a function gets if its signature has them."""

TELLS = "regatta_variant"
"""The attribute in which a function declares facts that its signature cannot express: a dictionary
of `summary`, `dtypes`, `directions`, `stores_scores` and `tf32`, each optional."""

OF_A_VARIANT = ("summary", "dtypes", "directions", "stores_scores", "tf32")


@dataclass(frozen=True)
class Function:
    """A function of q, k and v that computes the result, its gradients, or both."""

    where: str
    """The file or module and the function, for messages."""
    function: Callable[..., Any]
    keywords: frozenset[str]
    """The members of `GIVEN` in its signature."""
    parameters: Mapping[str, Any]
    """The parameters of its `Variant`."""
    needs_dout: bool
    framework: str | None
    """The framework of its array annotations; None without one."""
    tells: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makes_gradients(self) -> bool:
        """True if it takes `dout`, and so computes the gradients itself."""
        return "dout" in self.keywords

    def variant(self, differentiated: bool) -> Variant:
        """Returns the variant for `hello`. `differentiated`: its framework computes gradients."""
        directions: tuple[str, ...] = DIRECTIONS
        if self.needs_dout:
            directions = ("backward", "both")
        elif not differentiated and not self.makes_gradients:
            directions = ("forward",)
        words = (inspect.getdoc(self.function) or self.where).strip().partition("\n")[0]
        found = {"summary": words, "dtypes": tuple(DTYPE_BYTES), "directions": directions}
        return Variant(**{**found, **self.tells}, parameters=self.parameters)

    def bound(self, problem: Problem, params: Mapping[str, Any]) -> Callable[..., Any]:
        """Binds all but `q, k, v` and, if the call computes gradients itself, `dout`."""
        function = self.function
        given = {name: value for name, value in params.items() if name in self.parameters}
        if "problem" in self.keywords:
            given["problem"] = problem
        if self.makes_gradients and problem.has_backward:
            return lambda q, k, v, dout: function(q, k, v, dout=dout, **given)
        if not given:
            return function
        return lambda q, k, v: function(q, k, v, **given)

    def several(self, returned: Any, problem: Problem) -> tuple[Any, ...]:
        """Returns the results of a call as a tuple. Raises Failed if their number is wrong."""
        names = problem.results if self.makes_gradients else ("out",)
        results = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        if len(results) != len(names):
            raise Failed(
                f"{self.where} returned {_counted(len(results))}, and "
                f"direction = {problem.direction} is of {_counted(len(names))}: return "
                f"{', '.join(names)}"
            )
        return results

    def check(
        self, results: tuple[Any, ...], problem: Problem, dtype: Any, array: type | None = None
    ) -> None:
        """Raises Failed unless results have the shapes of the problem's layout and the dtype, and,
        if `array` is given, that exact type: a subclass may compute later."""
        names = problem.results if len(results) > 1 else ("out",)
        for name, result in zip(names, results, strict=True):
            shape, kind = problem.laid_out(name), type(result).__name__
            if array and isinstance(result, array) and type(result) is not array:
                raise Failed(
                    f"{self.where} returned {name} as {kind}, a subclass of {array.__name__} that "
                    f"may compute when it is looked at, outside of the time; return a plain "
                    f"{array.__name__}"
                )
            known = isinstance(result, array) if array else hasattr(result, "shape")
            if not known or not hasattr(result, "dtype"):
                raise Failed(f"{self.where} returned {name} as {kind}; return an array")
            if tuple(result.shape) != shape:
                raise Failed(
                    f"{self.where} returned {name} of shape {tuple(result.shape)}; layout = "
                    f"{problem.layout} wants {shape}"
                )
            if result.dtype != dtype:
                raise Failed(
                    f"{self.where} returned {name} as {result.dtype}; return it as {dtype}, the "
                    f"type of q"
                )


def begins_with_tensors(function: Any) -> bool:
    """True if the function's first parameters are named `q, k, v`."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return tuple(names[:3]) == FIRST


def read(where: str, function: Any) -> Function:
    """Reads a function's signature. Raises Failed if it cannot be called as a variant."""
    if not callable(function):
        raise Failed(f"{where} is not a function: it is of type {type(function).__name__}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise Failed(f"{where} has no signature to go by ({error}); wrap it in a `def`") from error
    hints = hints_of(function)
    places = list(signature.parameters.values())
    positional = [p for p in places if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(positional) < 3 and not any(p.kind == p.VAR_POSITIONAL for p in places):
        raise Failed(f"{where} takes {signature}; it is called with q, k and v in their places")
    keywords: set[str] = set()
    parameters: dict[str, Any] = {}
    for parameter in places:
        if parameter in positional[:3] or parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.name in GIVEN:
            keywords.add(parameter.name)
            continue
        if kind := kind_of(parameter, hints.get(parameter.name, parameter.annotation)):
            parameters[parameter.name] = kind
        if parameter.default is parameter.empty:
            raise Failed(
                f"{where} has a parameter `{parameter.name}` without a default; give it one, "
                f"which is what a case means by `auto`"
            )
    first = next(iter(places), None)
    dout = signature.parameters.get("dout")
    tells = getattr(function, TELLS, {})
    if unknown := [key for key in tells if key not in OF_A_VARIANT]:
        known = ", ".join(OF_A_VARIANT)
        raise Failed(f"{where}: a variant has no `{unknown[0]}`; known: {known}")
    return Function(
        where=where,
        function=function,
        keywords=frozenset(keywords),
        parameters=parameters,
        needs_dout=dout is not None and dout.default is dout.empty,
        framework=None if first is None else framework_of(hints.get(first.name, first.annotation)),
        tells=tells,
    )


def hints_of(function: Any) -> dict[str, Any]:
    """Returns the resolved annotations of a function; empty if one cannot be resolved."""
    target = function if inspect.isroutine(function) else inspect.unwrap(function)
    try:
        return typing.get_type_hints(target)
    except Exception:
        return {}


def kind_of(parameter: inspect.Parameter, annotation: Any) -> Any:
    """Returns `"integer"`, the strings of a `Literal`, or `None` if a case cannot set it."""
    if typing.get_origin(annotation) is typing.Literal:
        words = typing.get_args(annotation)
        return words if all(isinstance(word, str) for word in words) else "integer"
    default = parameter.default
    whole = isinstance(default, int) and not isinstance(default, bool)
    return "integer" if annotation is int or whole else None


def framework_of(annotation: Any) -> str | None:
    """Returns the framework of an array type, or None. A quoted annotation is read as text."""
    module = annotation if isinstance(annotation, str) else getattr(annotation, "__module__", "")
    root = str(module).partition(".")[0].strip("\"' ")
    root = {"jaxlib": "jax"}.get(root, root)
    return root if root in FRAMEWORKS else None


def _counted(results: int) -> str:
    return "1 result" if results == 1 else f"{results} results"
