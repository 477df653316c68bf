"""The description of a variant before it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from regatta_worker.problem.numbers import DIRECTIONS
from regatta_worker.protocol.channel import Failed, Message

HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class Variant:
    """An implementation, and what it takes."""

    summary: str
    dtypes: tuple[str, ...] = HALVES
    directions: tuple[str, ...] = DIRECTIONS
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """By name: `"integer"`, or the words that it may be."""
    stores_scores: bool = False
    tf32: bool = False
    projections: tuple[str, ...] = ()
    """Kinds of projection that it computes; none: it computes attention."""
    arguments: Mapping[str, Any] | None = None
    """By which it is called for a declared operator; None: it computes none."""

    def wire(self, name: str) -> Message:
        """As `hello` has it."""
        members = {field.name: getattr(self, field.name) for field in fields(Variant)}
        if not self.projections:
            del members["projections"]
        if self.arguments is None:
            del members["arguments"]
        return {"name": name} | members

    def taken(self, name: str, given: Message) -> dict[str, Any]:
        """The parameters that are not `auto`, held to what the variant takes."""
        taken = {key: value for key, value in given.items() if value != "auto"}
        for key, value in taken.items():
            kind = self.parameters.get(key)
            if kind is None:
                raise Failed(f"variant `{name}` has no parameter `{key}`")
            if kind == "integer":
                if not isinstance(value, int) or isinstance(value, bool):
                    raise Failed(f"parameter {key}={value!r} is not an integer")
            elif value not in kind:
                words = " nor ".join(f"`{word}`" for word in kind)
                raise Failed(f"parameter {key}={value!r} is neither {words}")
        return taken
