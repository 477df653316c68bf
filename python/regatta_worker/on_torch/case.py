"""What a library on torch says of a variant, what it is asked for, and what it builds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regatta_worker.clock.timing import Plan
from regatta_worker.problem.attention import Problem
from regatta_worker.problem.input_sets import CaseInputs
from regatta_worker.problem.variant import HALVES as HALVES
from regatta_worker.problem.variant import Variant as Variant
from regatta_worker.protocol.channel import Message

Results = tuple[torch.Tensor, ...]
Call = Callable[[], Results]
Tensors = dict[str, torch.Tensor]

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


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
    tuned: tuple[str, ...] = ()
    """Of `effective`, what the library chose by itself."""
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


@dataclass
class PreparedCase(CaseInputs):
    """The case that a library holds."""

    problem: Problem
    built: Built
    settings: contextlib.ExitStack
    tensors: Tensors
    timed: tuple[Plan, bool] | None = None
    """How the last samples were taken, and whether the call waits for the device itself."""
