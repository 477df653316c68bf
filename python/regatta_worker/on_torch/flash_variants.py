"""What the generations of FlashAttention have in common, and torch's copy of the second.

All take `[batch, seq, heads, width]` or, packed, `[total, heads, width]`; fewer key-value
heads than heads; and a mask that is a band around the diagonal from the bottom right.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from regatta_worker.on_torch.case import Built, Results, Tensors
from regatta_worker.on_torch.packing import packing
from regatta_worker.on_torch.variants import Access, operator_call
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

UNBOUNDED = -1


class Band(NamedTuple):
    """A mask as FlashAttention takes it: `causal`, or else a window around the diagonal."""

    causal: bool
    left: int
    right: int


def band(problem: Problem) -> Band:
    """The problem's mask; refuses what FlashAttention would take for another mask.

    The diagonal ends at the last query and the last key since version 2.1.
    """
    mask = problem.mask
    if not (mask.is_full or mask.align == "bottom-right" or problem.is_square):
        raise Unsupported(
            "FlashAttention aligns its masks at the bottom right (since 2.1); one aligned at the "
            "top left is the same only where seq_q is seq_k"
        )
    if mask.is_causal:
        return Band(True, UNBOUNDED, UNBOUNDED)
    left, right = (UNBOUNDED if side is None else side for side in (mask.left, mask.right))
    return Band(False, left, right)


def build_flash(problem: Problem, tensors: Tensors, access: Access) -> Built:
    """`aten::_flash_attention_forward` and `_backward`: FlashAttention-2 without SDPA around it."""
    causal, left, right = band(problem)
    window = {"window_size_left": left, "window_size_right": right}
    cu_seqlens_q, cu_seqlens_k, max_q, max_k = packing(problem, tensors["q"].device)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_q or problem.seq_q, max_k or problem.seq_k)
    aten = torch.ops.aten

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        out, logsumexp, rng_state, unused, _ = aten._flash_attention_forward(
            q, k, v, *lengths, 0.0, causal, False, **window
        )
        return out, (logsumexp, rng_state, unused)

    def backward(
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        out: torch.Tensor,
        saved: Any,
    ) -> Results:
        logsumexp, rng_state, unused = saved
        gradients: Results = aten._flash_attention_backward(
            dout, q, k, v, out, logsumexp, *lengths, 0.0, causal, rng_state, unused, **window
        )
        return gradients

    return operator_call(problem, tensors, access, forward, backward)
