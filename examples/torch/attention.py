"""Attention in torch: autograd differentiates it for backward and both."""

import torch
import torch.nn.functional as F


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem):
    """scaled_dot_product_attention, whichever backend torch selects."""
    if problem.varlen or not problem.is_square or problem.heads != problem.kv_heads:
        raise NotImplementedError("as many keys as queries, a key head for each query head")
    if not (problem.mask.is_full or problem.mask.is_causal):
        raise NotImplementedError("full and causal masks")
    if problem.layout == "bshd":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=problem.mask.is_causal)
    return out.transpose(1, 2) if problem.layout == "bshd" else out


def board(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem):
    """Every score at once."""
    if not problem.mask.is_full or problem.layout != "bshd" or problem.heads != problem.kv_heads:
        raise NotImplementedError("bshd, full masks, a key head for each query head")
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * problem.scale
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(dim=-1), v)
