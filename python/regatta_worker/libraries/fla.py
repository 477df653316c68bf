"""Library `fla`: softmax attention of flash-linear-attention (fla-core), in Triton.

`parallel_attn` is given to `torch.compile` up to 0.5.2. From 0.5.0 on a release may leave the
work to TileLang, where that is installed. The import asks what GPU there is.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from regatta_worker.on_torch.case import Call, TorchCase
from regatta_worker.on_torch.library import Library
from regatta_worker.protocol.channel import Unsupported

MOST_HEAD_DIM = 256
"""The largest of queries and keys: one block of the kernel holds all of it."""

WORKER = Library(
    "fla",
    packages=("fla-core", "einops", "tilelang"),
    modules=("fla.ops.attn",),
    # The operator asserts what it takes.
    refusals=(RuntimeError, ValueError, AssertionError),
)


@WORKER.variant("parallel", "parallel_attn of fla.ops.attn: causal softmax attention")
def parallel(case: TorchCase) -> Call:
    problem, attend = case.problem, case.module.parallel_attn
    mask, given = problem.mask, dict[str, Any]()
    if not mask.is_causal:
        if mask.right != 0 or mask.left is None:
            raise Unsupported("parallel_attn is causal; it has no other mask but a window behind")
        if "window_size" not in inspect.signature(attend).parameters:
            raise Unsupported("parallel_attn has no window before fla-core 0.5.0")
        # It counts the query's own position.
        given["window_size"] = mask.left + 1
    if problem.head_dim > MOST_HEAD_DIM:
        raise Unsupported(f"parallel_attn takes a head_dim of at most {MOST_HEAD_DIM}")
    if any(sequence.seq_q != sequence.seq_k for sequence in problem.sequences):
        raise Unsupported("parallel_attn is of self-attention: seq_q and seq_k must be equal")
    if problem.varlen:
        # The kernels count in int64.
        given["cu_seqlens"] = case.bounds()[0].long()

    def call(*logical: torch.Tensor) -> torch.Tensor:
        rows = (x.unsqueeze(0) for x in logical) if problem.varlen else logical
        out: torch.Tensor = attend(*rows, **given)
        return out.squeeze(0) if problem.varlen else out

    return case.differentiable(call)
