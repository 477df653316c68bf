"""A case of a library on torch: what a variant's function is given, and the call it returns.

Tensors are logical, `[batch, seq, heads, width]` or packed, `[total, heads, width]`, and lie in
memory as the caller's layout says; a variant reaches them through views. Its function does what
precedes the timed call (forward, where only backward is timed). Results are logical too and are
left as the library lays them out, as its users get them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regatta_worker.case import Case
from regatta_worker.problem import Problem
from regatta_worker.protocol.channel import Message, Unsupported

Results = tuple[torch.Tensor, ...]
Tensors = dict[str, torch.Tensor]

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Call:
    """A call, ready to be made."""

    run: Callable[[], Results]
    """Yields the problem's results in their order, logical in shape."""
    refresh: Callable[[], None] | None = None
    """Called after the contents of the tensors were replaced in place: all that
    was made of these contents, such as what forward saved. Where a variant lets one, the
    addresses stay, for a CUDA graph of the call."""
    earlier_stream: bool = False
    """The call takes the stream of an earlier one: backward through autograd, of forward."""
    by_autograd: bool = False
    """The call goes through autograd's own thread, whose wake-up is in the host time."""
    problems: int = 1
    """Problems of about the case's size that one call covers."""
    varies: bool = False
    """The host's work is repeated in each call, which a replay would leave out."""
    selected: Callable[[], Message] = dict
    """The library's choices in the first call, for `effective`."""
    draws_lengths: bool = False
    """Each call's results are of other lengths, the longest first and the shortest last."""


@dataclass(kw_only=True)
class TorchCase(Case):
    """The case that a library is asked for, and then holds."""

    problem: Problem
    variant: str
    params: Mapping[str, Any]
    tensors: Tensors
    """`q`, `k`, `v`, with a gradient also `dout`."""
    module: Any = None
    """The library's, as the variant declares it."""
    effective: Message = field(default_factory=dict)
    """The effective values of the parameters."""
    tuned: tuple[str, ...] = ()
    """The names in `effective` that the library chose by itself."""
    settings: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Contexts entered here stay for as long as the case lives, and are left before the next:
    to enter them again in each call would be counted as the host's time."""
    built: Call = field(default_factory=lambda: Call(tuple))

    def call(self) -> Results:
        """One call; what is timed is `built.run` itself."""
        return self.built.run()

    @property
    def device(self) -> torch.device:
        return self.tensors["q"].device

    @property
    def grouped(self) -> bool:
        """True if query heads share key-value heads."""
        return self.problem.heads != self.problem.kv_heads

    def param(self, name: str, default: Any = None) -> Any:
        """A parameter, which `effective` then has, unless neither the request nor `default` says
        one."""
        value = self.params.get(name, default)
        if value is not None:
            self.effective[name] = value
        return value

    # Sequences packed row after row, and where each begins.

    def bounds(self, device: torch.device | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """`cu_seqlens_q` and `cu_seqlens_k`, of a batch of equal lengths too."""
        device = device or self.device
        sequences = self.problem.sequences
        q, k = starts([s.seq_q for s in sequences]), starts([s.seq_k for s in sequences])
        return q.to(device), k.to(device)

    def packing(self) -> tuple[Any, Any, int | None, int | None]:
        """`cu_seqlens_q`, `cu_seqlens_k` and the longest of each; all None for an even batch."""
        if not self.problem.varlen:
            return None, None, None, None
        return *self.bounds(), self.problem.seq_q, self.problem.seq_k

    def rows(self, name: str, library: str) -> torch.Tensor:
        """A tensor as packed rows: a view, never a copy; `library` is whose wish that is."""
        tensor = self.tensors[name]
        if self.problem.varlen:
            return tensor
        if self.problem.batch == 1:
            return tensor[0]
        if self.problem.layout == "bhsd":
            raise Unsupported(
                f"{library} takes the rows of a batch packed, and those of a batch in bhsd are not "
                "a view of it"
            )
        return tensor.flatten(0, 1)

    def flash_mask(self) -> tuple[bool, int, int]:
        """The mask as all generations of FlashAttention take it: `causal`, or else a window around
        the diagonal that ends at the last query and key (since 2.1), -1 for an unbounded side.

        Raises Unsupported where the diagonal ends elsewhere.
        """
        left, right = self.problem.window("FlashAttention")
        causal = self.problem.mask.is_causal
        return causal, left, -1 if causal else right

    # Calls of the problem's direction.

    def inputs(self) -> Results:
        """`q`, `k`, `v`, of which autograd is to find the gradients."""
        gradients = self.problem.has_backward
        return tuple(self.tensors[name].requires_grad_(gradients) for name in ("q", "k", "v"))

    def differentiable(self, attend: Callable[..., torch.Tensor]) -> Call:
        """`attend(q, k, v)` on logical tensors, and its gradient by autograd."""
        inputs, access = self.inputs(), Access(self)

        def forward() -> torch.Tensor:
            return access.deliver(attend(*access.read(*inputs)))[0]

        return by_autograd(self.problem, forward, inputs, self.tensors.get("dout"))

    def operators(
        self,
        forward: Callable[..., tuple[torch.Tensor, Any]],
        backward: Callable[..., Results],
        batched: bool = False,
    ) -> Call:
        """Operators that are called apart, without autograd.

        `forward(q, k, v)` yields `out` and whatever else `backward(dout, q, k, v, out, saved)`
        takes of it to make the three gradients; all in the order of the logical tensors. With
        `batched` a packed batch is one row of them.
        """
        problem, access = self.problem, Access(self)
        packed = batched and bool(problem.varlen)
        given = {name: x.unsqueeze(0) if packed else x for name, x in self.tensors.items()}
        inputs, dout = tuple(given[name] for name in ("q", "k", "v")), given.get("dout")

        def run_forward() -> tuple[Results, torch.Tensor, Any]:
            read = access.read(*inputs)
            return read, *forward(*read)

        def delivered(*results: torch.Tensor) -> Results:
            found = access.deliver(*results)
            return tuple(x.squeeze(0) for x in found) if packed else found

        def gradient(read: Results, out: torch.Tensor, saved: Any) -> Results:
            return delivered(*backward(*access.read(dout), *read, out, saved))

        if problem.direction == "forward":
            return Call(lambda: delivered(run_forward()[1]))
        if problem.direction == "backward":
            before = run_forward()
            return Call(lambda: gradient(*before), lambda: written(before, run_forward()))

        def both() -> Results:
            now = run_forward()
            return (*delivered(now[1]), *gradient(*now))

        return Call(both, by_autograd=True)


def starts(lengths: list[int]) -> torch.Tensor:
    """The start of each sequence, and the total: int32, on the host."""
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


class Access:
    """The parameter `access`: strided views, or the needless copies a wrapper may make.

    `copies` is `.transpose(1, 2).contiguous()` of each input into the order the caller
    does not hold, and of the result back (flash-attention issue 827).
    """

    DECLARED: Mapping[str, Any] = {"access": ("views", "copies")}

    def __init__(self, case: TorchCase) -> None:
        self._copies = case.params.get("access") == "copies"
        if self._copies and case.problem.varlen:
            raise Unsupported("access=copies: a packed batch has no heads to transpose")
        self._layout = case.problem.layout
        self._other = "bshd" if self._layout == "bhsd" else "bhsd"

    def read(self, *tensors: Any) -> Results:
        return _ordered(tensors, self._other) if self._copies else tensors

    def deliver(self, *results: torch.Tensor) -> Results:
        return _ordered(results, self._layout) if self._copies else results


def _ordered(tensors: Results, layout: str) -> Results:
    """Tensors lying in memory in this order; a copy only if one does not already."""
    if layout == "bhsd":
        return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors)
    return tuple(x.contiguous() for x in tensors)


def by_autograd(
    problem: Problem, forward: Callable[[], torch.Tensor], inputs: Results, dout: Any
) -> Call:
    """The problem's direction of a differentiable forward.

    For backward it is run here, and again for other contents: a graph for each.
    """

    def gradient(out: torch.Tensor) -> Results:
        found: Results = torch.autograd.grad(out, inputs, dout, retain_graph=True)
        return found

    if problem.direction == "forward":
        return Call(lambda: (forward(),))
    if problem.direction == "backward":
        saved = [forward()]

        def refresh() -> None:
            # First, or there would be two graphs at a time.
            saved.clear()
            saved.append(forward())

        return Call(lambda: gradient(saved[0]), refresh, earlier_stream=True, by_autograd=True)

    def both() -> Results:
        out = forward()
        return (out.detach(), *gradient(out))

    return Call(both, by_autograd=True)


def written(into: Any, values: Any) -> None:
    """Writes forward's results of other contents over the earlier results, at the same
    addresses. Both are tensors, or tuples of them and of what no contents change."""
    if isinstance(into, torch.Tensor):
        # Inputs that are passed without a copy have been changed already.
        if into.data_ptr() != values.data_ptr():
            into.copy_(values)
    elif isinstance(into, (tuple, list)):
        for one, value in zip(into, values, strict=True):
            written(one, value)
