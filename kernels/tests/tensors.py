"""A problem's tensors on the GPU, and attention in float64 by PyTorch."""

from __future__ import annotations

import math
from typing import Any

import torch

from driver import Problem
from launch import VARIANTS, auto_splits, ceil_div, workspace_bytes
from shapes import INPUTS, RESULTS, Shape, problem_of, shape_of

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
        rows = (self.problem.batch, self.problem.heads, self.problem.seq_q)
        self.lse, self.delta = (torch.empty(rows, device="cuda") for _ in range(2))
        self.workspace: Any = None
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
        self.problem.lse, self.problem.delta = self.lse.data_ptr(), self.delta.data_ptr()

    def prepare(self, variant: str, direction: str, splits: int | None = None) -> None:
        """Poisons what the variant writes, and gives it its workspace."""
        for name in RESULTS[direction]:
            self.tensors[name].fill_(math.nan)
        self.delta.fill_(math.nan)
        if direction == "forward":
            self.lse.fill_(math.nan)
        self.problem.num_splits = splits or auto_splits(self.problem)
        size = workspace_bytes(VARIANTS[variant][0], self.problem, direction)
        self.workspace = torch.full((ceil_div(size, 4),), math.nan, device="cuda") if size else None
        self.problem.workspace = self.workspace.data_ptr() if size else None

    def reference(self) -> tuple[dict[str, Any], Any]:
        """All results and lse in float64, on the same rounded inputs."""
        q, k, v = (
            self.tensors[n].double().transpose(1, 2).detach().requires_grad_() for n in "qkv"
        )
        out, lse = attention(q, k, v, self.problem)
        grads = torch.autograd.grad(out, (q, k, v), self.tensors["dout"].double().transpose(1, 2))
        found = dict(zip(("out", "dq", "dk", "dv"), (out, *grads), strict=True))
        return {n: t.detach().transpose(1, 2) for n, t in found.items()}, lse.detach()
