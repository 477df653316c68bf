"""Attention in JAX: regatta jits it, and differentiates it for backward and both."""

import jax
import jax.numpy as jnp


def attention(q: jax.Array, k: jax.Array, v: jax.Array, problem):
    """Every score at once, as XLA fuses it."""
    if problem.varlen or problem.layout != "bshd" or problem.heads != problem.kv_heads:
        raise NotImplementedError("bshd, sequences of one length, a key head for each query head")
    scores = jnp.einsum("bihd,bjhd->bhij", q, k) * problem.scale
    if not problem.mask.is_full:
        rows, columns = jnp.arange(problem.seq_q)[:, None], jnp.arange(problem.seq_k)[None, :]
        offset = problem.mask.offset(problem.seq_q, problem.seq_k)
        scores = jnp.where(problem.mask.visible(rows, columns, offset), scores, -jnp.inf)
    weights = jax.nn.softmax(scores.astype(jnp.float32), axis=-1).astype(q.dtype)
    return jnp.einsum("bhij,bjhd->bihd", weights, v)


def library(q: jax.Array, k: jax.Array, v: jax.Array, problem):
    """JAX's own attention."""
    if problem.varlen or problem.layout != "bshd" or not problem.is_square:
        raise NotImplementedError("bshd, as many queries as keys")
    if not (problem.mask.is_full or problem.mask.is_causal):
        raise NotImplementedError("full and causal masks")
    return jax.nn.dot_product_attention(q, k, v, is_causal=problem.mask.is_causal)
