"""Attention by its definition in float64, to stand in for kernels that need a GPU.

It takes masks as the kernels are given them, so that a wrong argument is a wrong value.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import support
from regatta_worker.problem import inputs
from regatta_worker.problem.attention import Mask, Problem
from regatta_worker.problem.reference import Arrays, ReferenceCache

Results = tuple[torch.Tensor, ...]

CPU = torch.device("cpu")


def made(**axes: Any) -> tuple[Problem, dict[str, torch.Tensor]]:
    """A problem with its inputs in float32."""
    problem = Problem.from_wire(support.wire(**axes))
    names = inputs.TENSORS if problem.has_backward else ("q", "k", "v")
    return problem, {
        name: inputs.torch_input(problem, name, 3, torch.float32, CPU) for name in names
    }


def right(problem: Problem, values: dict[str, torch.Tensor], results: Any, seed: int = 3) -> None:
    """That results are attention of these values."""
    exact = ReferenceCache(Arrays.of_torch(CPU)).of(problem, seed, values)
    for name, value in zip(problem.results, results, strict=True):
        assert tuple(value.shape) == problem.shape(name)
        assert not value.requires_grad, name
        expected = torch.as_tensor(exact[name]).view(value.shape)
        torch.testing.assert_close(value.double(), expected, atol=1e-5, rtol=1e-5)


def right_twice(problem: Problem, tensors: dict[str, torch.Tensor], built: Any) -> None:
    """Also once other contents lie where these did, such as in the pages of a cache."""
    values = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    right(problem, values, built())
    support.put(4, tensors, values, built.refresh)
    right(problem, values, built(), 4)


def flash_mask(causal: bool, left: int | None, right: int | None) -> Mask:
    """FlashAttention's arguments as a mask: from the bottom right, -1 or None unbounded."""
    left, right = (None if side is None or side < 0 else side for side in (left, right))
    return Mask(left, 0 if causal else right, "bottom-right")


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    cu_seqlens: tuple[Any, Any] = (None, None),
) -> torch.Tensor:
    """`out` in the queries' type; tensors are packed where there are `cu_seqlens`."""
    return _each(q, k, v, None, mask, cu_seqlens)[0]


def backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    cu_seqlens: tuple[Any, Any] = (None, None),
) -> Results:
    """`dq`, `dk`, `dv`."""
    return _each(q, k, v, dout, mask, cu_seqlens)


def statistics(out: torch.Tensor) -> torch.Tensor:
    """What stands for the logsumexp that forward hands to backward."""
    return out.float().sum().reshape(1)


def of_these_inputs(
    out: torch.Tensor, saved: torch.Tensor, q: Any, k: Any, v: Any, mask: Mask, cu_seqlens: Any
) -> None:
    """That what forward saved is of the inputs that backward is given."""
    torch.testing.assert_close(out, forward(q, k, v, mask, cu_seqlens))
    torch.testing.assert_close(saved, statistics(out))


def _each(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor | None,
    mask: Mask,
    cu_seqlens: tuple[Any, Any],
) -> Results:
    """Sequence by sequence, each `[seq, heads, width]`."""
    if cu_seqlens[0] is None:
        assert q.ndim == 4
        douts = [None] * len(q) if dout is None else dout
        parts = [_one(*part, mask) for part in zip(q, k, v, douts, strict=True)]
        return tuple(torch.stack(results) for results in zip(*parts, strict=True))
    assert q.ndim == 3
    lengths_q, lengths_k = (bounds.diff().tolist() for bounds in cu_seqlens)
    douts = [None] * len(lengths_q) if dout is None else dout.split(lengths_q)
    split = (q.split(lengths_q), k.split(lengths_k), v.split(lengths_k), douts)
    parts = [_one(*part, mask) for part in zip(*split, strict=True)]
    return tuple(torch.cat(results) for results in zip(*parts, strict=True))


def _one(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor | None, mask: Mask
) -> Results:
    dtype, kv_heads, group = q.dtype, k.shape[1], q.shape[1] // k.shape[1]
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    k, v = (x.repeat_interleave(group, dim=0) for x in (k, v))
    rows, columns = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])[None, :]
    seen = mask.visible(rows, columns, mask.offset(q.shape[1], k.shape[1]))
    scale = 1.0 / math.sqrt(q.shape[-1])
    scores = (q @ k.mT * scale).masked_fill(~seen, -math.inf)
    p = scores.softmax(-1).nan_to_num()
    out = p @ v
    if dout is None:
        return (out.transpose(0, 1).to(dtype),)
    dout = dout.double().transpose(0, 1)
    ds = p * (dout @ v.mT - (dout * out).sum(-1, keepdim=True)) * scale
    dk, dv = (x.unflatten(0, (kv_heads, group)).sum(1) for x in (ds.mT @ q, p.mT @ dout))
    return tuple(x.transpose(0, 1).to(dtype) for x in (ds @ k, dk, dv))
