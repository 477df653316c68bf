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


def scale(x: torch.Tensor) -> torch.Tensor:
    """What comes behind the blocks, of as many positions as there are."""
    return torch.tanh(x.float() * 0.5).to(x.dtype)


@torch.no_grad()
def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    block = Block(change).to("cuda", torch.bfloat16)
    compiled = torch.compile(block, dynamic=False)
    data = torch.randn(8, LENGTH, WIDTH, device="cuda", dtype=torch.bfloat16)
    scaled = torch.compile(scale, dynamic=False)

    @torch.no_grad()
    def step(number: int) -> None:
        given = data
        for _ in range(3):
            given = compiled(given)
        # A length for which nothing is compiled yet.
        length = LENGTH - 8 * (number + 4) if change == "lengths-change" else LENGTH
        scaled(given[:, :length])

    return Program(step, torch.cuda.synchronize)
