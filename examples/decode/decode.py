"""Decode attention in plain torch: softcap, sinks, absorbed MLA, and a paged cache."""

import torch
from torch.nn.functional import scaled_dot_product_attention


def softcap(q: torch.Tensor, k, v, cap, scale):
    """Scores are capped before softmax, as in Gemma 2."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = cap * torch.tanh((q[:, :, None] @ k.mT) * (scale / cap))
    return (torch.softmax(scores, -1, torch.float32).to(v.dtype) @ v)[:, :, 0]


def sinks(q: torch.Tensor, k, v, sink, scale):
    """A learned score a head, which takes weight and has no value, as in gpt-oss."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = (q[:, :, None] @ k.mT).float() * scale
    sink = sink[None, :, None, None].expand(len(q), -1, -1, -1)
    weights = torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    return (weights.to(v.dtype) @ v)[:, :, 0]


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
