"""The references of the built-in operators, in float64 (crates/core/src/suite/operators.toml).

Each is called with its inputs and scalars as keywords; that file declares their shapes.
`NAME_gradients` takes the gradients of the outputs as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
"""A NumPy array."""

_erf = np.vectorize(math.erf, otypes=[np.float64])


def rmsnorm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rmsnorm_gradients(x: Array, weight: Array, eps: float, dout: Array) -> tuple[Array, Array]:
    root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    normal, scaled = x / root, dout * weight
    dx = (scaled - normal * (scaled * normal).mean(axis=-1, keepdims=True)) / root
    return dx, (dout * normal).sum(axis=0)


def layernorm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    x = x - x.mean(axis=-1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight + bias


def layernorm_gradients(
    x: Array, weight: Array, bias: Array, eps: float, dout: Array
) -> tuple[Array, Array, Array]:
    x = x - x.mean(axis=-1, keepdims=True)
    dx, dweight = rmsnorm_gradients(x, weight, eps, dout)
    return dx - dx.mean(axis=-1, keepdims=True), dweight, dout.sum(axis=0)


def swiglu(gate: Array, up: Array) -> Array:
    return gate / (1.0 + np.exp(-gate)) * up


def swiglu_gradients(gate: Array, up: Array, dout: Array) -> tuple[Array, Array]:
    sigmoid = 1.0 / (1.0 + np.exp(-gate))
    return dout * up * sigmoid * (1.0 + gate * (1.0 - sigmoid)), dout * gate * sigmoid


def rope(x: Array, cos: Array, sin: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rope_gradients(x: Array, cos: Array, sin: Array, dout: Array) -> Array:
    return rope(dout, cos, -sin)


def cross_entropy(logits: Array, labels: Array) -> Array:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
    return np.log(np.exp(shifted).sum(axis=-1)) - chosen


def cross_entropy_gradients(logits: Array, labels: Array, dloss: Array) -> Array:
    gradient = _weights(logits)
    gradient[np.arange(len(labels)), labels] -= 1.0
    return gradient * dloss[:, None]


def matmul_gelu(a: Array, b: Array) -> Array:
    x = a @ b
    return x * (0.5 + 0.5 * _erf(x / math.sqrt(2.0)))


def matmul_gelu_tanh(a: Array, b: Array) -> Array:
    x = a @ b
    return x * (0.5 + 0.5 * np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def attention_softcap(q: Array, k: Array, v: Array, cap: float, scale: float) -> Array:
    scores = cap * np.tanh(_scores(q, k) * scale / cap)
    return _mixed(_weights(_causal(scores)), v)


def attention_sinks(q: Array, k: Array, v: Array, sink: Array, scale: float) -> Array:
    scores = _causal(_scores(q, k) * scale)
    sink = np.broadcast_to(sink[:, None, None], (*scores.shape[:-1], 1))
    return _mixed(_weights(np.concatenate([scores, sink], axis=-1))[..., :-1], v)


def attention_bias(q: Array, k: Array, v: Array, bias: Array, scale: float) -> Array:
    return _mixed(_weights(_scores(q, k) * scale + bias), v)


def mla_decode(q: Array, cache: Array, scale: float) -> Array:
    key = cache[:, :, None]
    return _mixed(_weights(_scores(q[:, None], key) * scale), key[..., :512])[:, 0]


def paged_decode(
    q: Array, k_pages: Array, v_pages: Array, table: Array, lengths: Array, scale: float
) -> Array:
    out = np.empty((*q.shape[:2], v_pages.shape[-1]))
    for row, length in enumerate(lengths):
        k, v = (
            pages[table[row]].reshape(1, -1, *pages.shape[2:])[:, :length]
            for pages in (k_pages, v_pages)
        )
        out[row] = _mixed(_weights(_scores(q[row][None, None], k) * scale), v)[0, 0]
    return out


def gated_delta(
    q: Array, k: Array, v: Array, g: Array, beta: Array, initial_state: Array, scale: float
) -> tuple[Array, Array]:
    state, out = initial_state.copy(), np.empty_like(v)
    for t in range(q.shape[1]):
        state *= np.exp(g[:, t])[..., None, None]
        seen = np.einsum("bhk,bhkv->bhv", k[:, t], state)
        change = beta[:, t][..., None] * (v[:, t] - seen)
        state += k[:, t][..., None] * change[:, :, None]
        out[:, t] = scale * np.einsum("bhk,bhkv->bhv", q[:, t], state)
    return out, state


def _scores(q: Array, k: Array) -> Array:
    """Returns products [batch, heads, seq_q, seq_k] of q [batch, seq_q, heads, width] and
    k [batch, seq_k, kv_heads, width]; heads / kv_heads consecutive heads share a key head."""
    batch, seq_q, heads, width = q.shape
    grouped = q.reshape(batch, seq_q, k.shape[2], -1, width)
    scores = np.einsum("bigrd,bjgd->bgrij", grouped, k, optimize=True)
    return scores.reshape(batch, heads, seq_q, k.shape[1])


def _causal(scores: Array) -> Array:
    """Sets scores to -inf where a query must not see a key. The last query sees all keys."""
    seq_q, seq_k = scores.shape[-2:]
    hidden = np.arange(seq_k) > np.arange(seq_q)[:, None] + seq_k - seq_q
    return np.where(hidden, -np.inf, scores)


def _weights(scores: Array) -> Array:
    """Returns the softmax over the last axis."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _mixed(weights: Array, v: Array) -> Array:
    """Returns weighted sums [batch, seq_q, heads, width] of v [batch, seq_k, kv_heads, width]."""
    batch, heads, seq_q, seq_k = weights.shape
    grouped = weights.reshape(batch, v.shape[2], -1, seq_q, seq_k)
    mixed = np.einsum("bgrij,bjgd->bigrd", grouped, v, optimize=True)
    return mixed.reshape(batch, seq_q, heads, v.shape[3])
