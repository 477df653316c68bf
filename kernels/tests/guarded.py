"""Problems for one kernel at a time: outputs are poisoned and stand between guards."""

from __future__ import annotations

import math

import torch

from driver import Problem, Tensor
from race import flops
from shapes import CAUSAL, CAUSAL_BR, FULL, LIMIT
from tensors import KINDS, attention, relative

GUARD = 4096  # elements on either side of an output
# left, right, align, as in `Problem` of problem.cuh
MASKS = {"full": FULL, "causal": CAUSAL, "causal-br": CAUSAL_BR, "window": (200, 37, 0)}


class Guarded:
    """Random inputs of one attention problem, and poisoned, guarded outputs.

    Tensors are seen as [batch, seq, heads, head_dim] whatever lies in memory.
    """

    def __init__(
        self,
        dtype: str,
        batch: int,
        heads: int,
        kv_heads: int,
        seq_q: int,
        seq_k: int,
        head_dim: int,
        layout: str = "bshd",
        mask: str = "full",
    ) -> None:
        self.dtype, self.head_dim, self.layout = dtype, head_dim, layout
        self.mask = MASKS[mask]
        self.batch, self.heads, self.kv_heads = batch, heads, kv_heads
        self.seq_q, self.seq_k = seq_q, seq_k
        self.q, self.k, self.v = (
            self.logical(torch.randn(self.physical(s, h), device="cuda", dtype=KINDS[dtype]))
            for s, h in ((seq_q, heads), (seq_k, kv_heads), (seq_k, kv_heads))
        )
        self.out, self.out_guards = guarded(self.physical(seq_q, heads), KINDS[dtype])
        self.out = self.logical(self.out)
        self.lse, self.lse_guards = guarded((batch, heads, seq_q), torch.float32)
        self.scale = 1 / math.sqrt(head_dim)
        self.low, self.high = self.contract().band()

    def contract(self) -> Problem:
        """`Problem` of problem.cuh; forward's part."""
        left, right, align = self.mask
        given = Problem(
            batch=self.batch,
            heads=self.heads,
            kv_heads=self.kv_heads,
            seq_q=self.seq_q,
            seq_k=self.seq_k,
            head_dim=self.head_dim,
            head_dim_v=self.head_dim,
            mask_left=left,
            mask_right=right,
            mask_align=align,
            scale=self.scale,
            lse=self.lse.data_ptr(),
        )
        for name in ("q", "k", "v", "out"):
            tensor = getattr(self, name)
            setattr(given, name, Tensor(tensor.data_ptr(), *tensor.stride()[:3]))
        return given

    def physical(self, seq: int, heads: int) -> tuple[int, ...]:
        if self.layout == "bshd":
            return (self.batch, seq, heads, self.head_dim)
        return (self.batch, heads, seq, self.head_dim)

    def logical(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.layout == "bshd" else tensor.transpose(1, 2)

    def flops(self) -> int:
        return flops(self.contract(), "forward")

    def reference(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Output and log-sum-exp in float64; 0 and -inf for a query that sees no key."""
        q, k, v = (t.double().transpose(1, 2) for t in (self.q, self.k, self.v))
        out, lse = attention(q, k, v, self.contract())
        return out.transpose(1, 2), lse

    def verdict(self) -> tuple[float, float, list[str]]:
        """Relative L2 error of the output, and what is wrong with it, if anything."""
        out, lse = self.reference()
        error = relative(self.out, out)
        some = torch.isfinite(lse)
        off = (self.lse.double() - lse)[some].abs().max().item() if some.any() else 0.0
        wrong = []
        if not error <= LIMIT[self.dtype]:
            wrong.append("out")
        if not off <= 2e-3 or not torch.equal(torch.isfinite(self.lse), some):
            wrong.append(f"lse({off:.1e})")
        if not all((g == 7).all() for g in (*self.out_guards, *self.lse_guards)):
            wrong.append("guards")
        return error, off, wrong


def guarded(
    shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    count = math.prod(shape)
    room = torch.full((count + 2 * GUARD,), 7.0, device="cuda", dtype=dtype)
    middle = room[GUARD : GUARD + count]
    middle.fill_(math.nan)
    return middle.view(shape), (room[:GUARD], room[GUARD + count :])
