"""Attention in plain torch as decoding has it: softcap, sinks, a bias, absorbed MLA, a paged cache.

Each computes a built-in operator of its arguments' names: `regatta list` has them.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention


def softcap(q: torch.Tensor, k, v, cap, scale):
    """Scores are capped before softmax, as in Gemma 2."""
    q, k, v = (x.transpose(1, 2) for x in (q, *_repeated(q, k, v)))
    scores = _causal(cap * torch.tanh((q @ k.mT) * (scale / cap)))
    return (torch.softmax(scores, -1, torch.float32).to(v.dtype) @ v).transpose(1, 2)


def sinks(q: torch.Tensor, k, v, sink, scale):
    """A learned score a head, which takes weight and has no value, as in gpt-oss."""
    q, k, v = (x.transpose(1, 2) for x in (q, *_repeated(q, k, v)))
    scores = _causal((q @ k.mT).float() * scale)
    sink = sink[None, :, None, None].expand(*scores.shape[:-1], -1)
    weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    return (weights.to(v.dtype) @ v).transpose(1, 2)


def bias(q: torch.Tensor, k, v, bias, scale):
    """A bias of scores, as in T5."""
    q, k, v = (x.transpose(1, 2) for x in (q, *_repeated(q, k, v)))
    return scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale).transpose(1, 2)


def mla(q: torch.Tensor, cache, scale, width_v: int = 512):
    """All heads read one latent cache, whose first 512 columns are the values."""
    key, value = cache[:, None], cache[:, None, :, :width_v]
    out = scaled_dot_product_attention(q[:, :, None], key, value, scale=scale, enable_gqa=True)
    return out[:, :, 0]


def paged(q: torch.Tensor, k_pages, v_pages, table, lengths, scale):
    """Keys and values lie in pages, in the order of a table."""
    k, v = (pages[table.long()].flatten(1, 2).transpose(1, 2) for pages in (k_pages, v_pages))
    seen = torch.arange(k.shape[2], device=q.device) < lengths[:, None]
    out = scaled_dot_product_attention(
        q[:, :, None], k, v, attn_mask=seen[:, None, None], scale=scale, enable_gqa=True
    )
    return out[:, :, 0]


def _repeated(q, *cache):
    """Keys and values as many times as heads share them."""
    return (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in cache)


def _causal(scores):
    """The last query sees all keys."""
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2])
    return scores.masked_fill(hidden, float("-inf"))
