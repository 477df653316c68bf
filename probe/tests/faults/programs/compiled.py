"""A transformer block under torch.compile, forward, in bf16."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from faults.around import Program

WIDTH, HEADS, LENGTH = 1024, 16, 2048


class Block(nn.Module):
    """Attention and an MLP, with a norm before each."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.breaks = change == "graph-breaks"
        widths = {
            "qkv": (WIDTH, 3 * WIDTH),
            "out": (WIDTH, WIDTH),
            "up": (WIDTH, 4 * WIDTH),
            "down": (4 * WIDTH, WIDTH),
        }
        names = list(widths)
        for name in reversed(names) if change == "modules-in-another-order" else names:
            self.add_module(name, nn.Linear(*widths[name]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of [batch, length, width]."""
        batch, length, _ = x.shape
        normed = self.pause(x.float().square().mean(-1, keepdim=True).rsqrt())
        normed = self.pause((x * normed).to(x.dtype))
        q, k, v = self.qkv(normed).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = self.pause(x + self.out(mixed.transpose(1, 2).reshape(x.shape)))
        normed = self.pause(x.float().square().mean(-1, keepdim=True).rsqrt())
        normed = self.pause((x * normed).to(x.dtype))
        raised = self.pause(gelu(self.up(normed)))
        return x + self.down(raised)

    def pause(self, x: torch.Tensor) -> torch.Tensor:
        """The same; what comes next is another graph, where that is the change."""
        if self.breaks:
            torch._dynamo.graph_break()
        return x


@torch.no_grad()
def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    block = Block(change).to("cuda", torch.bfloat16)
    compiled = torch.compile(block, dynamic=False)
    data = torch.randn(8, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    lengths_change = change == "lengths-change"

    @torch.no_grad()
    def step(number: int) -> None:
        length = LENGTH - 8 * (number + 2) if lengths_change else LENGTH
        # Ten times, as a model has layers: one alone is over before the host is.
        given = data[:, :length]
        for _ in range(10):
            given = compiled(given)

    if lengths_change:
        # Each compiles for seconds.
        return Program(step, torch.cuda.synchronize, steps=5, warm_ups=1, compiles=True)
    return Program(step, torch.cuda.synchronize, compiles=True)
