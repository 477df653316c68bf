"""What JAX reaches on a device at the most."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from regatta_worker.clock.peak import CPU_COPY, CPU_SIDE, GPU_COPY, GPU_SIDE, Called, flops, peak
from regatta_worker.protocol.channel import Message


def jax_peak(dtypes: Mapping[str, Any], on_gpu: bool) -> Message:
    """What `jnp.matmul` and a sum reach here, by the names of types."""
    side, size = (GPU_SIDE, GPU_COPY) if on_gpu else (CPU_SIDE, CPU_COPY)

    def product(dtype: Any) -> Called:
        keys = jax.random.split(jax.random.key(1))
        a, b = (jax.random.normal(key, (side, side)).astype(dtype) for key in keys)
        # Named: by itself XLA takes TF32 for float32 on a GPU.
        multiply = jax.jit(functools.partial(jnp.matmul, precision="highest"))
        return Called(lambda: multiply(a, b), flops(side))

    def copy() -> Called:
        source = jnp.ones(size // 4, jnp.float32)
        return Called(functools.partial(jax.jit(lambda x: x + 1), source), 2.0 * size)

    products = {name: functools.partial(product, dtype) for name, dtype in dtypes.items()}
    how = f"jnp.matmul of {side} x {side}; adding 1 to {size >> 20} MiB"
    return peak(products, copy, jax.block_until_ready, how)
