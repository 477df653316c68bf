"""Library `flash_attn`: FlashAttention 2, 3 and 4, each where its own package is installed."""

from __future__ import annotations

from typing import Any

import torch

from regatta_worker.on_torch.case import Access, Call, Results, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.protocol.channel import Unsupported

WORKER = Library(
    "flash_attn",
    # xFormers brings a copy of FlashAttention-3.
    packages=("flash-attn", "flash-attn-3", "flash-attn-4", "nvidia-cutlass-dsl", "xformers"),
    # FlashAttention-4 asserts what it takes.
    refusals=(RuntimeError, ValueError, AssertionError),
)


def lengths(case: TorchCase) -> dict[str, Any]:
    """The starts of packed sequences, and the longest."""
    names = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    return dict(zip(names, case.packing(), strict=True))


@WORKER.variant(
    "fa2",
    "FlashAttention-2, flash_attn_func",
    modules=("flash_attn.flash_attn_interface",),
    on_gpu=False,
    parameters=Access.DECLARED,
)
def fa2(case: TorchCase) -> Call:
    """`flash_attn_func` or `flash_attn_varlen_func`: the raw operators differ by release."""
    causal, left, right = case.flash_mask()
    packed, library = case.problem.varlen, case.module
    given = lengths(case) if packed else {}
    function = library.flash_attn_varlen_func if packed else library.flash_attn_func

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return function(q, k, v, **given, causal=causal, window_size=(left, right))

    return case.differentiable(attend)


@WORKER.variant(
    "fa3",
    "FlashAttention-3, flash_attn_3::fwd and ::bwd called directly",
    # Either registers the operators; the second is xFormers' copy, which can be imported where
    # it was not built.
    modules=("flash_attn_interface", "xformers.ops.fmha.flash3"),
    registers=("flash_attn_3", "fwd"),
    on_gpu=False,
    parameters={**Access.DECLARED, "num_splits": "integer"},
)
def fa3(case: TorchCase) -> Call:
    """`num_splits` is of the keys in forward, None the heuristic."""
    splits = case.params.get("num_splits")
    if splits is not None and not case.problem.has_forward:
        raise Unsupported("flash_attn_3::bwd has no num_splits; forward has")
    # Below 1 the heuristic decides, and does not tell.
    case.effective |= {} if splits is None or splits < 1 else {"num_splits": splits}
    operators = torch.ops.flash_attn_3
    causal, left, right = case.flash_mask()
    given = lengths(case) | {
        "softmax_scale": case.problem.scale,
        "is_causal": causal,
        "window_size_left": left,
        "window_size_right": right,
    }
    chosen = {} if splits is None else {"num_splits": splits}

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        out, logsumexp, *_ = operators.fwd(q, k, v, **given, **chosen)
        return out, logsumexp

    def backward(dout: torch.Tensor, *saved: torch.Tensor) -> Results:
        return tuple(operators.bwd(dout, *saved, **given)[:3])

    return case.operators(forward, backward)


@WORKER.variant(
    "fa4",
    "FlashAttention-4 (CuTe DSL), _flash_attn_fwd and _flash_attn_bwd",
    modules=("flash_attn.cute.interface",),
    on_gpu=False,
    parameters=Access.DECLARED,
)
def fa4(case: TorchCase) -> Call:
    """The halves of `flash_attn.cute`'s autograd function; the first call compiles."""
    library, has_backward = case.module, case.problem.has_backward
    causal, left, right = case.flash_mask()
    given: dict[str, Any] = lengths(case) | {
        "causal": causal,
        "window_size_left": None if left == -1 else left,
        "window_size_right": None if right == -1 else right,
    }

    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, Any]:
        out, logsumexp, *_ = library._flash_attn_fwd(q, k, v, **given, return_lse=has_backward)
        return out, logsumexp

    def backward(dout: Any, q: Any, k: Any, v: Any, out: Any, logsumexp: Any) -> Results:
        return tuple(library._flash_attn_bwd(q, k, v, out, dout, logsumexp, **given)[:3])

    return case.operators(forward, backward)
