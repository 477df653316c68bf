"""References of the decode operators, in float64."""

import numpy as np


def weights(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def scores(q, k):
    """[batch, heads, seq] of q [batch, heads, width] and k [batch, kv_heads, seq, width]."""
    batch, heads, width = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, width)
    return (grouped @ k.swapaxes(-1, -2)).reshape(batch, heads, -1)


def mixed(weights, v):
    batch, heads, _ = weights.shape
    grouped = weights.reshape(batch, v.shape[1], -1, v.shape[2])
    return (grouped @ v).reshape(batch, heads, -1)


def softcap(q, k, v, cap, scale):
    return mixed(weights(cap * np.tanh(scores(q, k) * scale / cap)), v)


def sinks(q, k, v, sink, scale):
    sink = np.broadcast_to(sink[:, None], (*q.shape[:2], 1))
    return mixed(weights(np.concatenate([scores(q, k) * scale, sink], -1))[..., :-1], v)


def mla(q, cache, scale):
    return mixed(weights(scores(q, cache[:, None]) * scale), cache[:, None, :, :512])


def paged(q, k_pages, v_pages, table, lengths, scale):
    out = np.empty((*q.shape[:2], v_pages.shape[-1]))
    for b, length in enumerate(lengths):
        k, v = (
            pages[table[b]].reshape(-1, *pages.shape[2:])[:length] for pages in (k_pages, v_pages)
        )
        k, v = (x.swapaxes(0, 1)[None] for x in (k, v))
        out[b] = mixed(weights(scores(q[b : b + 1], k) * scale), v)
    return out
