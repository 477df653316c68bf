"""What a library on torch says of a variant, what it is asked for, and what it builds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regatta_worker.problem.attention import DIRECTIONS, Problem
from regatta_worker.protocol.channel import Failed, Message

Results = tuple[torch.Tensor, ...]
Call = Callable[[], Results]
Tensors = dict[str, torch.Tensor]

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
HALVES = ("f16", "bf16")


@dataclass(frozen=True)
class Variant:
    """What a worker tells of a variant before it is asked to run it."""

    summary: str
    dtypes: tuple[str, ...] = HALVES
    directions: tuple[str, ...] = DIRECTIONS
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """By name: `"integer"`, or the words that it may be."""
    stores_scores: bool = False
    tf32: bool = False
    projections: tuple[str, ...] = ()
    """Kinds of projection that it computes; none: it computes attention."""

    def wire(self, name: str) -> Message:
        """As `hello` has it."""
        return {
            "name": name,
            "summary": self.summary,
            "dtypes": list(self.dtypes),
            "directions": list(self.directions),
            "parameters": {
                parameter: kind if isinstance(kind, str) else list(kind)
                for parameter, kind in self.parameters.items()
            },
            "stores_scores": self.stores_scores,
            "tf32": self.tf32,
        } | ({"projections": list(self.projections)} if self.projections else {})

    def taken(self, name: str, given: Message) -> dict[str, Any]:
        """The parameters that are not `auto`, held to what the variant takes."""
        taken = {key: value for key, value in given.items() if value != "auto"}
        for key, value in taken.items():
            kind = self.parameters.get(key)
            if kind is None:
                raise Failed(f"variant `{name}` has no parameter `{key}`")
            if kind == "integer":
                if not isinstance(value, int) or isinstance(value, bool):
                    raise Failed(f"parameter {key}={value!r} is no integer")
            elif value not in kind:
                words = " nor ".join(f"`{word}`" for word in kind)
                raise Failed(f"parameter {key}={value!r} is neither {words}")
        return taken


@dataclass(frozen=True)
class Asked:
    """A case to be built."""

    problem: Problem
    variant: str
    params: Mapping[str, Any]
    """Those that are not `auto`, checked against the variant's declaration."""
    tensors: Tensors
    """`q`, `k`, `v`, with a gradient also `dout`; logical, lying as the layout says."""
    settings: contextlib.ExitStack
    """What is entered here stays for as long as the case lives, and is left before the next."""


@dataclass(frozen=True)
class Built:
    """A call, ready to be made."""

    call: Call
    """Yields the problem's results in their order, logical in shape."""
    effective: Message = field(default_factory=dict)
    """What the parameters became."""
    earlier_stream: bool = False
    """The call takes the stream of an earlier one: backward through autograd, of forward."""
    problems: int = 1
    """Problems of about the case's size that one call works off."""
    varies: bool = False
    """The host's work is made anew in each call, which a replay would leave out."""
    refresh: Callable[[], None] | None = None
    """What must follow when the contents of the tensors were replaced where they lie: all that
    `build` made of these contents, such as what forward saved. Where a variant lets one, the
    addresses stay, for a CUDA graph of the call."""

    def __call__(self) -> Results:
        """One call; what is timed is `call` itself."""
        return self.call()
