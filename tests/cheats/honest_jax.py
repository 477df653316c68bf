"""Functions of JAX arrays that compute attention honestly, each in a way that public code has;
none may be refused. `table.py` tries them."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

jax.config.update("jax_default_matmul_precision", "float32")


def _scale(q: Array) -> float:
    return 1.0 / math.sqrt(q.shape[-1])


def _attend(q: Array, k: Array, v: Array) -> Array:
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * _scale(q), axis=-1) @ v


def matmul(q: Array, k: Array, v: Array) -> Array:
    """matrix products"""
    return _attend(q, k, v)


def einsum(q: Array, k: Array, v: Array) -> Array:
    """einsum"""
    scores = jnp.einsum("bhid,bhjd->bhij", q, k) * _scale(q)
    return jnp.einsum("bhij,bhjd->bhid", jax.nn.softmax(scores, axis=-1), v)


def dot_product_attention(q: Array, k: Array, v: Array) -> Array:
    """jax.nn's own"""
    turned = (jnp.swapaxes(x, 1, 2) for x in (q, k, v))
    return jnp.swapaxes(jax.nn.dot_product_attention(*turned), 1, 2)


def over_heads(q: Array, k: Array, v: Array) -> Array:
    """vmap over sequences and heads"""
    return jax.vmap(jax.vmap(_attend))(q, k, v)


def jitted_inside(q: Array, k: Array, v: Array) -> Array:
    """a function that is jitted already"""
    return _jitted(q, k, v)


_jitted = jax.jit(_attend)


def scanned(q: Array, k: Array, v: Array) -> Array:
    """a scan over blocks of keys with a running maximum"""
    blocks = k.shape[2] // 32

    def block(x: Array) -> Array:
        return jnp.moveaxis(x.reshape(*x.shape[:2], blocks, 32, x.shape[3]), 2, 0)

    def step(carry: tuple[Array, Array, Array], kv: tuple[Array, Array]) -> tuple[tuple, None]:
        out, largest, total = carry
        scores = q @ jnp.swapaxes(kv[0], 2, 3) * _scale(q)
        now = jnp.maximum(largest, scores.max(-1, keepdims=True))
        weights, part = jnp.exp(scores - now), jnp.exp(largest - now)
        total = total * part + weights.sum(-1, keepdims=True)
        return (out * part + weights @ kv[1], now, total), None

    first = (jnp.zeros_like(q), jnp.full((*q.shape[:3], 1), -jnp.inf), jnp.zeros((*q.shape[:3], 1)))
    (out, _, total), _ = lax.scan(step, first, (block(k), block(v)))
    return out / total


def mapped(q: Array, k: Array, v: Array) -> Array:
    """lax.map over heads"""
    heads = tuple(jnp.swapaxes(x, 0, 1) for x in (q, k, v))
    return jnp.swapaxes(lax.map(lambda some: _attend(*some), heads), 0, 1)


def looped(q: Array, k: Array, v: Array) -> Array:
    """a fori_loop over blocks of queries"""
    rows = 32

    def body(number: Array, out: Array) -> Array:
        some = lax.dynamic_slice_in_dim(q, number * rows, rows, axis=2)
        return lax.dynamic_update_slice_in_dim(out, _attend(some, k, v), number * rows, axis=2)

    return lax.fori_loop(0, q.shape[2] // rows, body, jnp.zeros_like(q))


def rematerialised(q: Array, k: Array, v: Array) -> Array:
    """jax.checkpoint"""
    return jax.checkpoint(_attend)(q, k, v)


@jax.custom_vjp
def _custom(q: Array, k: Array, v: Array) -> Array:
    return _attend(q, k, v)


_custom.defvjp(lambda q, k, v: (_attend(q, k, v), (q, k, v)), lambda saved, dout: saved)


def custom_gradient(q: Array, k: Array, v: Array) -> Array:
    """a function with a gradient of its own"""
    return _custom(q, k, v)


def logsumexp(q: Array, k: Array, v: Array) -> Array:
    """logsumexp of jax.nn"""
    scores = q @ jnp.swapaxes(k, 2, 3) * _scale(q)
    return jnp.exp(scores - jax.nn.logsumexp(scores, axis=-1, keepdims=True)) @ v


def dot_general(q: Array, k: Array, v: Array) -> Array:
    """lax.dot_general"""
    scores = lax.dot_general(q, k, (((3,), (3,)), ((0, 1), (0, 1)))) * _scale(q)
    weights = jax.nn.softmax(scores, axis=-1)
    return lax.dot_general(weights, v, (((3,), (2,)), ((0, 1), (0, 1))))


def named_scopes(q: Array, k: Array, v: Array) -> Array:
    """named scopes, as profilers want them"""
    with jax.named_scope("scores"):
        weights = jax.nn.softmax(q @ jnp.swapaxes(k, 2, 3) * _scale(q), axis=-1)
    with jax.named_scope("values"):
        return weights @ v


def on_the_host(q: Array, k: Array, v: Array) -> Array:
    """a callback to NumPy"""
    return jax.pure_callback(_by_numpy, jax.ShapeDtypeStruct(q.shape, q.dtype), q, k, v)


def _by_numpy(*inputs: Array) -> np.ndarray:
    q, k, v = map(np.asarray, inputs)
    scores = q @ k.swapaxes(2, 3) * np.float32(_scale(q))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(weights @ v / weights.sum(-1, keepdims=True), q.dtype)


def vectorised(q: Array, k: Array, v: Array) -> Array:
    """jnp.vectorize"""
    return jnp.vectorize(_attend, signature="(i,d),(j,d),(j,e)->(i,e)")(q, k, v)


def causal_of_none(q: Array, k: Array, v: Array) -> Array:
    """a mask that hides nothing, by where"""
    seen = jnp.ones((q.shape[2], k.shape[2]), bool)
    scores = jnp.where(seen, q @ jnp.swapaxes(k, 2, 3) * _scale(q), -jnp.inf)
    return jax.nn.softmax(scores, axis=-1) @ v


def partial_of_one(q: Array, k: Array, v: Array) -> Array:
    """functools.partial of a function with a static argument"""
    return _by_axis(q, k, v)


@functools.partial(jax.jit, static_argnames="axis")
def _on_axis(q: Array, k: Array, v: Array, axis: int) -> Array:
    return jax.nn.softmax(q @ jnp.swapaxes(k, 2, 3) * _scale(q), axis=axis) @ v


_by_axis = functools.partial(_on_axis, axis=-1)
