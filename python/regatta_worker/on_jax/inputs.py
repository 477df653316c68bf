"""The inputs made on JAX's device, over the memory of those before.

Arrays of JAX's cannot be written into. A compiled function that is given the old ones to
consume writes the new ones where they lay, on backends that can; where one does not, the
samples' addresses change with their contents.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from regatta_worker.problem.attention import Problem
from regatta_worker.problem.inputs import random_bits, start, uniform

ByName = dict[str, Any]
"""Inputs by name, in the order in memory of the layout."""


def refill(problem: Problem, arrays: ByName, seed: int) -> ByName:
    """The inputs of a seed for those of another, which are consumed."""
    with _wide_integers():
        made = {}
        for name, array in arrays.items():
            fill = _compiled(array.shape, array.dtype, problem.layout == "bhsd", array.sharding)
            made[name] = fill(array, np.int64(start(seed, name)))
        ready: ByName = jax.block_until_ready(made)
        return ready


@functools.lru_cache(maxsize=32)
def _compiled(
    shape: tuple[int, ...], dtype: Any, transposed: bool, sharding: Any
) -> Callable[..., Any]:
    """Fills one array. Compiled once for all tensors, directions and seeds that it fits."""

    def filled(old: Any, begin: Any) -> Any:
        return _input(shape, dtype, transposed, begin)

    # The old one is for its memory alone, and would be left out as unused.
    jitted = jax.jit(filled, donate_argnums=0, keep_unused=True)
    number = jax.ShapeDtypeStruct((), np.int64)
    # Committed to its device like the array it is for: of another kind of array, forward
    # would be compiled anew.
    old = jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)
    compiled: Callable[..., Any] = jitted.lower(old, number).compile()
    return compiled


def _wide_integers() -> contextlib.AbstractContextManager[Any]:
    """64-bit integers and floats, which JAX has only where it is told so."""
    wide: contextlib.AbstractContextManager[Any]
    if hasattr(jax, "enable_x64"):
        wide = jax.enable_x64(True)
    else:
        # Where it was until 0.8.
        from jax.experimental import enable_x64

        wide = enable_x64(True)
    return wide


def _input(shape: tuple[int, ...], dtype: Any, transposed: bool, begin: Any) -> Any:
    """As problem/inputs.py makes it, element by element in one pass; `begin` is the tensor's
    `start`."""
    logical = (shape[0], shape[2], shape[1], shape[3]) if transposed else shape
    bits = random_bits(jax.lax.iota(jnp.int64, math.prod(shape)), begin)
    values = uniform(bits.astype(jnp.float64)).astype(jnp.float32)
    # Rounded twice, as the other workers do: XLA may make one conversion of two.
    rounded = jax.lax.optimization_barrier(values).astype(dtype).reshape(logical)
    return jnp.swapaxes(rounded, 1, 2) if transposed else rounded
