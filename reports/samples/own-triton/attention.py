"""Causal flash attention in Triton: a program for each block of queries of a head."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(Q, K, V, Out, seq, heads, scale, D: tl.constexpr, BLOCK: tl.constexpr):
    block, head = tl.program_id(0), tl.program_id(1)
    base = (head // heads) * seq * heads * D + (head % heads) * D + tl.arange(0, D)[None, :]
    rows = block * BLOCK + tl.arange(0, BLOCK)[:, None]
    q = tl.load(Q + base + rows * heads * D)
    top, total = tl.full([BLOCK, 1], -1e30, tl.float32), tl.zeros([BLOCK, 1], tl.float32)
    out = tl.zeros([BLOCK, D], tl.float32)
    for first in range(0, (block + 1) * BLOCK, BLOCK):
        keys = first + tl.arange(0, BLOCK)
        theirs = base + keys[:, None] * heads * D
        scores = tl.dot(q, tl.trans(tl.load(K + theirs))) * scale
        scores = tl.where(rows >= keys[None, :], scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 1)[:, None])
        weights, shrunk = tl.exp(scores - higher), tl.exp(top - higher)
        out = out * shrunk + tl.dot(weights.to(q.dtype), tl.load(V + theirs))
        total, top = total * shrunk + tl.sum(weights, 1)[:, None], higher
    tl.store(Out + base + rows * heads * D, (out / total).to(q.dtype))


def attention(q, k, v, problem, block: int = 64):
    if not (problem.mask.is_causal and problem.is_square) or problem.seq_q % block:
        raise NotImplementedError("causal, as many keys as queries, whole blocks")
    if problem.varlen or problem.layout != "bshd" or problem.heads != problem.kv_heads:
        raise NotImplementedError("bshd, a key head for each query head")
    out, grid = torch.empty_like(q), (problem.seq_q // block, problem.batch * problem.heads)
    kernel[grid](q, k, v, out, *q.shape[1:3], problem.scale, D=q.shape[3], BLOCK=block)
    return out
