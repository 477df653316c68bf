"""A training step in JAX: attention by dot_product_attention, an MLP, plain descent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from faults.around import Program

BATCH, LENGTH, WIDTH, HEADS, LAYERS = 4, 2048, 1024, 16, 2


def forward(weights: list[dict[str, Any]], x: Any) -> Any:
    """Of [batch, length, width]."""
    for layer in weights:
        normed = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)
        q, k, v = jnp.split((normed @ layer["qkv"]).reshape(*x.shape[:2], HEADS, -1), 3, -1)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.reshape(x.shape) @ layer["out"]
        normed = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-5)
        x = x + jax.nn.gelu(normed @ layer["up"]) @ layer["down"]
    return x


@jax.jit
def gradients_of(weights: list[dict[str, Any]], x: Any) -> Any:
    """Of a mean square."""

    def loss(weights: list[dict[str, Any]]) -> Any:
        return jnp.mean(jnp.square(forward(weights, x).astype(jnp.float32)))

    return jax.grad(loss)(weights)


def descend(weights: list[dict[str, Any]], gradients: Any, rate: float) -> Any:
    """The weights after one step."""
    return jax.tree.map(lambda w, g: w - (rate * g).astype(w.dtype), weights, gradients)


def build(change: str) -> Program:
    """The program with a change."""
    dtype = jnp.float32 if change == "float32" else jnp.bfloat16
    shapes = {
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    random = np.random.default_rng(7 if change == "other-seed" else 0)

    def normal(*shape: int) -> Any:
        return jnp.asarray(random.standard_normal(shape, np.float32), dtype)

    weights = [{name: normal(*shape) / 32 for name, shape in shapes.items()} for _ in range(LAYERS)]
    x = normal(BATCH, LENGTH, WIDTH)
    compiled = jax.jit(descend, static_argnums=2)
    state = [weights]

    def step(number: int) -> None:
        # A rate that is a part of the program is compiled in.
        rate = 1e-3 + number * 1e-6 if change == "recompile" else 1e-3
        state[0] = compiled(state[0], gradients_of(state[0], x), rate)
        if change == "to-host-and-back":
            state[0] = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)), state[0])

    def wait() -> None:
        jax.block_until_ready(state[0])

    return Program(step, wait)
