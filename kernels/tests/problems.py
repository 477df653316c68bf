"""The problems that the checks take, their tensors on the GPU, and float64 attention by PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch

from driver import Problem

Shape = tuple[int, int, int, int, int, int, int, tuple[int, int, int], str]
DTYPES = ("f32", "f16", "bf16")
INPUTS = ("q", "k", "v", "dout")

# batch, heads, kv_heads, seq_q, seq_k, head_dim, head_dim_v, (left, right, align), layout
FULL, CAUSAL, CAUSAL_BR = (-1, -1, 0), (-1, 0, 0), (-1, 0, 1)
CASES: list[Shape] = [
    (1, 1, 1, 64, 64, 64, 64, FULL, "bshd"),
    (2, 3, 3, 128, 192, 32, 32, FULL, "bhsd"),
    (2, 4, 2, 257, 259, 128, 128, FULL, "bshd"),
    (1, 2, 1, 1, 333, 64, 64, FULL, "bshd"),
    (1, 8, 1, 200, 77, 128, 128, FULL, "bhsd"),
    (1, 2, 2, 300, 300, 128, 128, CAUSAL, "bshd"),
    (2, 4, 2, 513, 513, 64, 64, CAUSAL, "bhsd"),
    (1, 2, 1, 100, 400, 64, 64, CAUSAL, "bshd"),
    (1, 2, 1, 100, 400, 128, 128, CAUSAL_BR, "bshd"),
    (1, 2, 1, 400, 100, 128, 128, CAUSAL, "bhsd"),
    (1, 2, 1, 400, 100, 64, 64, CAUSAL_BR, "bshd"),  # rows that see no key
    (1, 2, 2, 700, 700, 64, 64, (128, 0, 0), "bshd"),
    (1, 4, 2, 500, 611, 128, 128, (37, 5, 1), "bhsd"),
    (1, 2, 2, 300, 40, 64, 64, (10, 3, 0), "bshd"),  # rows that see no key, below
    (1, 2, 1, 150, 150, 80, 80, CAUSAL, "bshd"),
    (1, 2, 2, 130, 190, 72, 104, FULL, "bhsd"),
    (1, 3, 3, 1025, 1023, 40, 40, CAUSAL, "bshd"),
    (1, 2, 2, 4096, 4096, 32, 32, FULL, "bshd"),
    (1, 2, 2, 4096, 4096, 128, 128, CAUSAL, "bshd"),
]
# The same with scores of up to about ±100 that grow along the keys, so that the running
# maximum of the softmax moves in every tile.
LOUD: list[Shape] = [
    (1, 2, 1, 300, 1100, 64, 64, FULL, "bshd"),
    (1, 2, 2, 1000, 1000, 128, 128, CAUSAL, "bhsd"),
]


def problem_of(case: Shape) -> Problem:
    *sizes, (left, right, align), _ = case
    mask = {"mask_left": left, "mask_right": right, "mask_align": align, "num_splits": 0}
    named = dict(zip(Problem.SIZES, sizes, strict=True))
    return Problem(**named, **mask, scale=1 / math.sqrt(sizes[5]))


def shape_of(p: Problem, name: str) -> tuple[int, int, int, int]:
    """Logical order: batch, seq, heads, head_dim."""
    keys = name in ("k", "v", "dk", "dv")
    wide = name in ("v", "dv", "out", "dout")
    return (
        p.batch,
        p.seq_k if keys else p.seq_q,
        p.kv_heads if keys else p.heads,
        p.head_dim_v if wide else p.head_dim,
    )


KINDS = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def attention(q: Any, k: Any, v: Any, p: Problem) -> tuple[Any, Any]:
    """Output and log-sum-exp of tensors in [batch, heads, seq, head_dim], differentiable.

    0 and -inf for a query that sees no key.
    """
    group = p.heads // p.kv_heads
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * (1 / math.sqrt(p.head_dim))
    low, high = p.band()
    i, j = (torch.arange(n, device="cuda") for n in (p.seq_q, p.seq_k))
    seen = (j >= i[:, None] + low) & (j <= i[:, None] + high)
    lse = torch.logsumexp(scores.masked_fill(~seen, -math.inf), -1)
    safe = torch.where(lse == -math.inf, 0.0, lse)[..., None]
    weights = torch.where(seen, torch.exp(torch.where(seen, scores, -1e300) - safe), 0.0)
    return weights @ v.repeat_interleave(group, 1), lse


def relative(result: Any, reference: Any) -> float:
    norm = float(reference.norm().item())
    error = float((result.double() - reference).norm().item())
    return error / norm if norm else error


class Case:
    """A problem with its tensors on the GPU."""

    def __init__(self, case: Shape, dtype: str, seed: int = 0, loud: bool = False) -> None:
        self.case, self.dtype, self.layout = case, dtype, case[-1]
        self.problem = problem_of(case)
        self.kind = KINDS[dtype]
        generator = torch.Generator("cuda").manual_seed(seed)
        self.tensors = {}
        for name in Problem.TENSORS:
            tensor = self.empty(shape_of(self.problem, name))
            if name in INPUTS:
                uniform = torch.rand(tensor.shape, device="cuda", generator=generator)
                values = (2 * uniform - 1) * math.sqrt(3)
                if loud and name == "k":
                    values *= torch.linspace(0.1, 20, values.shape[1], device="cuda")[:, None, None]
                tensor.copy_(values)
            self.tensors[name] = tensor
        self.fill()

    def empty(self, shape: tuple[int, ...]) -> Any:
        """In logical order whatever the layout."""
        b, s, h, d = shape
        if self.layout == "bshd":
            return torch.empty(b, s, h, d, device="cuda", dtype=self.kind)
        return torch.empty(b, h, s, d, device="cuda", dtype=self.kind).transpose(1, 2)

    def fill(self) -> None:
        for name, tensor in self.tensors.items():
            field = getattr(self.problem, name)
            field.data = tensor.data_ptr()
            field.batch, field.seq, field.head = tensor.stride()[:3]

    def reference(self) -> tuple[dict[str, Any], Any]:
        """All results and lse in float64, on the same rounded inputs."""
        q, k, v = (
            self.tensors[n].double().transpose(1, 2).detach().requires_grad_() for n in "qkv"
        )
        out, lse = attention(q, k, v, self.problem)
        grads = torch.autograd.grad(out, (q, k, v), self.tensors["dout"].double().transpose(1, 2))
        found = dict(zip(("out", "dq", "dk", "dv"), (out, *grads), strict=True))
        return {n: t.detach().transpose(1, 2) for n, t in found.items()}, lse.detach()
