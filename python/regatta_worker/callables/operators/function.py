"""A function that computes a declared operator. It is called with keyword arguments."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from regatta_worker.callables.function import framework_of, hints_of, kind_of
from regatta_worker.problem.numbers import DTYPE_BYTES
from regatta_worker.problem.variant import Variant
from regatta_worker.protocol.channel import Failed

if TYPE_CHECKING:
    from regatta_worker.callables.operators.operands import Gradients, Operands


@dataclass(frozen=True)
class OperatorFunction:
    """A function and the arguments in its signature."""

    where: str
    function: Callable[..., Any]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    any: bool
    """True if it takes keywords of any name."""
    parameters: Mapping[str, Any]
    """Keywords that a case may set, in the form of `Variant`."""
    whole: frozenset[str]
    """Arguments that take an `int`."""
    framework: str | None
    differentiated: bool = False
    """True if its framework can differentiate a call."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Maps types of elements that its framework lacks to the reason."""
    only_declared: str = ""
    """The reason why it can only compute declared operators; empty if it isn't limited."""

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments in the form of `hello`."""
        arguments: dict[str, Any] = {
            "required": list(self.required),
            "optional": list(self.optional),
        }
        if self.any:
            arguments["any"] = True
        if self.differentiated:
            arguments["differentiated"] = True
        if self.lacks:
            arguments["lacks"] = self.lacks
        if self.only_declared:
            arguments["only_declared"] = self.only_declared
        return arguments

    def variant(self) -> Variant:
        words = (inspect.getdoc(self.function) or self.where).strip().partition("\n")[0]
        return Variant(
            summary=words,
            dtypes=tuple(DTYPE_BYTES),
            directions=(),
            parameters=self.parameters,
            arguments=self.arguments(),
        )

    def on(self, framework: str) -> OperatorFunction:
        """Returns a copy with the abilities of `framework`."""
        differentiated = framework in ("torch", "jax")
        return replace(self, differentiated=differentiated, lacks=lacking(framework))

    def computes(self, gradients: Gradients | None) -> bool:
        """True if it takes the outputs' gradients, and so computes those of the inputs itself."""
        takes = {*self.required, *self.optional}
        return gradients is not None and not takes.isdisjoint(gradients.given)

    def accepted(self, operands: Operands) -> dict[str, Any]:
        """Returns the scalars and words of a call, `None` for required inputs that the call omits,
        and the direction, if the function takes it. Raises Failed if the function cannot be called
        with these operands."""
        if not self.computes(operands.gradients):
            operands, _ = operands.halves()
        given = [one.name for one in operands.inputs] + [*operands.scalars, *operands.words]
        takes = {*self.required, *self.optional}
        known = {*given, *operands.left_out}
        if lacking := [name for name in self.required if name not in known]:
            raise Failed(
                f"{self.where} takes an argument `{lacking[0]}`; the operator's are "
                f"{', '.join(given)}"
            )
        if left := [name for name in given if name not in takes and not self.any]:
            raise Failed(f"{self.where} takes no `{left[0]}`, which the operator has")
        direction = {}
        if operands.gradients and "direction" in self.optional:
            direction["direction"] = operands.gradients.direction
        return {**self.scalars(operands), **self.choices(operands), **direction}

    def choices(self, operands: Operands) -> dict[str, str | None]:
        """Returns the words of a call, and `None` for each input that the call omits and whose
        argument has no default."""
        left_out = {name: None for name in operands.left_out if name in self.required}
        return {**operands.words, **left_out}

    def scalars(self, operands: Operands) -> dict[str, Any]:
        """Returns the scalars of a call, as `int` if the function takes an `int`."""
        given: dict[str, Any] = dict(operands.scalars)
        for name in self.whole & given.keys():
            if not float(given[name]).is_integer():
                raise Failed(f"{self.where} takes an int `{name}`, and the scalar is {given[name]}")
            given[name] = int(given[name])
        return given

    def advice(self, error: Exception, scalars: Mapping[str, Any]) -> str:
        """Returns the fix if the function used a scalar, which is a float, as an integer."""
        whole = [name for name in scalars.keys() - self.whole if float(scalars[name]).is_integer()]
        is_of_it = isinstance(error, TypeError) and re.search("integer|__index__", str(error))
        if not whole or not is_of_it:
            return ""
        return f": a scalar is a float; annotate `{min(whole)}: int` for a whole number"


FLOATS_OF_8_BITS = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e8m0": "float8_e8m0fnu",
}
"""Attributes of newer releases of torch and JAX for these types; NumPy and CuPy lack them."""

NAMES = {"numpy": "NumPy", "cupy": "CuPy", "torch": "this torch", "jax": "this JAX"}


def lacking(framework: str) -> dict[str, str]:
    """Returns the reason for each type of elements that a framework's arrays cannot have."""
    module = sys.modules["jax.numpy" if framework == "jax" else framework]
    floats = FLOATS_OF_8_BITS.items()
    lacks = {
        name: f"{NAMES[framework]} has no {name}" for name, at in floats if not hasattr(module, at)
    }
    if framework == "jax" and not sys.modules["jax"].config.jax_enable_x64:
        lacks["i64"] = "JAX has no i64 unless JAX_ENABLE_X64=1 is set"
    return lacks


def read_operator(where: str, function: Any, only_declared: str = "") -> OperatorFunction | None:
    """Reads the arguments of a function. Returns `None` if they are unknown."""
    if isinstance(function, type) or not callable(function):
        return None
    if type(function).__module__.partition(".")[0] == "triton":
        # A Triton kernel is launched, not called.
        return None
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    needed: list[str] = []
    optional: list[str] = []
    kinds: dict[str, Any] = {}
    takes_any = False
    hints = hints_of(function)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
            continue
        (needed if parameter.default is parameter.empty else optional).append(parameter.name)
        if kind := kind_of(parameter, hints.get(parameter.name, parameter.annotation)):
            kinds[parameter.name] = kind
    first = next(iter(signature.parameters.values()), None)
    annotation = None if first is None else hints.get(first.name, first.annotation)
    return OperatorFunction(
        where=where,
        function=called_by_names(function, signature),
        required=tuple(needed),
        optional=tuple(optional),
        any=takes_any,
        parameters={name: kind for name, kind in kinds.items() if name in optional},
        whole=frozenset(name for name, kind in kinds.items() if kind == "integer"),
        framework=None if first is None else framework_of(annotation),
        only_declared=only_declared,
    )


def called_by_names(function: Callable[..., Any], signature: inspect.Signature) -> Any:
    """Wraps a function so that its positional-only arguments can be passed by name."""
    parameters = signature.parameters.values()
    places = {one.name: one.default for one in parameters if one.kind is one.POSITIONAL_ONLY}
    if not places:
        return function

    @functools.wraps(function)
    def called(**given: Any) -> Any:
        ordered = [given.pop(name, default) for name, default in places.items()]
        return function(*ordered, **given)

    return called
