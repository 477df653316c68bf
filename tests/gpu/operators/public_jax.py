"""Built-in operators in JAX, for `tests/gpu/operators/run`."""

import jax
import jax.numpy as jnp


def rmsnorm_jax(x: jax.Array, weight, eps):
    single = x.astype(jnp.float32)
    root = jax.lax.rsqrt((single * single).mean(-1, keepdims=True) + eps)
    return (single * root * weight).astype(x.dtype)


def product_jax(a: jax.Array, a_scale, b, b_scale):
    wide = a.astype(jnp.float32) @ b.astype(jnp.float32)
    return (wide * a_scale * b_scale).astype(jnp.bfloat16)
