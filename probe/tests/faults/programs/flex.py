"""FlexAttention with a sliding window, compiled, forward."""

from __future__ import annotations

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from faults.around import Program

LENGTH, WINDOW = 8192, 1024


def in_window(b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The mask: causal, and not too far back."""
    return (q >= k) & (q - k < WINDOW)


def scored(
    score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, q: torch.Tensor, k: torch.Tensor
) -> torch.Tensor:
    """The same mask as a score, which leaves no block out."""
    return torch.where((q >= k) & (q - k < WINDOW), score, -float("inf"))


@torch.no_grad()
def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(2, 16, LENGTH, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(in_window, None, None, LENGTH, LENGTH, device="cuda")

    @torch.no_grad()
    def step(_: int) -> None:
        block_mask = mask
        if change == "mask-each-step":
            block_mask = create_block_mask(in_window, None, None, LENGTH, LENGTH, device="cuda")
        given = q
        for _ in range(4):
            if change == "dense-mask":
                given = compiled(given, k, v, score_mod=scored)
            else:
                given = compiled(given, k, v, block_mask=block_mask)
            given = given + q
        given.mean()

    return Program(step, torch.cuda.synchronize, compiles=True)
