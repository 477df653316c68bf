"""FlexAttention, compiled: the mask is a Python function that torch.compile fuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from regatta_worker.on_torch.case import HALVES, Asked, Built, Tensors, Variant
from regatta_worker.on_torch.variants import by_autograd
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

BACKENDS = ("triton", "flash")

VARIANT = Variant(
    "FlexAttention under torch.compile, the mask as blocks",
    (*HALVES, "f32"),
    parameters={"backend": BACKENDS},
)


def build_flex(asked: Asked) -> Built:
    """The call of a case; it is compiled when it is first made."""
    if asked.tensors["q"].device.type != "cuda":
        raise Unsupported("FlexAttention is timed as its users run it, compiled for a GPU")
    word = asked.params.get("backend")
    # Dynamo keeps what it compiled for a function, eight shapes of it at most, and runs the
    # next one unfused: each case begins and ends with nothing kept.
    torch.compiler.reset()
    asked.settings.callback(torch.compiler.reset)
    attend = torch.compile(flex_attention, dynamic=False)
    built = flex_call(asked.problem, asked.tensors, word, attend)
    return replace(built, effective={} if word is None else {"backend": word})


def flex_call(
    problem: Problem, tensors: Tensors, backend: str | None, attend: Callable[..., Any]
) -> Built:
    """`flex_attention`, which is `attend`, on views in its order `[batch, heads, seq, width]`."""
    if problem.varlen:
        raise Unsupported("a packed ragged batch would need a mask of documents; none is built")
    blocks = None
    if not problem.mask.is_full:
        blocks = create_block_mask(
            mask_function(problem), None, None, problem.seq_q, problem.seq_k, tensors["q"].device
        )
    options = None if backend is None else {"BACKEND": backend.upper()}
    grouped = problem.heads != problem.kv_heads
    inputs = tuple(tensors[name].requires_grad_(problem.has_backward) for name in ("q", "k", "v"))
    dout = tensors.get("dout")

    def forward() -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in inputs)
        out = attend(q, k, v, block_mask=blocks, enable_gqa=grouped, kernel_options=options)
        return out.transpose(1, 2)

    return by_autograd(problem, forward, inputs, dout)


def mask_function(problem: Problem) -> Callable[..., torch.Tensor]:
    """Whether query `i` sees key `j`, as FlexAttention asks; the bounds are constants in it."""
    offset = problem.mask.offset(problem.seq_q, problem.seq_k)
    left, right = problem.mask.left, problem.mask.right
    ahead, behind = offset + (right or 0), offset - (left or 0)

    def causal(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return j <= i + ahead

    def windowed(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return j >= i + behind

    def band(b: Any, h: Any, i: torch.Tensor, j: torch.Tensor) -> torch.Tensor:
        return causal(b, h, i, j) & windowed(b, h, i, j)

    if left is None:
        return causal
    return windowed if right is None else band
