"""Inputs, scalars and outputs of a declared operator's call, as in a `prepare` request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from regatta_worker.callables.operators import draws
from regatta_worker.protocol.channel import Failed

Shape = tuple[int, ...]

WHOLE = ("i8", "i32", "i64", "bool")
"""Types of elements whose results are written as integers."""


@dataclass(frozen=True)
class InputTensor:
    """A tensor argument, and the draw of its contents."""

    name: str
    shape: Shape
    dtype: str
    kind: str
    arguments: tuple[float, ...]
    role: str
    scale: InputTensor | None = None
    """The input that scales this one. Each of its elements multiplies a block of values."""
    scales: InputTensor | None = None
    """The input that this one scales, if this one holds the shared exponents of its blocks."""

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> InputTensor:
        scale, scales = wire.get("scale"), wire.get("scales")
        return InputTensor(
            wire["name"],
            tuple(wire["shape"]),
            wire["dtype"],
            wire["draw"]["kind"],
            tuple(wire["draw"].get("arguments", ())),
            wire.get("role", "data"),
            scale and InputTensor.from_wire(scale),
            scales and InputTensor.from_wire(scales),
        )

    def drawn(self, seed: int) -> np.ndarray:
        """Returns the contents in a seed's set, rounded to the type: float32, int64 or bool."""
        return draws.rounded(draws.values(self, seed), self.dtype)


@dataclass(frozen=True)
class OutputTensor:
    """A result."""

    name: str
    shape: Shape
    dtype: str
    in_place: str | None
    """The state into which a call writes this result; None: the call returns it."""

    @property
    def written(self) -> tuple[str, str]:
        """The extension of a file of this result, and the NumPy type of its elements."""
        return ("i64", "<i8") if self.dtype in WHOLE else ("f32", "<f4")


@dataclass(frozen=True)
class Gradients:
    """The gradients that a call computes, alone or after the outputs, by `direction`."""

    direction: str
    by: tuple[str, ...]
    """Inputs with respect to which it is differentiated, in the order of their gradients."""
    given: tuple[str, ...]
    """Inputs that are gradients of the outputs, in the outputs' order: `dout` is that of `out`."""

    def outputs(self, returned: Any) -> tuple[Any, ...]:
        """Returns the results of a forward call as a tuple, in the order of the outputs."""
        if isinstance(returned, dict):
            return tuple(returned[name.removeprefix("d")] for name in self.given)
        return tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


@dataclass(frozen=True)
class Operands:
    """The inputs, scalars, words and outputs of a call."""

    inputs: tuple[InputTensor, ...]
    scalars: Mapping[str, float]
    outputs: tuple[OutputTensor, ...]
    gradients: Gradients | None = None
    left_out: tuple[str, ...] = ()
    """Optional inputs that this call omits."""
    words: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def from_wire(wire: Mapping[str, Any]) -> Operands:
        try:
            inputs = tuple(map(InputTensor.from_wire, wire["inputs"]))
            outputs = tuple(
                OutputTensor(one["name"], tuple(one["shape"]), one["dtype"], one.get("in_place"))
                for one in wire["outputs"]
            )
            asked = wire.get("gradients")
            gradients = asked and Gradients(
                asked["direction"], tuple(asked["by"]), tuple(asked["given"])
            )
            scalars, left_out = dict(wire.get("scalars", {})), tuple(wire.get("left_out", ()))
            words = dict(wire.get("words", {}))
            return Operands(inputs, scalars, outputs, gradients, left_out, words)
        except (KeyError, TypeError) as error:
            raise Failed(f"malformed operands: {type(error).__name__}: {error}") from error

    @property
    def states(self) -> frozenset[str]:
        """Inputs that a call may change."""
        return frozenset(one.name for one in self.inputs if one.role == "state")

    def halves(self) -> tuple[Operands, Operands]:
        """Splits into the forward call and the call of gradients; either may lack outputs."""
        if self.gradients is None:
            return self, replace(self, outputs=())
        given, cut = self.gradients.given, len(self.outputs) - len(self.gradients.by)
        inputs = tuple(one for one in self.inputs if one.name not in given)
        forward = replace(self, inputs=inputs, outputs=self.outputs[:cut], gradients=None)
        return forward, replace(self, outputs=self.outputs[cut:])

    @property
    def returned(self) -> tuple[OutputTensor, ...]:
        """Outputs that a call returns, in order; the others are written into states."""
        return tuple(output for output in self.outputs if output.in_place is None)

    def results(self, where: str, returned: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a call's results by output name. Those that it wrote into states come from there.

        Raises Failed if the call returned anything else.
        """
        wanted = self.returned
        if isinstance(returned, dict):
            if lacking := [output.name for output in wanted if output.name not in returned]:
                there = ", ".join(map(str, returned)) or "nothing"
                raise Failed(f"{where} returned {there} by name; the operator has {lacking[0]}")
            several = [returned[output.name] for output in wanted]
        elif isinstance(returned, (tuple, list)):
            several = list(returned)
        else:
            several = [returned] if wanted or returned is not None else []
        if len(several) != len(wanted):
            names = ", ".join(output.name for output in wanted) or "nothing"
            left = [f"`{one.in_place}`" for one in self.outputs if one.in_place is not None]
            written = f" and leaves results in {', '.join(left)}: write them there" if left else ""
            raise Failed(
                f"{where} returned {len(several)} result{'s' * (len(several) != 1)}; the operator "
                f"returns {names}{written}"
            )
        named: dict[str, Any] = dict(zip((output.name for output in wanted), several, strict=True))
        for output in self.outputs:
            if output.in_place is not None:
                named[output.name] = given[output.in_place]
            value = named[output.name]
            kind = type(value).__name__
            if not hasattr(value, "shape") or not hasattr(value, "dtype"):
                if not (output.shape == () and isinstance(value, (bool, int, float))):
                    raise Failed(f"{where} returned {output.name} as {kind}; return an array")
                value = named[output.name] = np.array(value)[()]
            if tuple(value.shape) != output.shape:
                raise Failed(
                    f"{where} returned {output.name} of shape {tuple(value.shape)}; the operator's "
                    f"is {output.shape}"
                )
        return named


def on_host(values: np.ndarray) -> np.ndarray:
    """Converts a result to int64 if its elements are integers or bool, or else to float32."""
    return values.astype(np.int64 if values.dtype.kind in "biu" else np.float32)


def write(folder: str, output: OutputTensor, values: np.ndarray) -> None:
    """Writes a result as little-endian float32 or int64, for the harness to check."""
    ending, kind = output.written
    flat = np.ascontiguousarray(values, dtype=kind)
    with open(Path(folder) / f"{output.name}.{ending}", "wb") as file:
        file.write(flat.tobytes())


def read(folder: str, output: OutputTensor) -> np.ndarray:
    ending, kind = output.written
    values = np.fromfile(Path(folder) / f"{output.name}.{ending}", dtype=kind)
    if values.size != math.prod(output.shape):
        raise Failed(f"the result {output.name} has {values.size} elements")
    return values.reshape(output.shape)
