"""scaled_dot_product_attention alone, forward and backward."""

from __future__ import annotations

import contextlib

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from faults.around import Program


def build(change: str) -> Program:
    """The program with a change."""
    torch.manual_seed(0)
    # cuDNN's kernels take a mask by themselves; the others are chosen by what is asked.
    torch.backends.cuda.enable_cudnn_sdp(False)
    shape = (2, 16, 4096, 128)
    leaves = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    mask = torch.ones(1, 1, *(2 * shape[2:3]), device="cuda", dtype=torch.bool).tril()
    dout = torch.randn(shape, device="cuda", dtype=torch.bfloat16)

    def step(_: int) -> None:
        given = leaves
        if change == "clone":
            given = [x.clone() for x in given]
        if change == "cast":
            given = [x.float().bfloat16() for x in given]
        math = change == "math-backend"
        with sdpa_kernel(SDPBackend.MATH) if math else contextlib.nullcontext():
            if change == "mask":
                out = scaled_dot_product_attention(*given, attn_mask=mask)
            else:
                out = scaled_dot_product_attention(*given, is_causal=True)
        torch.autograd.grad(out, leaves, dout)

    return Program(step, torch.cuda.synchronize)
