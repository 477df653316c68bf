"""`torch.nn.attention.varlen.varlen_attn`: packed ragged batches, by FlashAttention 2."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from regatta_worker.on_torch.case import Asked, Built, Results, Tensors, Variant
from regatta_worker.on_torch.packing import bounds, rows
from regatta_worker.on_torch.variants import by_autograd
from regatta_worker.problem.attention import Problem
from regatta_worker.protocol.channel import Unsupported

UNBOUNDED = (-1, -1)

VARIANT = Variant("torch.nn.attention.varlen.varlen_attn, FlashAttention 2 on packed rows")


def build_varlen(asked: Asked) -> Built:
    """The call of a case."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError as error:
        raise Unsupported(f"torch {torch.__version__} has no varlen_attn: {error}") from error
    if asked.tensors["q"].device.type != "cuda":
        raise Unsupported("varlen_attn has kernels for GPUs alone")
    return varlen_call(asked.problem, asked.tensors, varlen_attn)


def varlen_call(problem: Problem, tensors: Tensors, attend: Callable[..., Any]) -> Built:
    """`varlen_attn`, which is `attend`; a batch of equal lengths is packed by a view."""
    options = _options(problem, attend)
    starts = bounds(problem, tensors["q"].device)
    names = ("q", "k", "v", "dout") if problem.has_backward else ("q", "k", "v")
    packed = {name: rows(problem, tensors[name], "varlen_attn") for name in names}
    inputs = tuple(packed[name].requires_grad_(problem.has_backward) for name in ("q", "k", "v"))
    shapes = [problem.shape(name) for name in problem.results]

    def forward() -> torch.Tensor:
        return attend(*inputs, *starts, problem.seq_q, problem.seq_k, **options)

    built = by_autograd(problem, forward, inputs, packed.get("dout"))

    def call() -> Results:
        return tuple(x.view(shape) for x, shape in zip(built.call(), shapes, strict=True))

    return replace(built, call=call)


def _options(problem: Problem, attend: Callable[..., Any]) -> dict[str, Any]:
    """The window, where there is one: not every release of torch has `window_size`."""
    window = _window(problem)
    if window == UNBOUNDED:
        return {}
    if "window_size" not in inspect.signature(attend).parameters:
        raise Unsupported(
            f"varlen_attn of torch {torch.__version__} has no window_size, by which masks are given"
        )
    return {"window_size": window}


def _window(problem: Problem) -> tuple[int, int]:
    """Keys seen before and after the query's own position; -1 is unbounded."""
    mask = problem.mask
    if not mask.is_full and mask.align == "top-left" and not problem.is_square:
        raise Unsupported(
            "varlen_attn aligns masks to the bottom right; aligned to the top left they differ "
            "where the lengths of queries and keys do"
        )
    return (-1 if mask.left is None else mask.left, -1 if mask.right is None else mask.right)
